//! File descriptors of this process: the system's limits, and a reserve.
//!
//! Connections of crawlers and to origins leave the reserve alone, so that
//! `/readyz` and `/metrics` still answer when crawlers hold all other
//! descriptors. A robots.txt may be fetched over one of the reserve.

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

/// Descriptors that connections of crawlers and to origins leave free, in three
/// parts: for connections that are told so, for as many as the admin listener
/// serves, and for lookups of names, files (those of the record among them) and
/// one robots.txt.
pub const RESERVED: u64 = 192;

/// Parts of the reserve.
const PARTS: u64 = 3;

/// Divisor of a low limit: the reserve is at most one part of so many, so that
/// some descriptors are left for connections.
const RESERVED_PART: u64 = 4;

/// Reserve of this process, by the limit as last read.
static RESERVE: DescriptorReserve = DescriptorReserve(AtomicU64::new(UNREAD));

/// Value of a [`DescriptorReserve`] whose limit has not been read yet.
const UNREAD: u64 = 0;

/// Place of the one socket of the reserve that a robots.txt is fetched over.
static ROBOTS_PLACE: Semaphore = Semaphore::const_new(1);

/// Leave to use a descriptor of the reserve for the fetch of a robots.txt. Kept as
/// long as the descriptor.
#[derive(Debug)]
pub struct ReservePlace {
    _permit: SemaphorePermit<'static>,
}

impl ReservePlace {
    /// Takes the place as soon as it is free, in the order of the calls. `None` if
    /// that takes longer than `longest`.
    pub async fn take_within(longest: Duration) -> Option<Self> {
        // Fair, so that a host that is asked for often does not keep another out.
        let permit = timeout(longest, ROBOTS_PLACE.acquire()).await.ok()?.ok()?;
        Some(Self { _permit: permit })
    }
}

/// Reserve of descriptors: the lowest number that belongs to it.
///
/// Kept, because the limit changes only where somebody sets it, and to read it
/// for each connection is a system call for each connection.
struct DescriptorReserve(AtomicU64);

impl DescriptorReserve {
    /// Sets the reserve that a limit leads to.
    fn set(&self, limit: Option<u64>) {
        let first = limit.map_or(u64::MAX, |limit| limit - reserved_of(limit));
        self.0.store(first, Ordering::Relaxed);
    }

    /// Reports whether a descriptor belongs to the reserve.
    fn contains(&self, number: u64) -> bool {
        self.0.load(Ordering::Relaxed) <= number
    }
}

/// Reads the limit of descriptors that this process may have open, and sets the
/// reserve by it. Absent if there is none.
pub fn limit() -> Option<u64> {
    let limit = limits().current;
    RESERVE.set(limit);
    limit
}

/// Limit up to which this process may raise its own.
pub fn hard_limit() -> Option<u64> {
    limits().maximum
}

fn limits() -> Rlimit {
    getrlimit(Resource::Nofile)
}

/// Reports whether the descriptor of `socket` is of the reserve, so that the socket
/// must be closed. The reserve is that of the last call of [`limit`], which the
/// start and each reload make.
pub fn is_reserved(socket: &impl AsRawFd) -> bool {
    // The system gives out the lowest number that is free, so the number of a
    // new socket says how many descriptors are in use at least. Nothing has to
    // be counted, nor listed in `/proc/self/fd`.
    let number = u64::try_from(socket.as_raw_fd()).unwrap_or(0);
    if RESERVE.0.load(Ordering::Relaxed) == UNREAD {
        limit();
    }
    RESERVE.contains(number)
}

/// Tells whether the descriptor of `socket` is of the two parts of the reserve that
/// are not for connections of crawlers at all.
pub fn is_in_last_reserve(socket: &impl AsRawFd) -> bool {
    let number = u64::try_from(socket.as_raw_fd()).unwrap_or(0);
    limit().is_some_and(|limit| limit - kept_back_of(limit) <= number)
}

/// Returns how many connections of crawlers, each with one to an origin, `limit`
/// descriptors suffice for.
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
    fn a_low_limit_is_not_reserved_as_a_whole() {
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

    // Ours: one system call for each connection less.
    #[test]
    fn the_reserve_is_that_of_the_limit_as_last_read() {
        let reserve = DescriptorReserve(AtomicU64::new(UNREAD));
        for (limit, highest) in [(Some(512), 383), (Some(64), 47), (None, u64::MAX - 1)] {
            reserve.set(limit);
            assert!(!reserve.contains(highest), "{limit:?}");
            assert!(reserve.contains(highest + 1), "{limit:?}");
        }
    }

    // Ours.
    #[tokio::test]
    async fn the_place_of_a_robots_txt_is_taken_once_at_a_time() {
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
