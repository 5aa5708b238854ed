//! Joining side of the control socket: hands a listener over to the proxy that holds
//! the audit record.
//!
//! Does not know how the holder serves it.

use std::io;
use std::os::fd::AsFd as _;
use std::os::fd::OwnedFd;
use std::path::Path;

use thiserror::Error;
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::instance::SocketPath;
use super::{EndMessage, JoinMessage, MESSAGE_TIMEOUT, MessageStream, Reply, line, send};
use politesse_decision::digest::Digest;
use politesse_decision::label::CrawlOptions;
use politesse_proxy::tally::Totals;

/// Reason why the holder does not serve a listener.
#[derive(Debug, Error)]
pub enum JoinError {
    /// There is no answer at the socket, or not a holder's: the holder is starting,
    /// stopping, or gone.
    #[error("the control socket does not answer")]
    NoAnswer(#[from] io::Error),
    /// The holder has a different configuration.
    #[error("it has another configuration")]
    OtherConfiguration,
    /// The holder is about to stop.
    #[error("it is stopping")]
    Stopping,
    /// The holder refuses, for the given reason.
    #[error("{0}")]
    Refused(String),
}

/// A connection to the process that holds an audit record.
#[derive(Debug)]
pub struct Holder(UnixStream);

impl Holder {
    /// Connects to the holder of the record in `folder`.
    ///
    /// # Errors
    ///
    /// [`JoinError::NoAnswer`].
    pub async fn connect(folder: &Path) -> Result<Self, JoinError> {
        let socket = SocketPath::new(folder)?;
        Ok(Self(UnixStream::connect(&socket.path).await?))
    }

    /// Hands `listener` over, for a command of this configuration whose requests are
    /// recorded under `crawl`. The caller's own descriptor is closed, so that the
    /// listener ends with the holder.
    ///
    /// # Errors
    ///
    /// [`JoinError`].
    pub async fn join(
        self,
        listener: OwnedFd,
        configuration: Digest,
        crawl: CrawlOptions,
    ) -> Result<JoinedListener, JoinError> {
        let join = JoinMessage {
            configuration: configuration.to_string(),
            crawl,
        };
        let message = line(&join)?;
        self.0.writable().await?;
        send(&self.0, &message, &[listener.as_fd()])?;
        drop(listener);
        let mut lines = MessageStream::from(self.0);
        let reply = timeout(MESSAGE_TIMEOUT, lines.next()).await;
        match reply.map_err(io::Error::from)?? {
            Some(Reply::Joined) => Ok(JoinedListener {
                lines,
                totals: None,
            }),
            Some(Reply::OtherConfiguration) => Err(JoinError::OtherConfiguration),
            Some(Reply::Stopping) => Err(JoinError::Stopping),
            Some(Reply::Refused(reason)) => Err(JoinError::Refused(reason)),
            Some(Reply::Totals(_)) | None => {
                Err(JoinError::NoAnswer(io::ErrorKind::UnexpectedEof.into()))
            }
        }
    }
}

/// A listener that the holder serves.
#[derive(Debug)]
pub struct JoinedListener {
    lines: MessageStream,
    /// The counts, if the holder stopped before the command did.
    totals: Option<Totals>,
}

impl JoinedListener {
    /// Waits until the holder stops serving the listener on its own initiative.
    pub async fn lost(&mut self) {
        // The holder now sends only its totals. Any other result means too that it no
        // longer serves the listener.
        if let Ok(Some(Reply::Totals(totals))) = self.lines.next().await {
            self.totals = Some(totals);
        }
    }

    /// Ends the listener and returns the counts of its requests; `None` if the holder
    /// was killed.
    pub async fn finish(mut self) -> Option<Totals> {
        if self.totals.is_some() {
            return self.totals;
        }
        self.lines.send(&EndMessage {}).await.ok()?;
        match self.lines.next().await {
            Ok(Some(Reply::Totals(totals))) => Some(totals),
            Ok(_) | Err(_) => None,
        }
    }
}
