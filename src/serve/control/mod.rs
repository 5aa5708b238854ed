//! Control socket: how `politesse run` finds the proxy that holds an audit record, and
//! hands it a listener.
//!
//! A file (`instance`) and a Unix socket lie beside the lock on the record; only their
//! owner may use them. A command finds its proxy there and never by a port, because the
//! proxy on a port may have another configuration. The messages on the socket, one JSON
//! object per line:
//!
//! 1. The joining side sends `JoinMessage` with a listening socket (`SCM_RIGHTS`).
//! 2. The holder replies `Reply::Joined`, or the reason for a refusal, and closes.
//! 3. The joining side sends `EndMessage` when its command has ended. If it closes the
//!    connection instead, the holder sends no counts.
//! 4. The holder sends `Reply::Totals`, and closes. If the proxy stops, it does so
//!    without an `EndMessage`.
//!
//! The holder is the proxy that holds the record (`server`); the joining side is
//! `politesse run` (`joining`). This file defines the messages, and sends and receives
//! them together with file descriptors (unix(7)). It does not know their order.

pub mod instance;
pub mod joining;
pub(super) mod server;

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncWriteExt as _, Interest};
use tokio::net::UnixStream;

use politesse_decision::label::CrawlOptions;
use politesse_proxy::tally::Totals;

/// Maximum size of one message in bytes. The longest is [`Totals`]: ten rules, each
/// truncated.
const MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// Timeout for a message that the other side can send without waiting.
pub(super) const MESSAGE_TIMEOUT: Duration = Duration::from_secs(5);

/// First message from the joining side.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct JoinMessage {
    /// SHA-256 of the command's configuration.
    pub(super) configuration: String,
    /// Crawl that the command's requests belong to.
    pub(super) crawl: CrawlOptions,
}

/// Message that the command has ended and asks for the counts.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct EndMessage {}

/// Message from the holder.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Reply {
    /// The listener is served.
    Joined,
    /// The command's configuration differs from the holder's.
    OtherConfiguration,
    /// The proxy is about to stop; another may be available soon.
    Stopping,
    /// The listener is not served, for this reason.
    Refused(String),
    /// The counts of the command's requests.
    Totals(Totals),
}

/// Bytes that [`receive`] reads at a time. A message with descriptors is far shorter.
const PIECE: usize = 4096;
/// Bytes of the control buffer (cmsg(3)) for the descriptors of one message:
/// [`DESCRIPTORS_MAX`] of them.
const SPACE: usize = rustix::cmsg_space!(ScmRights(3));

/// Maximum number of descriptors received and not yet taken.
const DESCRIPTORS_MAX: usize = 3;

/// A socket, with the bytes and descriptors that were received and not yet read.
#[derive(Debug)]
pub(crate) struct MessageStream {
    stream: UnixStream,
    received: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

impl From<UnixStream> for MessageStream {
    fn from(stream: UnixStream) -> Self {
        Self {
            stream,
            received: Vec::new(),
            descriptors: Vec::new(),
        }
    }
}

impl MessageStream {
    /// Reads the next message; `None` if the other side has closed. Cancel-safe:
    /// dropping the future loses nothing.
    ///
    /// # Errors
    ///
    /// `InvalidData` for a message that is too long or not understood.
    pub(crate) async fn next<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        loop {
            if let Some(line) = self.take_line() {
                return Ok(Some(serde_json::from_slice(&line)?));
            }
            // A peer that never ends its line must not exhaust our memory.
            if MESSAGE_BYTES_MAX <= self.received.len() {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let (piece, descriptors) = receive(&self.stream).await?;
            if piece.is_empty() {
                return Ok(None);
            }
            self.received.extend(piece);
            self.descriptors.extend(descriptors);
            // Truncating closes the rest: a peer must not exhaust this process's
            // descriptors.
            self.descriptors.truncate(DESCRIPTORS_MAX);
        }
    }

    /// Takes the descriptors received so far, in order.
    pub(crate) fn take_descriptors(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.descriptors)
    }

    /// Sends a message.
    ///
    /// # Errors
    ///
    /// An error of the socket.
    pub(crate) async fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        self.stream.write_all(&line(message)?).await
    }

    /// Returns the process and user at the other end, as the system reports them.
    ///
    /// # Errors
    ///
    /// An error of the socket.
    pub(crate) fn peer(&self) -> io::Result<tokio::net::unix::UCred> {
        self.stream.peer_cred()
    }

    fn take_line(&mut self) -> Option<Vec<u8>> {
        let end = self.received.iter().position(|byte| *byte == b'\n')?;
        let rest = self.received.split_off(end + 1);
        Some(std::mem::replace(&mut self.received, rest))
    }
}

/// Writes a message as a line of JSON.
///
/// # Errors
///
/// A message that JSON cannot express.
pub(crate) fn line(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

/// Sends `message`, with up to three `descriptors` beside its first byte.
///
/// # Errors
///
/// An error of the socket, or `WriteZero` if the socket accepts only part of the
/// message, which a Unix socket with an empty buffer does not do to a short message.
pub(crate) fn send(
    socket: impl AsFd,
    message: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !beside.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let bytes = [IoSlice::new(message)];
    let sent = sendmsg(socket, &bytes, &mut beside, SendFlags::NOSIGNAL)?;
    if sent == message.len() {
        Ok(())
    } else {
        Err(io::ErrorKind::WriteZero.into())
    }
}

/// Receives at most [`PIECE`] bytes, with the descriptors that were sent beside them.
/// The kernel closes any descriptors past [`DESCRIPTORS_MAX`].
pub(crate) async fn receive(stream: &UnixStream) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let received = stream.async_io(Interest::READABLE, || {
        let mut piece = [0; PIECE];
        let mut space = [MaybeUninit::uninit(); SPACE];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = [IoSliceMut::new(&mut piece)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let length = recvmsg(stream, &mut bytes, &mut beside, flags)?.bytes;
        let mut descriptors = Vec::new();
        for message in beside.drain() {
            if let RecvAncillaryMessage::ScmRights(some) = message {
                descriptors.extend(some);
            }
        }
        Ok((piece[..length].to_vec(), descriptors))
    });
    received.await
}
