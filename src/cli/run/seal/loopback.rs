//! Loopback interface of a new network namespace: brings it up (rtnetlink(7)).
//!
//! A new namespace has the interface, but it is down, so that no process can listen on
//! 127.0.0.1. Does not know the command.

use std::io;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::net::{recv, sendto, socket_with};

/// Index of the loopback interface, the first one of every network namespace.
const LOOPBACK_INDEX: i32 = 1;
/// `RTM_NEWLINK`, which also changes an existing interface.
const NEW_LINK: u16 = 16;
/// `NLMSG_ERROR`, which reports success with error number 0.
const ERROR: u16 = 2;
/// `NLM_F_REQUEST` and `NLM_F_ACK`.
const FLAGS: u16 = 1 | 4;
/// `IFF_UP`.
const UP: u32 = 1;
/// Bytes of a message header (`struct nlmsghdr`).
const HEAD: usize = 16;
/// Bytes of the request (`struct ifinfomsg`).
const LINK: usize = 16;

/// Brings the interface up. The system then gives it 127.0.0.1 and ::1.
pub(super) fn bring_up() -> io::Result<()> {
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        // NETLINK_ROUTE is protocol number 0, written as `None`.
        None,
    )?;
    let system = SocketAddrNetlink::new(0, 0);
    sendto(&socket, &request(), SendFlags::empty(), &system)?;
    let mut answer = [0; 1024];
    let (length, _) = recv(&socket, &mut answer, RecvFlags::empty())?;
    result(&answer[..length])
}

fn request() -> Vec<u8> {
    let mut message = Vec::with_capacity(HEAD + LINK);
    let length = (HEAD + LINK) as u32;
    message.extend(length.to_ne_bytes());
    message.extend(NEW_LINK.to_ne_bytes());
    message.extend(FLAGS.to_ne_bytes());
    // Number and sender: there is one message, and the system fills in the sender.
    message.extend([0; 8]);
    // Family, padding and type of the interface: any.
    message.extend([0; 4]);
    message.extend(LOOPBACK_INDEX.to_ne_bytes());
    message.extend(UP.to_ne_bytes());
    // Mask of the flags to change.
    message.extend(UP.to_ne_bytes());
    message
}

fn result(answer: &[u8]) -> io::Result<()> {
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok());
    let error = answer
        .get(HEAD..HEAD + 4)
        .and_then(|bytes| bytes.try_into().ok());
    match (kind.map(u16::from_ne_bytes), error.map(i32::from_ne_bytes)) {
        (Some(ERROR), Some(0)) => Ok(()),
        (Some(ERROR), Some(number)) => Err(io::Error::from_raw_os_error(-number)),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // netlink(7): NLMSG_ERROR holds the negated number of the error.
    #[test]
    fn an_answer_gives_success_or_its_error() {
        let answer = |kind: u16, number: i32| {
            let mut bytes = vec![0; HEAD];
            bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
            bytes.extend(number.to_ne_bytes());
            result(&bytes)
        };
        assert!(answer(ERROR, 0).is_ok());
        assert_eq!(answer(ERROR, -1).unwrap_err().raw_os_error(), Some(1));
        assert!(answer(NEW_LINK, 0).is_err());
        assert!(result(&[]).is_err());
        assert_eq!(request().len(), 32);
    }
}
