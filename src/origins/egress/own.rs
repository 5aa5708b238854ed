//! The addresses at which this proxy itself listens. Whoever could reach them
//! through us would reach /metrics, or send requests in a circle.

use std::iter::once;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::OnceLock;

use crate::origins::addresses::ipv4_within;

/// Our own listeners, known once they are bound.
#[derive(Debug, Default)]
pub(super) struct OwnListeners(OnceLock<Vec<SocketAddr>>);

impl OwnListeners {
    pub(super) fn set(&self, own: Vec<SocketAddr>) {
        self.0.get_or_init(|| own);
    }

    /// Whether a connection to `address` may end at one of them.
    pub(super) fn are_reached_at(&self, address: SocketAddr) -> bool {
        let own = self.0.get().map_or(&[][..], Vec::as_slice);
        // The port first: nearly all addresses go no further.
        own.iter()
            .filter(|listener| listener.port() == address.port())
            .any(|listener| {
                let mut forms = once(address.ip()).chain(ipv4_within(address.ip()).map(IpAddr::V4));
                forms.any(|ip| reaches(ip, listener.ip().to_canonical()))
            })
    }
}

/// Whether an address leads to a listener that is bound to `bound`.
///
/// Loopback and unspecified addresses count whatever it is bound to: several
/// of them lead to the same socket.
fn reaches(ip: IpAddr, bound: IpAddr) -> bool {
    ip == bound
        || ip.is_loopback()
        || ip.is_unspecified()
        || (bound.is_unspecified() && is_local(ip))
}

/// Whether an address is one of this machine: only those can be bound to.
/// Nothing is sent. Asked anew each time, since interfaces come and go; it
/// takes a few microseconds, and only the ports of our own listeners ask.
fn is_local(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}
