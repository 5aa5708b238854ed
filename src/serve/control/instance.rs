//! The file `instance` in the folder of an audit record: which process holds the
//! record, its configuration, and its addresses.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::config::Values;

/// Name of the control socket in the folder of the record.
pub(crate) const SOCKET: &str = "instance.sock";
/// Name of the file.
const FILE: &str = "instance";
/// Name of the file while it is written, before it replaces the previous one.
const NEW_FILE: &str = "instance.new";
/// Maximum size of the file in bytes; ours has about 10 KiB.
const FILE_BYTES_MAX: u64 = 256 * 1024;
/// Longest Unix socket path that all systems accept (macOS: 104 with the final zero).
const SOCKET_PATH_MAX: usize = 103;

/// A process that holds an audit record, as its file describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// Process ID.
    pub pid: u32,
    /// Command that started the process: `serve` or `run`.
    pub command: String,
    /// Version of the program.
    pub version: String,
    /// Start time.
    pub started: Timestamp,
    /// Addresses for crawlers.
    pub listen: Vec<SocketAddr>,
    /// Address of the admin listener.
    pub admin: SocketAddr,
    /// SHA-256 of the configuration in force.
    pub configuration: String,
    /// SHA-256 of each key's value, so that a command with another configuration can
    /// name the keys that differ.
    pub keys: BTreeMap<String, String>,
    /// Path of the control socket.
    pub control: PathBuf,
}

/// Reason why the holder of an audit record is unknown.
#[derive(Debug, Error)]
pub enum InstanceError {
    /// The file does not exist: the holder is starting or stopping, or is a version
    /// that writes no such file.
    #[error("{} is not there", .0.display())]
    Missing(PathBuf),
    /// The file may not be the holder's: another user owns it or can write it.
    #[error("{} cannot be trusted: it belongs to another user, or others may write it", .0.display())]
    Foreign(PathBuf),
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why it cannot be read.
        source: io::Error,
    },
}

impl Instance {
    /// Reads the file in `folder`.
    ///
    /// # Errors
    ///
    /// [`InstanceError`]. A file that another version wrote in another format gives
    /// [`InstanceError::Read`].
    pub fn read(folder: &Path) -> Result<Self, InstanceError> {
        let path = folder.join(FILE);
        let text = match read_trusted(folder, &path) {
            Ok(Some(text)) => text,
            Ok(None) => return Err(InstanceError::Foreign(path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(InstanceError::Missing(path));
            }
            Err(source) => return Err(InstanceError::Read { path, source }),
        };
        serde_json::from_str(&text).map_err(|source| InstanceError::Read {
            path,
            source: source.into(),
        })
    }

    /// Writes the file in `folder`, whole or not at all.
    ///
    /// # Errors
    ///
    /// An error of the file system.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        let new = folder.join(NEW_FILE);
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new)?;
        file.write_all(&serde_json::to_vec_pretty(self)?)?;
        file.write_all(b"\n")?;
        // A rename replaces the file in one step, so that a reader never sees half of
        // it.
        fs::rename(new, folder.join(FILE))
    }

    /// Removes the file from `folder`.
    pub(super) fn remove(folder: &Path) {
        // A file left behind does no harm: no process holds the lock on its record.
        let _ = fs::remove_file(folder.join(FILE));
    }

    /// Returns the keys whose values differ from `values`, in alphabetical order.
    #[must_use]
    pub fn keys_that_differ(&self, values: &Values) -> Vec<String> {
        let own = values.digests();
        let names: std::collections::BTreeSet<_> = self.keys.keys().chain(own.keys()).collect();
        names
            .into_iter()
            .filter(|name| self.keys.get(*name) != own.get(*name))
            .cloned()
            .collect()
    }
}

/// Reads the text of the file, unless an untrusted user can have written it: its owner
/// must be this user, the administrator, or the owner of the record.
fn read_trusted(folder: &Path, path: &Path) -> io::Result<Option<String>> {
    let file = File::open(path)?;
    // Queried from the open descriptor, so that the file cannot be swapped in between.
    let (own, record) = (file.metadata()?, fs::metadata(folder)?);
    let owners = [geteuid().as_raw(), 0, record.uid()];
    if !own.is_file() || !owners.contains(&own.uid()) || own.mode() & 0o022 != 0 {
        return Ok(None);
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(Some(text))
}

/// Path of the control socket in a folder.
pub(super) struct SocketPath {
    /// The path to bind or to connect to.
    pub(super) path: PathBuf,
    /// Keeps the folder's descriptor open while the path refers to it.
    _folder: Option<File>,
}

impl SocketPath {
    /// Returns the path of the socket in `folder`. If it is too long for a socket
    /// address, the path goes through the folder's descriptor.
    pub(super) fn new(folder: &Path) -> io::Result<Self> {
        let path = folder.join(SOCKET);
        if path.as_os_str().len() <= SOCKET_PATH_MAX {
            return Ok(Self {
                path,
                _folder: None,
            });
        }
        let folder = File::open(folder)?;
        let path = format!("/proc/self/fd/{}/{SOCKET}", folder.as_raw_fd());
        Ok(Self {
            path: path.into(),
            _folder: Some(folder),
        })
    }
}
