//! JSON objects, one a line, over a Unix socket. A line has a bound.

use std::io;
use std::os::fd::OwnedFd;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;

use super::{MESSAGE_BYTES_MAX, descriptors};

/// Descriptors that may lie unread beside the bytes.
const DESCRIPTORS_MAX: usize = 3;

/// A socket with what was received and not taken yet.
#[derive(Debug)]
pub(crate) struct Lines {
    stream: UnixStream,
    received: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

impl From<UnixStream> for Lines {
    fn from(stream: UnixStream) -> Self {
        Self {
            stream,
            received: Vec::new(),
            descriptors: Vec::new(),
        }
    }
}

impl Lines {
    /// The next message; none if the other side has closed. Nothing is lost if
    /// the future is dropped before it is done.
    ///
    /// # Errors
    ///
    /// `InvalidData` for a message that is too long or not understood.
    pub(crate) async fn next<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        loop {
            if let Some(line) = self.take_line() {
                return Ok(Some(serde_json::from_slice(&line)?));
            }
            if MESSAGE_BYTES_MAX <= self.received.len() {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let (piece, descriptors) = descriptors::receive(&self.stream).await?;
            if piece.is_empty() {
                return Ok(None);
            }
            self.received.extend(piece);
            self.descriptors.extend(descriptors);
            self.descriptors.truncate(DESCRIPTORS_MAX);
        }
    }

    /// The descriptors that came with the messages so far, in order.
    pub(crate) fn take_descriptors(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.descriptors)
    }

    /// Sends a message.
    ///
    /// # Errors
    ///
    /// The socket's.
    pub(crate) async fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        self.stream.write_all(&line(message)?).await
    }

    /// Who is at the other end, as the system says.
    ///
    /// # Errors
    ///
    /// The socket's.
    pub(crate) fn peer(&self) -> io::Result<tokio::net::unix::UCred> {
        self.stream.peer_cred()
    }

    fn take_line(&mut self) -> Option<Vec<u8>> {
        let end = memchr::memchr(b'\n', &self.received)?;
        let rest = self.received.split_off(end + 1);
        Some(std::mem::replace(&mut self.received, rest))
    }
}

/// A message as it is sent.
pub(crate) fn line(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}
