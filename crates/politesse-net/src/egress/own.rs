//! Addresses of the proxy's own listeners. A request that reached them through the proxy
//! could read /metrics or loop.
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

/// Time for which the locality of an address is cached. A check takes 12 µs, and
/// interfaces change.
const LOCAL_TTL: Duration = Duration::from_secs(1);
/// Maximum number of cached addresses. When it is reached, the cache is cleared.
const LOCAL_MAX: usize = 1024;

/// Addresses of the proxy's listeners. All clones share one list, so that every
/// [`Egress`](super::Egress) learns about a new listener at once, including one that a
/// reload is about to activate.
#[derive(Debug, Clone)]
pub struct OwnAddresses(Arc<ArcSwap<Vec<SocketAddr>>>);

impl From<Vec<SocketAddr>> for OwnAddresses {
    fn from(addresses: Vec<SocketAddr>) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(addresses)))
    }
}

impl OwnAddresses {
    /// Adds the address of an opened listener.
    pub fn add(&self, address: SocketAddr) {
        self.0.rcu(|list| {
            let mut list = Vec::clone(list);
            list.push(address);
            list
        });
    }

    /// Removes the address of a closed listener once. If two listeners have the same
    /// address (in two network namespaces), the other one remains.
    pub fn remove(&self, address: SocketAddr) {
        self.0.rcu(|list| {
            let mut list = Vec::clone(list);
            if let Some(index) = list.iter().position(|own| *own == address) {
                list.swap_remove(index);
            }
            list
        });
    }
}

/// Own listeners, set once they are bound.
#[derive(Debug, Default)]
pub(super) struct OwnListeners {
    bound: OnceLock<OwnAddresses>,
    /// Cached checks by address.
    local: Mutex<HashMap<IpAddr, LocalityCheck>>,
}

/// Cached result of checking whether an address is local.
#[derive(Debug, Clone, Copy)]
struct LocalityCheck {
    local: bool,
    /// End of the time for which the result is cached.
    until: Instant,
}

impl OwnListeners {
    pub(super) fn set(&self, own: OwnAddresses) {
        self.bound.get_or_init(|| own);
    }

    /// Reports whether a connection to `address` could reach one of the listeners.
    pub(super) fn are_reached_at(&self, address: SocketAddr) -> bool {
        // Commands that fetch but do not serve have no listener to protect.
        let Some(own) = self.bound.get() else {
            return false;
        };
        // The port is compared first, because nearly all addresses differ in it.
        own.0
            .load()
            .iter()
            .filter(|listener| listener.port() == address.port())
            .any(|listener| {
                let mut forms = once(address.ip()).chain(ipv4_within(address.ip()).map(IpAddr::V4));
                forms.any(|ip| self.reaches(ip, listener.ip().to_canonical()))
            })
    }

    /// Reports whether an address leads to a listener bound to `bound`.
    ///
    /// Loopback and unspecified addresses always count: several of them lead to the same
    /// socket.
    fn reaches(&self, ip: IpAddr, bound: IpAddr) -> bool {
        ip == bound
            || ip.is_loopback()
            || ip.is_unspecified()
            || (bound.is_unspecified() && self.is_local(ip))
    }

    fn is_local(&self, ip: IpAddr) -> bool {
        let now = clock::instant();
        let mut known = self.local.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(check) = known.get(&ip).filter(|check| now < check.until) {
            return check.local;
        }
        // Cleared completely, because finding the oldest would cost more than the checks
        // that it saves.
        if LOCAL_MAX <= known.len() {
            known.clear();
        }
        let local = counts_as_local(&UdpSocket::bind((ip, 0)));
        let until = now + LOCAL_TTL;
        known.insert(ip, LocalityCheck { local, until });
        local
    }
}

/// Reports whether an address is local, given the result of binding a socket to it.
/// Errors other than "not available", such as a lack of descriptors, are inconclusive,
/// and the address then counts as local.
fn counts_as_local<T>(bound: &io::Result<T>) -> bool {
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

    // Ours: an address that becomes local is noticed, and a flood cannot fill the cache.
    #[tokio::test(start_paused = true)]
    async fn cached_checks_expire_and_are_bounded() {
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

    // Ours: a shortage of descriptors must not expose the listeners for the second that
    // an answer is cached.
    #[test]
    fn an_inconclusive_check_counts_as_local() {
        let failed = |number| Err::<(), _>(io::Error::from_raw_os_error(number));
        let too_many_open_files = 24;
        assert!(counts_as_local(&failed(too_many_open_files)));
        assert!(counts_as_local(&Ok(())));
        let elsewhere: IpAddr = "93.184.216.34".parse().unwrap();
        assert!(!counts_as_local(&UdpSocket::bind((elsewhere, 0))));
    }

    // Ours: a listener opened for a command of `run` is closed again.
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

    // Ours: requests to other ports cost no check.
    #[test]
    fn addresses_with_other_ports_are_not_checked() {
        let own = on("0.0.0.0:3128");
        assert!(!own.are_reached_at("127.0.0.1:80".parse().unwrap()));
        assert!(own.are_reached_at("127.0.0.1:3128".parse().unwrap()));
        assert!(own.local.lock().unwrap().is_empty());
    }
}
