//! Saved robots.txt files: the snapshot that a fetch of each would have produced, and a
//! folder of files that are found by the origin of a URL.
//!
//! RFC 9309, section 2.3.1. Does not know what a file says about a URL.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use moka::sync::Cache;
use thiserror::Error;

use super::context::CheckContext;
use crate::cli::output::Usage;
use politesse_base::clock;
use politesse_decision::access::{Cause, StatusMeaning, status_meaning};
use politesse_decision::snapshot::{AccessResult, CacheKey, RobotsBody, RobotsFile, Snapshot};
use politesse_robots::FileSource;
use politesse_robots::origin::Origin;
use politesse_robots_cache::body_text::decoded_text;

/// Response that a saved robots.txt represents.
pub(crate) struct SavedAnswer {
    /// Status of the response.
    pub(crate) status: u16,
    /// Body of the response, or the beginning of it.
    pub(crate) body: Bytes,
    /// Whether `body` is everything that the origin sent.
    pub(crate) whole: bool,
}

impl SavedAnswer {
    /// Reads a file as the body of a response with status 200.
    pub(crate) fn read(input: impl Read, bytes_max: usize) -> io::Result<Self> {
        let mut body = Vec::new();
        // One extra byte shows that the file is longer than the limit.
        let limit = u64::try_from(bytes_max)
            .unwrap_or(u64::MAX)
            .saturating_add(1);
        input.take(limit).read_to_end(&mut body)?;
        Ok(Self {
            status: 200,
            body: body.into(),
            whole: true,
        })
    }

    /// Returns the snapshot that this response to a fetch of a robots.txt would
    /// produce.
    pub(crate) fn snapshot(&self, origin: &Origin, context: &CheckContext) -> Snapshot {
        let now = clock::now();
        let result = match status_meaning(self.status) {
            StatusMeaning::Parse => match self.robots_body(context.bytes_max) {
                Ok(body) => {
                    let source = FileSource::new(origin, None);
                    let file = RobotsFile::from_source(body, context.dialect(), source);
                    AccessResult::Successful(Arc::new(file))
                }
                Err(cause) => AccessResult::Unreachable(cause),
            },
            StatusMeaning::Unavailable => AccessResult::Unavailable,
            StatusMeaning::Redirect | StatusMeaning::Unreachable => {
                AccessResult::Unreachable(Cause::Status)
            }
        };
        Snapshot {
            key: CacheKey::new(origin.clone(), None),
            url: origin.robots_txt().to_string(),
            hops: Vec::new(),
            status: Some(self.status),
            // Nothing was fetched, so these times are not printed.
            fetched_at: now,
            expires_at: now,
            result,
            stale: None,
            tdm: None,
        }
    }

    /// Returns the whole lines within the first `max` bytes of the text.
    fn robots_body(&self, max: usize) -> Result<RobotsBody, Cause> {
        let text = decoded_text(self.body.clone(), max)?;
        if self.whole {
            return Ok(RobotsBody::within(text, max));
        }
        // A further byte after the text makes the last line count as incomplete, which
        // it may be.
        let longer = [&text[..], b"-"].concat();
        Ok(RobotsBody::within(longer.into(), max.min(text.len())))
    }
}

/// Approximate limit on the memory of cached files, in bytes.
const CACHE_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Folder of saved files that are named by host. Each is read and parsed once, unless
/// the files in use exceed [`CACHE_BYTES_MAX`].
///
/// `https://site.example/a` is judged by the first existing file of `site.example`,
/// `site.example.txt` and `site.example/robots.txt`. A port other than the scheme's
/// follows the host after `:` or `_`.
pub(crate) struct SavedFolder<'a> {
    path: PathBuf,
    context: &'a CheckContext,
    /// Results by authority.
    cache: Cache<String, SavedResult>,
}

/// Snapshot from the saved file of an origin.
pub(crate) type SavedResult = Result<Arc<Snapshot>, Arc<SavedFileError>>;

/// Reason why the folder has no snapshot for an origin.
#[derive(Debug, Error)]
pub(crate) enum SavedFileError {
    /// The folder has no file for this origin. Whether the origin has a robots.txt is
    /// unknown.
    #[error("no saved robots.txt for {0}")]
    Missing(String),
    /// The file exists but cannot be read.
    #[error("cannot read the saved robots.txt for {authority}: {source}")]
    Unreadable {
        /// Host and port.
        authority: String,
        /// Cause.
        source: io::Error,
    },
}

impl<'a> SavedFolder<'a> {
    /// Opens the folder at `path`.
    ///
    /// # Errors
    ///
    /// [`Usage::File`] if the path is not a folder, or cannot be read.
    pub(crate) fn open(path: PathBuf, context: &'a CheckContext) -> Result<Self, Usage> {
        if let Err(source) = std::fs::read_dir(&path) {
            return Err(Usage::File { path, source });
        }
        let cache = Cache::builder()
            .max_capacity(CACHE_BYTES_MAX)
            .weigher(|authority: &String, result: &SavedResult| weight(authority, result))
            .build();
        Ok(Self {
            path,
            context,
            cache,
        })
    }

    /// Returns the snapshot from the saved file of `origin`.
    pub(crate) fn find(&self, origin: &Origin) -> SavedResult {
        let authority = origin.authority();
        self.cache
            .get_with_by_ref(&authority, || self.read(origin).map_err(Arc::new))
    }

    fn read(&self, origin: &Origin) -> Result<Arc<Snapshot>, SavedFileError> {
        let authority = origin.authority();
        for name in names(&authority) {
            match self.read_file(&name) {
                Ok(None) => {}
                Ok(Some(saved)) => return Ok(Arc::new(saved.snapshot(origin, self.context))),
                Err(source) => return Err(SavedFileError::Unreadable { authority, source }),
            }
        }
        Err(SavedFileError::Missing(authority))
    }

    /// Reads one file, if it exists and is a regular file.
    fn read_file(&self, name: &str) -> io::Result<Option<SavedAnswer>> {
        let path = self.path.join(name);
        match std::fs::metadata(&path) {
            Ok(metadata) if metadata.is_file() => {
                SavedAnswer::read(File::open(path)?, self.context.bytes_max).map(Some)
            }
            // A folder `site.example` may contain the file as
            // `site.example/robots.txt`.
            Ok(_) => Ok(None),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Returns the possible file names for an authority. All of them stay inside the
/// folder, because an authority has no slashes and is never `..`.
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

/// Returns the memory used by a cached result, in bytes.
fn weight(authority: &str, result: &SavedResult) -> u32 {
    let snapshot = result
        .as_ref()
        .map_or(0, |snapshot| snapshot_weight(snapshot));
    let names = u32::try_from(2 * authority.len()).unwrap_or(u32::MAX);
    snapshot.saturating_add(names)
}

/// Returns the memory used by a snapshot with its file, in bytes.
pub(crate) fn snapshot_weight(snapshot: &Snapshot) -> u32 {
    let file = snapshot.file();
    let file_bytes = file.map_or(0, |file| file.body.len() + file.robots.weight());
    u32::try_from(size_of::<Snapshot>() + file_bytes).unwrap_or(u32::MAX)
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
