//! Addresses of this proxy's own listeners. A request that could reach them
//! through the proxy would reach /metrics, or go in a circle.
//!
//! Does not know how listeners are opened.

use std::collections::HashMap;
use std::io;
use std::iter::once;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::time::Instant;

use crate::addresses::ipv4_within;
use politesse_base::clock;

/// Time for which it is remembered whether an address is local. A check takes
/// 12 µs, and interfaces come and go.
const LOCAL_TTL: Duration = Duration::from_secs(1);
/// Addresses that are remembered; beyond, all are checked anew.
const LOCAL_MAX: usize = 1024;

/// Addresses of this proxy's listeners. Clones share one list, so that a
/// listener opened later is known to every [`Egress`](super::Egress) at once,
/// also to one that a reload is about to put in force.
#[derive(Debug, Clone)]
pub struct OwnAddresses(Arc<ArcSwap<Vec<SocketAddr>>>);

impl From<Vec<SocketAddr>> for OwnAddresses {
    fn from(addresses: Vec<SocketAddr>) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(addresses)))
    }
}

impl OwnAddresses {
    /// Adds the address of a listener that was opened.
    pub fn add(&self, address: SocketAddr) {
        self.0.rcu(|list| {
            let mut list = Vec::clone(list);
            list.push(address);
            list
        });
    }

    /// Removes the address of a listener that was closed. Of two listeners with
    /// one address (in two network namespaces) the other stays.
    pub fn remove(&self, address: SocketAddr) {
        self.0.rcu(|list| {
            let mut list = Vec::clone(list);
            if let Some(place) = list.iter().position(|own| *own == address) {
                list.swap_remove(place);
            }
            list
        });
    }
}

/// Own listeners, known once they are bound.
#[derive(Debug, Default)]
pub(super) struct OwnListeners {
    bound: OnceLock<OwnAddresses>,
    local: Mutex<HashMap<IpAddr, LocalityCheck>>,
}

/// Result of checking whether an address is local.
#[derive(Debug, Clone, Copy)]
struct LocalityCheck {
    local: bool,
    until: Instant,
}

impl OwnListeners {
    pub(super) fn set(&self, own: OwnAddresses) {
        self.bound.get_or_init(|| own);
    }

    /// Reports whether a connection to `address` may end at one of the
    /// listeners.
    pub(super) fn are_reached_at(&self, address: SocketAddr) -> bool {
        // Commands that fetch without serving have no listener to protect.
        let Some(own) = self.bound.get() else {
            return false;
        };
        // The port first: nearly all addresses go no further.
        own.0
            .load()
            .iter()
            .filter(|listener| listener.port() == address.port())
            .any(|listener| {
                let mut forms = once(address.ip()).chain(ipv4_within(address.ip()).map(IpAddr::V4));
                forms.any(|ip| self.reaches(ip, listener.ip().to_canonical()))
            })
    }

    /// Reports whether an address leads to a listener that is bound to `bound`.
    ///
    /// Loopback and unspecified addresses count whatever it is bound to:
    /// several of them lead to the same socket.
    fn reaches(&self, ip: IpAddr, bound: IpAddr) -> bool {
        ip == bound
            || ip.is_loopback()
            || ip.is_unspecified()
            || (bound.is_unspecified() && self.is_local(ip))
    }

    fn is_local(&self, ip: IpAddr) -> bool {
        let now = clock::instant();
        let mut known = self.local.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(one) = known.get(&ip).filter(|one| now < one.until) {
            return one.local;
        }
        // All at once: to find the oldest would cost more than the checks that
        // it saves.
        if LOCAL_MAX <= known.len() {
            known.clear();
        }
        let local = is_ours(&UdpSocket::bind((ip, 0)));
        let until = now + LOCAL_TTL;
        known.insert(ip, LocalityCheck { local, until });
        local
    }
}

/// Reports whether an address is local, to which a socket was or was not bound.
/// Another error, such as a lack of descriptors, tells nothing, and in doubt
/// the address counts as local.
fn is_ours<T>(bound: &io::Result<T>) -> bool {
    bound
        .as_ref()
        .err()
        .is_none_or(|error| error.kind() != io::ErrorKind::AddrNotAvailable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(listener: &str) -> OwnListeners {
        let own = OwnListeners::default();
        own.set(vec![listener.parse().unwrap()].into());
        own
    }

    // ours: an address that comes is found out, and floods are forgotten.
    #[tokio::test(start_paused = true)]
    async fn what_is_remembered_ends_and_is_bounded() {
        let own = on("0.0.0.0:3128");
        let elsewhere: SocketAddr = "93.184.216.34:3128".parse().unwrap();
        assert!(!own.are_reached_at(elsewhere));
        let come = |until| LocalityCheck { local: true, until };
        let set = |known| own.local.lock().unwrap().insert(elsewhere.ip(), known);
        set(come(clock::instant() + LOCAL_TTL));
        assert!(own.are_reached_at(elsewhere));
        tokio::time::advance(LOCAL_TTL).await;
        assert!(!own.are_reached_at(elsewhere));
        for number in 0..2000_u32 {
            own.are_reached_at(SocketAddr::new(
                IpAddr::V4((0x5000_0000 + number).into()),
                3128,
            ));
            assert!(own.local.lock().unwrap().len() <= LOCAL_MAX);
        }
    }

    // Ours: a shortage of descriptors must not open the way to them for the
    // second that an answer is remembered.
    #[test]
    fn in_doubt_an_address_is_ours() {
        let failed = |number| Err::<(), _>(io::Error::from_raw_os_error(number));
        let too_many_open_files = 24;
        assert!(is_ours(&failed(too_many_open_files)));
        assert!(is_ours(&Ok(())));
        let elsewhere: IpAddr = "93.184.216.34".parse().unwrap();
        assert!(!is_ours(&UdpSocket::bind((elsewhere, 0))));
    }

    // ours: a listener opened for a command of `run` is closed again.
    #[test]
    fn a_listener_opened_later_counts_until_it_is_closed() {
        let own = OwnListeners::default();
        let addresses = OwnAddresses::from(Vec::new());
        own.set(addresses.clone());
        let listener: SocketAddr = "127.0.0.1:3128".parse().unwrap();
        addresses.add(listener);
        addresses.add(listener);
        addresses.remove(listener);
        assert!(own.are_reached_at(listener));
        addresses.remove(listener);
        assert!(!own.are_reached_at(listener));
    }

    // ours: whoever asks for another port costs nothing.
    #[test]
    fn other_ports_are_not_found_out() {
        let own = on("0.0.0.0:3128");
        assert!(!own.are_reached_at("127.0.0.1:80".parse().unwrap()));
        assert!(own.are_reached_at("127.0.0.1:3128".parse().unwrap()));
        assert!(own.local.lock().unwrap().is_empty());
    }
}
