//! Files that the command's variables name: the certificate authority in the formats
//! that clients read, and settings of clients that accept them only from a file.
//!
//! Does not know which variable names which file.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{DirBuilder, OpenOptions, remove_dir_all};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::trust_store::pkcs12;
use politesse_proxy::ca::Ca;

/// Folder of one run. Other users can read its contents, except copies of the user's
/// own settings, because the command may run as another user. Dropping it removes the
/// folder and its contents.
pub(super) struct Files {
    folder: PathBuf,
}

impl Files {
    /// Creates the folder, with the files for `authority`, which contain nothing of the
    /// user's.
    ///
    /// # Errors
    ///
    /// The folder for temporary files is not writable.
    pub(super) fn create(authority: &Ca) -> anyhow::Result<Self> {
        let files = Self {
            folder: new_folder()?,
        };
        files.make_folder(&files.no_roots())?;
        files.make_folder(&files.php_folder())?;
        let roots: Vec<_> = authority.roots().collect();
        let pems: String = roots.iter().map(|root| root.pem()).collect();
        files.write(&files.authority(), pems.as_bytes(), FILE_MODE)?;
        let ders: Vec<&[u8]> = roots.iter().map(|root| root.der().as_ref()).collect();
        files.write(&files.java_store(), &pkcs12(&ders), FILE_MODE)?;
        let php = format!(
            "openssl.cafile = \"{path}\"\ncurl.cainfo = \"{path}\"\n",
            path = files.authority().display()
        );
        let path = files.php_folder().join("politesse.ini");
        files.write(&path, php.as_bytes(), FILE_MODE)?;
        Ok(files)
    }

    /// Returns the path of a PEM file with only the authority's roots.
    pub(super) fn authority(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    /// Returns an empty folder, for clients that would otherwise read roots from a
    /// folder.
    pub(super) fn no_roots(&self) -> PathBuf {
        self.folder.join("no-roots")
    }

    /// Returns the path of the trust store for Java.
    pub(super) fn java_store(&self) -> PathBuf {
        self.folder.join("ca.p12")
    }

    /// Returns the folder with PHP settings.
    pub(super) fn php_folder(&self) -> PathBuf {
        self.folder.join("php")
    }

    /// Writes settings that send `client` through the proxy at `url`, and returns their
    /// path. They begin with a copy of the user's own settings, which they replace: the
    /// first file of `own` that exists.
    ///
    /// # Errors
    ///
    /// The user's file cannot be read, or the new one cannot be written.
    pub(super) fn write_settings(
        &self,
        client: Wget,
        own: &[PathBuf],
        url: &str,
    ) -> anyhow::Result<PathBuf> {
        let mut text = read_first(own)?;
        let mode = if text.is_empty() {
            FILE_MODE
        } else {
            OWN_FILE_MODE
        };
        text.extend_from_slice(b"\n");
        text.extend_from_slice(client.settings(self, url).as_bytes());
        let path = self.folder.join(client.file_name());
        self.write(&path, &text, mode)?;
        Ok(path)
    }

    fn make_folder(&self, path: &Path) -> anyhow::Result<()> {
        let made = DirBuilder::new().mode(FOLDER_MODE).create(path);
        made.with_context(|| format!("cannot make {}", path.display()))
    }

    fn write(&self, path: &Path, bytes: &[u8], mode: u32) -> anyhow::Result<()> {
        let write = || -> io::Result<()> {
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(mode);
            options.open(path)?.write_all(bytes)
        };
        write().with_context(|| format!("cannot write {}", path.display()))
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // A folder left behind does no harm: its modes protect the user's own settings.
        let _ = remove_dir_all(&self.folder);
    }
}

/// The two programs named Wget, whose settings differ in syntax.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wget {
    /// GNU Wget.
    One,
    /// GNU Wget2.
    Two,
}

impl Wget {
    fn file_name(self) -> &'static str {
        match self {
            Self::One => "wgetrc",
            Self::Two => "wget2rc",
        }
    }

    /// Returns settings that are appended to the user's, and so override them. Without
    /// a folder of roots Wget would read the system's certificates too.
    fn settings(self, files: &Files, url: &str) -> String {
        let authority = files.authority();
        let no_roots = files.no_roots();
        let pairs: &[(&str, &dyn std::fmt::Display)] = match self {
            Self::One => &[
                ("ca_certificate", &authority.display()),
                ("ca_directory", &no_roots.display()),
                ("use_proxy", &"on"),
                ("http_proxy", &url),
                ("https_proxy", &url),
                ("no_proxy", &""),
            ],
            Self::Two => &[
                ("ca-certificate", &authority.display()),
                ("ca-directory", &no_roots.display()),
                ("http-proxy", &url),
                ("https-proxy", &url),
            ],
        };
        pairs.iter().fold(String::new(), |mut text, (key, value)| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{key} = {value}");
            text
        })
    }
}

/// Modes of files that name the proxy and the authority: the command may run as another
/// user.
const FOLDER_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;
/// Mode of copies of the user's settings, which may hold passwords.
const OWN_FILE_MODE: u32 = 0o600;

/// Creates a folder for temporary files. Its name cannot be guessed, so that no other
/// user can create it first.
fn new_folder() -> anyhow::Result<PathBuf> {
    let mut random = [0; 8];
    aws_lc_rs::rand::fill(&mut random)
        .map_err(|_| anyhow::anyhow!("the system gives no random numbers"))?;
    let name = format!("politesse-run-{:016x}", u64::from_be_bytes(random));
    // The command may change its folder, and must still find the files.
    let folder = std::path::absolute(std::env::temp_dir().join(name))?;
    let made = DirBuilder::new().mode(FOLDER_MODE).create(&folder);
    made.with_context(|| format!("cannot make {}; is TMPDIR right?", folder.display()))?;
    Ok(folder)
}

/// Errors that count as a missing file in [`read_first`].
const UNREADABLE: [ErrorKind; 4] = [
    ErrorKind::NotFound,
    ErrorKind::NotADirectory,
    ErrorKind::IsADirectory,
    ErrorKind::PermissionDenied,
];

/// Reads the first readable file of `paths`; returns nothing if none is readable. The
/// program itself could not read them either: HOME may be another user's, or /dev/null.
fn read_first(paths: &[PathBuf]) -> anyhow::Result<Vec<u8>> {
    for path in paths {
        match std::fs::read(path) {
            Ok(text) => return Ok(text),
            Err(error) if UNREADABLE.contains(&error.kind()) => {}
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
        }
    }
    Ok(Vec::new())
}

/// Quotes a path for a Java option; Java separates options by blanks.
pub(super) fn java_path(path: &Path) -> OsString {
    let text = path.as_os_str();
    if !path.to_string_lossy().contains(char::is_whitespace) {
        return text.to_owned();
    }
    let mut quoted = OsString::from("\"");
    quoted.push(text);
    quoted.push("\"");
    quoted
}
