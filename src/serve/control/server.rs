//! Holder's side of the control socket: the file, the socket, and a task for each
//! command that joins.
//!
//! Does not know how listeners are served: `commands` does.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::geteuid;
use tokio::net::UnixListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::instance::{Instance, SOCKET, SocketPath};
use super::{EndMessage, JoinMessage, MESSAGE_TIMEOUT, MessageStream, Reply};
use crate::config::Values;
use crate::serve::commands::{CommandError, CommandListener, Commands, loopback_listener};

/// Connections beyond `proxy.max_commands`, for commands that only check whether a
/// proxy is there and for those that are refused because the limit is reached.
const SPARE: usize = 32;

/// The open control socket. Dropping it removes the socket and the file.
#[derive(Debug)]
pub(crate) struct ControlServer {
    shared: Arc<ControlState>,
    tasks: TaskTracker,
    end: CancellationToken,
}

#[derive(Debug)]
struct ControlState {
    folder: PathBuf,
    instance: Mutex<Instance>,
    commands: Arc<Commands>,
}

impl ControlServer {
    /// Opens the socket in `folder` and writes `instance` there. Only the process that
    /// holds the folder's lock may call it: files of an earlier process are replaced.
    ///
    /// # Errors
    ///
    /// An error of the file system.
    pub(crate) fn open(
        folder: PathBuf,
        instance: Instance,
        commands: Arc<Commands>,
    ) -> io::Result<Self> {
        let socket = bind(&folder)?;
        instance.write(&folder)?;
        let shared = Arc::new(ControlState {
            folder,
            instance: Mutex::new(instance),
            commands,
        });
        let server = Self {
            shared,
            tasks: TaskTracker::new(),
            end: CancellationToken::new(),
        };
        server.accept(socket);
        Ok(server)
    }

    fn accept(&self, socket: UnixListener) {
        let (shared, tasks) = (Arc::clone(&self.shared), self.tasks.clone());
        let end = self.end.clone();
        self.tasks.spawn(async move {
            loop {
                let accepted = tokio::select! {
                    () = end.cancelled() => return,
                    accepted = socket.accept() => accepted,
                };
                match accepted {
                    Ok((stream, _)) => {
                        let lines = MessageStream::from(stream);
                        if shared.admits(&lines, tasks.len()) {
                            tasks.spawn(Arc::clone(&shared).converse(lines));
                        }
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept on the control socket");
                        tokio::time::sleep(MESSAGE_TIMEOUT).await;
                    }
                }
            }
        });
    }

    /// Updates the file with the `values` now in force.
    pub(crate) fn change(&self, values: &Values) {
        let mut instance = self.shared.instance();
        instance.configuration = values.digest().to_string();
        instance.keys = values.digests();
        if let Err(error) = instance.write(&self.shared.folder) {
            tracing::warn!(
                %error,
                "the file `instance` cannot be written: `politesse run` will not find this proxy"
            );
        }
    }

    /// Removes the file and the socket. Commands that have joined are still served.
    pub(crate) fn stop_accepting(&self) {
        // Only once: as soon as the lock on the record is free, another process may put
        // its own files there.
        if !self.end.is_cancelled() {
            self.end.cancel();
            remove(&self.shared.folder, self.shared.instance().pid);
        }
    }

    /// Waits until every command that has joined has received its counts.
    pub(crate) async fn ended(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.stop_accepting();
    }
}

impl ControlState {
    fn instance(&self) -> std::sync::MutexGuard<'_, Instance> {
        self.instance.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells whether the other side may join while `open` connections are open: it must
    /// be a process of this user or of the administrator.
    fn admits(&self, lines: &MessageStream, open: usize) -> bool {
        // The socket's permissions ensure the same, but not on every file system.
        let own = geteuid().as_raw();
        let is_known = lines
            .peer()
            .is_ok_and(|peer| peer.uid() == own || peer.uid() == 0);
        if !is_known {
            tracing::warn!("another user at the control socket, closed");
        }
        is_known && open <= self.commands.most().get().saturating_add(SPARE)
    }

    async fn converse(self: Arc<Self>, lines: MessageStream) {
        if let Err(error) = self.serve(lines).await {
            tracing::debug!(%error, "a command at the control socket has disconnected");
        }
    }

    /// Serves one command, from its first message to its counts.
    async fn serve(&self, mut lines: MessageStream) -> io::Result<()> {
        let Some(join) = timeout(MESSAGE_TIMEOUT, lines.next()).await?? else {
            return Ok(());
        };
        let descriptor = lines.take_descriptors().into_iter().next();
        let listener = match self.join(&join, descriptor) {
            Ok(listener) => listener,
            Err(reply) => return lines.send(&reply).await,
        };
        lines.send(&Reply::Joined).await?;
        tokio::select! {
            () = self.commands.stopping().cancelled() => {}
            ended = lines.next::<EndMessage>() => {
                if ended?.is_none() {
                    return Ok(());
                }
            }
        }
        // Only the end of the connection can come now. Then no one waits for the
        // counts, so requests in flight need not finish.
        let gone = async {
            let _ = lines.next::<EndMessage>().await;
        };
        let totals = listener.close(gone).await;
        lines.send(&Reply::Totals(totals)).await
    }

    fn join(
        &self,
        join: &JoinMessage,
        descriptor: Option<OwnedFd>,
    ) -> Result<CommandListener, Reply> {
        // A command must not run under rules that its user did not write, so a proxy
        // with another configuration is no substitute.
        if join.configuration != self.instance().configuration {
            return Err(Reply::OtherConfiguration);
        }
        let refused = |error: CommandError| match error {
            CommandError::Stopping => Reply::Stopping,
            CommandError::TooMany(_)
            | CommandError::NotALoopbackListener
            | CommandError::Listener(_) => Reply::Refused(error.to_string()),
        };
        let descriptor = descriptor
            .ok_or_else(|| Reply::Refused("the message came without a listener".to_owned()))?;
        let listener = loopback_listener(descriptor).map_err(refused)?;
        let crawl = join.crawl.clone();
        self.commands.open(listener, crawl).map_err(refused)
    }
}

/// Binds the socket in `folder`, with access for its owner only.
fn bind(folder: &Path) -> io::Result<UnixListener> {
    let socket = SocketPath::new(folder)?;
    match std::fs::remove_file(&socket.path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let listener = UnixListener::bind(&socket.path)?;
    // Others may be able to read the folder; the start only warns about that.
    std::fs::set_permissions(&socket.path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Removes the file and the socket of the process `pid` from `folder`.
///
/// Those of another process stay: if the folder of the record was moved away, another
/// proxy may hold a new record in a folder with the old name.
fn remove(folder: &Path, pid: u32) {
    if Instance::read(folder).is_ok_and(|instance| instance.pid != pid) {
        return;
    }
    Instance::remove(folder);
    // The next holder replaces a socket that no process listens on.
    let _ = std::fs::remove_file(folder.join(SOCKET));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use politesse_base::clock;

    fn instance_of(pid: u32, folder: &Path) -> Instance {
        Instance {
            pid,
            command: "serve".to_owned(),
            version: String::new(),
            started: clock::now(),
            listen: Vec::new(),
            admin: ([127, 0, 0, 1], 3129).into(),
            configuration: String::new(),
            keys: BTreeMap::new(),
            control: folder.join(SOCKET),
        }
    }

    // Ours.
    #[tokio::test]
    async fn a_proxy_that_stops_leaves_the_files_of_another_in_place() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let socket = folder.join(SOCKET);
        let _listener = bind(folder).unwrap();
        instance_of(2, folder).write(folder).unwrap();
        remove(folder, 1);
        assert_eq!(Instance::read(folder).unwrap().pid, 2);
        assert!(socket.exists());
        remove(folder, 2);
        assert!(Instance::read(folder).is_err());
        assert!(!socket.exists());
    }
}
