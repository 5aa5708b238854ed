//! The saved files of a folder, found by the origin of a URL.
//!
//! Each is read and parsed once as long as those in use fit a bound. What a
//! file says of a URL is not known here.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use moka::sync::Cache;
use thiserror::Error;

use super::saved;
use super::terms::Terms;
use crate::cli::output::Usage;
use crate::decision::snapshot::Snapshot;
use politesse_robots::origin::Origin;

/// How much the files that are kept ready take together, in bytes, about.
const KEPT_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Saved files that are named by host.
///
/// `https://site.example/a` is judged by `site.example`, `site.example.txt` or
/// `site.example/robots.txt`, the first there is. A port other than the
/// scheme's stands behind the host, with `:` or `_`.
pub(super) struct Folder<'a> {
    path: PathBuf,
    terms: &'a Terms,
    kept: Cache<String, Found>,
}

/// What was saved of an origin.
pub(super) type Found = Result<Arc<Snapshot>, Arc<NoFile>>;

/// Why nothing can be said of an origin.
#[derive(Debug, Error)]
pub(super) enum NoFile {
    /// The folder has none for it: whether there is a robots.txt is not known.
    #[error("no saved robots.txt for {0}")]
    Missing(String),
    /// There is one, and it cannot be read.
    #[error("cannot read the saved robots.txt for {authority}: {source}")]
    Unreadable {
        /// Host and port.
        authority: String,
        /// Why.
        source: io::Error,
    },
}

impl<'a> Folder<'a> {
    /// The folder at `path`, whose files are read by `terms`.
    ///
    /// # Errors
    ///
    /// [`Usage::File`] if it is none, or may not be read.
    pub(super) fn open(path: PathBuf, terms: &'a Terms) -> Result<Self, Usage> {
        if let Err(source) = std::fs::read_dir(&path) {
            return Err(Usage::File { path, source });
        }
        let kept = Cache::builder()
            .max_capacity(KEPT_BYTES_MAX)
            .weigher(|authority: &String, found: &Found| weight(authority, found))
            .build();
        Ok(Self { path, terms, kept })
    }

    /// What was saved of `origin`.
    pub(super) fn find(&self, origin: &Origin) -> Found {
        let authority = origin.authority();
        self.kept
            .get_with_by_ref(&authority, || self.read(origin).map_err(Arc::new))
    }

    fn read(&self, origin: &Origin) -> Result<Arc<Snapshot>, NoFile> {
        let authority = origin.authority();
        for name in names(&authority) {
            match self.bytes(&name) {
                Ok(None) => {}
                Ok(Some(body)) => {
                    let snapshot = saved::snapshot(origin, (200, body), self.terms);
                    return Ok(Arc::new(snapshot));
                }
                Err(source) => return Err(NoFile::Unreadable { authority, source }),
            }
        }
        Err(NoFile::Missing(authority))
    }

    /// The bytes of one file, if it is there and a file.
    fn bytes(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let path = self.path.join(name);
        match std::fs::metadata(&path) {
            Ok(about) if about.is_file() => saved::bytes(File::open(path)?, self.terms).map(Some),
            Ok(_) => Ok(None),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The names under which the file of an authority may lie. All of them lie in
/// the folder: an authority has neither slashes nor names of dots.
fn names(authority: &str) -> Vec<String> {
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let stems = [
        Some(authority.to_owned()),
        port.map(|port| format!("{host}_{port}")),
    ];
    let endings = ["", ".txt", "/robots.txt"];
    let names = stems.into_iter().flatten();
    names
        .flat_map(|stem| endings.map(|ending| format!("{stem}{ending}")))
        .collect()
}

fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// What keeping it costs, in bytes.
fn weight(authority: &str, found: &Found) -> u32 {
    let copy = found.as_ref().ok().and_then(|snapshot| snapshot.file());
    let file = copy.map_or(0, |copy| copy.body.len() + copy.robots.weight());
    u32::try_from(size_of::<Snapshot>() + 2 * authority.len() + file).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use politesse_robots::origin::Target;

    fn names_for(url: &str) -> Vec<String> {
        let target: Target = url.parse().unwrap();
        names(&target.origin.authority())
    }

    // `check --help`.
    #[test]
    fn files_are_named_by_host_and_port() {
        for (url, expected) in [
            (
                "https://H.test./a",
                ["h.test", "h.test.txt", "h.test/robots.txt"].as_slice(),
            ),
            (
                "https://h.test:443/",
                &["h.test", "h.test.txt", "h.test/robots.txt"],
            ),
            ("http://[::1]/", &["[::1]", "[::1].txt", "[::1]/robots.txt"]),
            (
                "http://h.test:443/",
                &[
                    "h.test:443",
                    "h.test:443.txt",
                    "h.test:443/robots.txt",
                    "h.test_443",
                    "h.test_443.txt",
                    "h.test_443/robots.txt",
                ],
            ),
        ] {
            assert_eq!(names_for(url), expected, "{url}");
        }
    }

    // Ours: no URL names a file outside the folder.
    #[test]
    fn no_host_leads_out_of_the_folder() {
        for host in [
            "..", "../x", "%2e%2e", "a/../..", "..\\x", "a..b", ".", "/etc", "a:..", "[..]",
        ] {
            for url in [format!("http://{host}/passwd"), format!("http://{host}")] {
                let Ok(target) = url.parse::<Target>() else {
                    continue;
                };
                for name in names(&target.origin.authority()) {
                    let path = std::path::Path::new(&name);
                    let is_inside = path
                        .components()
                        .all(|part| matches!(part, std::path::Component::Normal(_)));
                    assert!(is_inside, "{url} names {name}");
                }
            }
        }
    }
}
