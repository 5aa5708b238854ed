//! TCP connections to the addresses of an origin: Happy Eyeballs (RFC 8305).
//!
//! A dead address delays one connection by 250 ms, but not the next ones to the same
//! host. Does not know names, or which addresses may be dialled.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use rustix::io::Errno;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, timeout_at};

use super::staggered::first_success;
use politesse_base::clock;
use politesse_base::descriptors::{self, ReservePlace};
use politesse_base::throttle::REPEATING;
use politesse_decision::access::NoConnection;
use politesse_robots::origin::Host;

/// Delay before the next address is tried in parallel (RFC 8305, section 8).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Maximum number of hosts whose address is remembered. An evicted host costs
/// [`ATTEMPT_DELAY`].
const HOSTS_MAX: u64 = 4096;

/// Dials addresses, and remembers the one that answered.
#[derive(Debug)]
pub(super) struct Dialler {
    /// Address that answered most recently, for hosts with several addresses.
    answered: Cache<Host, IpAddr>,
}

/// Addresses to dial.
#[derive(Debug, Clone, Copy)]
pub(super) struct DialAttempt<'a> {
    /// Host to which the addresses belong.
    pub(super) host: &'a Host,
    pub(super) addresses: &'a [SocketAddr],
    /// Deadline for all attempts together.
    pub(super) deadline: Instant,
    /// Place in the reserve, which allows the use of a reserve descriptor.
    pub(super) place: Option<&'a ReservePlace>,
}

impl Default for Dialler {
    fn default() -> Self {
        Self {
            answered: Cache::builder()
                .max_capacity(HOSTS_MAX)
                .eviction_policy(EvictionPolicy::lru())
                .build(),
        }
    }
}

impl Dialler {
    /// Connects to the first address that accepts.
    ///
    /// # Errors
    ///
    /// [`NoConnection`]: the failure of the first address if all fail.
    pub(super) async fn dial(&self, wanted: DialAttempt<'_>) -> Result<TcpStream, NoConnection> {
        let DialAttempt {
            host,
            addresses,
            deadline,
            place,
        } = wanted;
        let is_reserve = place.is_some();
        let attempt = |address| connect_to(address, is_reserve);
        let order = match addresses {
            [_] => addresses.to_vec(),
            _ => in_order(addresses, self.answered.get(host)),
        };
        // If little time is left, each address still gets a part of it.
        let left = deadline.saturating_duration_since(clock::instant());
        let count = u32::try_from(order.len()).unwrap_or(u32::MAX).max(1);
        let dialled = first_success(&order, ATTEMPT_DELAY.min(left / count), &attempt);
        let stream = timeout_at(deadline, dialled)
            .await
            .map_err(|_| NoConnection::Timeout)?
            .ok_or(NoConnection::Dns)?
            .map_err(|error| dial_failure(&error))?;
        // Nagle's algorithm delays small requests by 40 ms. Failing to disable it has no
        // other cost.
        stream.set_nodelay(true).unwrap_or_default();
        if 1 < addresses.len()
            && let Ok(peer) = stream.peer_addr()
        {
            self.answered.insert(host.clone(), peer.ip());
        }
        Ok(stream)
    }
}

/// Returns the addresses in the order in which they are tried: the one that `answered`
/// last, then alternating between the families (RFC 8305, section 4).
fn in_order(addresses: &[SocketAddr], answered: Option<IpAddr>) -> Vec<SocketAddr> {
    let is_v4 = addresses.first().is_some_and(SocketAddr::is_ipv4);
    let (one, other): (Vec<_>, Vec<_>) = addresses
        .iter()
        .partition(|address| address.is_ipv4() == is_v4);
    let places = 0..one.len().max(other.len());
    let mut order: Vec<SocketAddr> = places
        .flat_map(|place| [one.get(place), other.get(place)])
        .flatten()
        .copied()
        .collect();
    // The sort is stable, so the other addresses keep their order.
    order.sort_by_key(|address| Some(address.ip()) != answered);
    order
}

/// Connects to `address`, unless only reserve descriptors are left and `is_reserve` is
/// false.
async fn connect_to(address: SocketAddr, is_reserve: bool) -> io::Result<TcpStream> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    if !is_reserve && descriptors::is_reserved(&socket) {
        return Err(Errno::MFILE.into());
    }
    socket.connect(address).await
}

/// Reports whether an error is unrelated to the origin: the process or system has run out
/// of descriptors, ports or memory.
fn is_for_lack_of_sockets(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    let lacks = [
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOBUFS,
        Errno::NOMEM,
        Errno::ADDRNOTAVAIL,
    ];
    code.is_some_and(|code| lacks.contains(&code))
}

fn dial_failure(error: &io::Error) -> NoConnection {
    if is_for_lack_of_sockets(error) {
        tracing::warn!(target: REPEATING, %error, "no socket for a connection to an origin");
        return NoConnection::NoSocket;
    }
    #[expect(clippy::wildcard_enum_match_arm, reason = "io::ErrorKind has no end")]
    match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => NoConnection::Refused,
        io::ErrorKind::TimedOut => NoConnection::Timeout,
        _ => NoConnection::Unroutable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 8305, section 4.
    #[test]
    fn families_alternate_after_the_address_that_answered() {
        let all: Vec<SocketAddr> = [
            "192.0.2.1:1",
            "192.0.2.2:1",
            "192.0.2.3:1",
            "[2001:db8::1]:1",
            "[2001:db8::2]:1",
        ]
        .map(|text| text.parse().unwrap())
        .to_vec();
        for (answered, order) in [
            (None, [0, 3, 1, 4, 2]),
            (Some(all[4].ip()), [4, 0, 3, 1, 2]),
            (Some(IpAddr::from([192, 0, 2, 9])), [0, 3, 1, 4, 2]),
        ] {
            let expected = order.map(|place: usize| all[place]);
            assert_eq!(in_order(&all, answered), expected);
        }
    }

    // Ours: a local shortage does not mark an origin as unreachable.
    #[test]
    fn a_local_shortage_is_not_a_failure_of_the_origin() {
        for (code, cause) in [
            (Errno::MFILE, NoConnection::NoSocket),
            (Errno::NFILE, NoConnection::NoSocket),
            (Errno::HOSTUNREACH, NoConnection::Unroutable),
            (Errno::CONNREFUSED, NoConnection::Refused),
            (Errno::TIMEDOUT, NoConnection::Timeout),
        ] {
            assert_eq!(dial_failure(&io::Error::from(code)), cause);
        }
    }
}
