//! Passing descriptors beside a message (`SCM_RIGHTS`, unix(7)).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tokio::io::Interest;
use tokio::net::UnixStream;

/// Bytes that are read at a time. A message with descriptors is far shorter.
const PIECE: usize = 4096;
/// Bytes for the descriptors of one message.
const SPACE: usize = rustix::cmsg_space!(ScmRights(3));

/// Sends `message` with `descriptors`, three at most, beside its first byte.
///
/// # Errors
///
/// The socket's, and `WriteZero` if the socket took a part only, which a Unix
/// socket with an empty buffer does not do to a short message.
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

/// Receives some bytes, with the descriptors that were sent beside them. A
/// fourth descriptor has no room and is closed by the system.
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
