//! File descriptors of this process: the system's limit, and a reserve.
//!
//! Connections of crawlers and connections to origins must not use the reserve, so that
//! `/readyz` and `/metrics` still answer when crawlers hold all other descriptors. One
//! descriptor of the reserve may be used to fetch a robots.txt.

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

/// Number of reserved descriptors. The reserve has three equal parts: for connections that
/// are answered with a refusal; for the connections of the admin listener; and for DNS
/// lookups, files (including those of the record) and one robots.txt.
pub const RESERVED: u64 = 192;

/// Number of parts of the reserve.
const PARTS: u64 = 3;

/// Divisor for low limits: the reserve is at most this fraction of the limit, so that
/// some descriptors are left for connections.
const RESERVED_PART: u64 = 4;

/// Reserve of this process, computed from the limit as last read.
static RESERVE: DescriptorReserve = DescriptorReserve(AtomicU64::new(UNREAD));

/// Value of a [`DescriptorReserve`] before the limit is read.
const UNREAD: u64 = 0;

/// Permit for the one reserved descriptor that may fetch a robots.txt.
static ROBOTS_PLACE: Semaphore = Semaphore::const_new(1);

/// Permission to use a reserved descriptor to fetch a robots.txt. Must be held as long as
/// the descriptor is open.
#[derive(Debug)]
pub struct ReservePlace {
    _permit: SemaphorePermit<'static>,
}

impl ReservePlace {
    /// Waits until the place is free and takes it, in the order of the calls. Returns
    /// `None` if that takes longer than `longest`.
    pub async fn take_within(longest: Duration) -> Option<Self> {
        // The semaphore is fair, so a host with many requests cannot starve another.
        let permit = timeout(longest, ROBOTS_PLACE.acquire()).await.ok()?.ok()?;
        Some(Self { _permit: permit })
    }
}

/// Reserve of descriptors, stored as the lowest descriptor number that belongs to it.
///
/// Stored, because the limit rarely changes and reading it would cost a system call for
/// each connection.
struct DescriptorReserve(AtomicU64);

impl DescriptorReserve {
    /// Sets the reserve for a limit; `None` means no limit and no reserve.
    fn set(&self, limit: Option<u64>) {
        let first = limit.map_or(u64::MAX, |limit| limit - reserved_of(limit));
        self.0.store(first, Ordering::Relaxed);
    }

    /// Reports whether a descriptor belongs to the reserve.
    fn contains(&self, number: u64) -> bool {
        self.0.load(Ordering::Relaxed) <= number
    }
}

/// Reads the limit on open descriptors of this process, and updates the reserve. Returns
/// `None` if there is no limit.
pub fn limit() -> Option<u64> {
    let limit = limits().current;
    RESERVE.set(limit);
    limit
}

/// Reads the maximum to which this process may raise its limit.
pub fn hard_limit() -> Option<u64> {
    limits().maximum
}

fn limits() -> Rlimit {
    getrlimit(Resource::Nofile)
}

/// Reports whether the descriptor of `socket` belongs to the reserve, so that the socket
/// must be closed. Uses the limit as read by the last call of [`limit`], which happens at
/// startup and at each reload.
pub fn is_reserved(socket: &impl AsRawFd) -> bool {
    // The system assigns the lowest free number, so at least as many descriptors
    // are in use as the number of a new socket. That saves counting them or
    // listing `/proc/self/fd`.
    let number = u64::try_from(socket.as_raw_fd()).unwrap_or(0);
    if RESERVE.0.load(Ordering::Relaxed) == UNREAD {
        limit();
    }
    RESERVE.contains(number)
}

/// Reports whether the descriptor of `socket` belongs to the last two parts of the reserve,
/// which no connection of a crawler may use, not even to be refused.
pub fn is_in_last_reserve(socket: &impl AsRawFd) -> bool {
    let number = u64::try_from(socket.as_raw_fd()).unwrap_or(0);
    limit().is_some_and(|limit| limit - kept_back_of(limit) <= number)
}

/// Returns the number of crawler connections, each with a connection to an origin, for
/// which `limit` descriptors suffice.
pub fn connections_of(limit: u64) -> u64 {
    (limit - reserved_of(limit)) / 2
}

fn kept_back_of(limit: u64) -> u64 {
    reserved_of(limit) * (PARTS - 1) / PARTS
}

fn reserved_of(limit: u64) -> u64 {
    RESERVED.min(limit / RESERVED_PART)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours.
    #[test]
    fn the_reserve_takes_at_most_a_quarter_of_a_low_limit() {
        for (limit, reserved, kept_back) in [
            (0, 0, 0),
            (3, 0, 0),
            (64, 16, 10),
            (512, 128, 85),
            (1_048_576, 192, 128),
        ] {
            assert_eq!(reserved_of(limit), reserved, "{limit}");
            assert_eq!(kept_back_of(limit), kept_back, "{limit}");
        }
        assert_eq!(connections_of(1024), 416);
    }

    // Ours: saves a system call for each connection.
    #[test]
    fn the_reserve_follows_the_limit_as_last_read() {
        let reserve = DescriptorReserve(AtomicU64::new(UNREAD));
        for (limit, highest) in [(Some(512), 383), (Some(64), 47), (None, u64::MAX - 1)] {
            reserve.set(limit);
            assert!(!reserve.contains(highest), "{limit:?}");
            assert!(reserve.contains(highest + 1), "{limit:?}");
        }
    }

    // Ours.
    #[tokio::test]
    async fn only_one_robots_txt_at_a_time_uses_the_reserve() {
        let place = ReservePlace::take_within(Duration::ZERO).await.unwrap();
        assert!(ReservePlace::take_within(Duration::ZERO).await.is_none());
        drop(place);
        assert!(ReservePlace::take_within(Duration::ZERO).await.is_some());
    }

    #[test]
    fn a_socket_below_the_reserve_may_be_used() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(!is_reserved(&socket));
    }
}
