//! Export of signed heads of the record to the targets in `audit.seal_to`: files,
//! commands and URLs that the operator controls, and that no one with access to the
//! record alone can change.
//!
//! Each target has its own task, which delivers the newest head: it covers everything
//! that earlier heads cover. A slow target gets fewer heads and delays no other. A head
//! that could not be delivered is retried, by the next process if need be.
//!
//! Does not know how heads are made.

use std::fs::OpenOptions;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, header};
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_util::task::TaskTracker;

use crate::config::Settings;
use politesse_base::metrics::{Metrics, ResultLabel};
use politesse_base::throttle::REPEATING;
use politesse_base::tls::{TlsSetupError, client_config};
use politesse_record::SealTarget;
use politesse_robots::origin::{Scheme, Target};

/// Timeout of one attempt. A stop waits for the attempt in progress and for one more.
const ATTEMPT_MAX: Duration = Duration::from_secs(10);

/// Pause after a failed attempt. It doubles with each failure, up to `LONGEST_PAUSE`.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// Bytes at the end of a file that are searched for its last head. A head is shorter.
const TAIL_BYTES: u64 = 4096;

/// Starts one task of `tracker` for each target of `settings`. The tasks export `heads`
/// and end after the last one, when the record is closed.
///
/// # Errors
///
/// [`TlsSetupError`] if a target is an `https` URL and there are no roots.
pub(super) fn start(
    settings: &Settings,
    heads: &watch::Receiver<Option<Arc<str>>>,
    metrics: &Arc<Metrics>,
    tracker: &TaskTracker,
) -> Result<(), TlsSetupError> {
    let targets = &settings.audit.seal.to;
    let needs_tls = |target: &SealTarget| match target {
        SealTarget::Url(url) => url.origin.scheme() == Scheme::Https,
        SealTarget::File(_) | SealTarget::Command(_) => false,
    };
    let tls = match targets.iter().any(needs_tls) {
        true => Some(Arc::new(client_config(&settings.upstream.tls.roots)?)),
        false => None,
    };
    for target in targets {
        let export = HeadExport {
            target: target.clone(),
            tls: tls.clone(),
            metrics: Arc::clone(metrics),
        };
        tracker.spawn(export.run(heads.clone()));
    }
    Ok(())
}

/// Export to one target.
struct HeadExport {
    target: SealTarget,
    tls: Option<Arc<ClientConfig>>,
    metrics: Arc<Metrics>,
}

impl HeadExport {
    /// Delivers heads until the record is closed.
    async fn run(self, mut heads: watch::Receiver<Option<Arc<str>>>) {
        let mut pause = FIRST_PAUSE;
        loop {
            let head = heads.borrow_and_update().clone();
            let is_delivered = match head {
                Some(head) => self.attempt(&head).await,
                None => true,
            };
            if is_delivered {
                pause = FIRST_PAUSE;
                if heads.changed().await.is_err() {
                    return;
                }
                continue;
            }
            // A newer head does not shorten the pause: it goes to the same failing
            // target.
            let wait = timeout(pause, async { while heads.changed().await.is_ok() {} });
            if wait.await.is_ok() {
                let last = heads.borrow().clone();
                if let Some(head) = last {
                    self.attempt(&head).await;
                }
                return;
            }
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    /// Tries to deliver `head`. Returns whether that succeeded.
    async fn attempt(&self, head: &Arc<str>) -> bool {
        let attempt = timeout(ATTEMPT_MAX, self.deliver(head)).await;
        let delivered = attempt.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let result = match &delivered {
            Ok(()) => "sent",
            Err(error) => {
                // Neither the URL nor the command is logged: both may hold a secret.
                let target = self.target.kind();
                tracing::warn!(
                    target: REPEATING, %error,
                    "a head of the record was not delivered to a {target} of audit.seal_to; it is \
                     tried again"
                );
                "failed"
            }
        };
        let exports = &self.metrics.audit_seals_exported;
        exports.get_or_create(&ResultLabel { result }).inc();
        delivered.is_ok()
    }

    async fn deliver(&self, head: &Arc<str>) -> io::Result<()> {
        match &self.target {
            SealTarget::File(path) => {
                let (path, head) = (path.clone(), Arc::clone(head));
                let appended = spawn_blocking(move || append(&path, &head));
                appended.await.map_err(io::Error::other)?
            }
            SealTarget::Command(command) => hand_over(command, head).await,
            SealTarget::Url(url) => self.post(url, head).await,
        }
    }

    /// Posts `head` to `url`. Redirects count as failures.
    async fn post(&self, url: &Target, head: &str) -> io::Result<()> {
        let origin = &url.origin;
        let address = format!("{}:{}", origin.host(), origin.port());
        let stream = TcpStream::connect(address).await?;
        let Some(tls) = self
            .tls
            .as_ref()
            .filter(|_| origin.scheme() == Scheme::Https)
        else {
            return exchange(stream, url, head).await;
        };
        let host = origin.host().to_string();
        let bare = host.trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(bare).map_err(io::Error::other)?;
        let secure = TlsConnector::from(Arc::clone(tls))
            .connect(name, stream)
            .await?;
        exchange(secure, url, head).await
    }
}

/// Posts `head` over an open connection.
async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    url: &Target,
    head: &str,
) -> io::Result<()> {
    let handshake = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(io::Error::other)?;
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    let request = Request::post(url.path_and_query())
        .header(header::HOST, url.origin.authority())
        .header(header::CONTENT_TYPE, text)
        .body(Full::new(Bytes::copy_from_slice(head.as_bytes())))
        .map_err(io::Error::other)?;
    let response = tokio::select! {
        response = sender.send_request(request) => response.map_err(io::Error::other)?,
        // The connection ends first only if no response came.
        ended = connection => return Err(match ended {
            Ok(()) => io::Error::from(io::ErrorKind::UnexpectedEof),
            Err(error) => io::Error::other(error),
        }),
    };
    match response.status() {
        status if status.is_success() => Ok(()),
        status => Err(io::Error::other(format!("the answer is {status}"))),
    }
}

/// Runs `command` in a shell, with `head` on its standard input.
async fn hand_over(command: &str, head: &str) -> io::Result<()> {
    let mut child = Command::new("/bin/sh")
        .args(["-c", command])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    if let Some(mut input) = child.stdin.take() {
        // A command that does not read its input is still judged by its exit code.
        input.write_all(head.as_bytes()).await.unwrap_or_default();
    }
    let status = child.wait().await?;
    match status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("it ended with {status}"))),
    }
}

/// Appends `head` to the file at `path`, unless it is already the last one there.
fn append(path: &Path, head: &str) -> io::Result<()> {
    // Opening a named pipe would block until another process reads it.
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut options = OpenOptions::new();
    let mut file = options.read(true).append(true).create(true).open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail)?;
    if tail.ends_with(head.as_bytes()) {
        return Ok(());
    }
    // A crash may have left half a head. A line break keeps it from spoiling this one.
    let is_torn = tail.last().is_some_and(|byte| *byte != b'\n');
    let text = format!("{}{head}", if is_torn { "\n" } else { "" });
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours: a head that was delivered before a stop is not repeated after it.
    #[test]
    fn a_head_is_appended_once_and_after_a_torn_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("heads.txt");
        for head in ["one\n", "one\n", "two\n"] {
            append(&path, head).unwrap();
        }
        let read = || std::fs::read_to_string(&path).unwrap();
        assert_eq!(read(), "one\ntwo\n");
        std::fs::write(&path, "one\ntw").unwrap();
        append(&path, "two\n").unwrap();
        assert_eq!(read(), "one\ntw\ntwo\n");
        assert!(append(folder.path(), "one\n").is_err());
    }
}
