//! File descriptors of this process: the system's limits, and a reserve.
//!
//! Connections of crawlers and to origins leave the reserve alone, so that
//! `/readyz` and `/metrics` still answer when crawlers hold all other
//! descriptors.

use std::os::fd::AsRawFd;

use rustix::process::{Resource, Rlimit, getrlimit};

/// Descriptors that connections of crawlers and to origins leave free: as many
/// as the admin listener serves connections, and as many again for lookups of
/// names and for files.
pub const RESERVED: u64 = 128;

/// Divisor of a low limit: the reserve is at most one part of so many, so that
/// some descriptors are left for connections.
const RESERVED_PART: u64 = 4;

/// Limit of descriptors that this process may have open; absent if there is none.
pub fn limit() -> Option<u64> {
    limits().current
}

/// Limit up to which this process may raise its own.
pub fn hard_limit() -> Option<u64> {
    limits().maximum
}

fn limits() -> Rlimit {
    getrlimit(Resource::Nofile)
}

/// Tells whether the descriptor of `socket` is of the reserve, so that the socket
/// must be closed.
pub fn is_reserved(socket: &impl AsRawFd) -> bool {
    // The system gives out the lowest number that is free, so the number of a
    // new socket says how many descriptors are in use at least. Nothing has to
    // be counted, nor listed in `/proc/self/fd`.
    let number = u64::try_from(socket.as_raw_fd()).unwrap_or(0);
    limit().is_some_and(|limit| limit - reserved_of(limit) <= number)
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
        for (limit, reserved) in [(0, 0), (3, 0), (64, 16), (512, 128), (1_048_576, 128)] {
            assert_eq!(reserved_of(limit), reserved, "{limit}");
        }
    }

    #[test]
    fn a_socket_below_the_reserve_may_be_used() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(!is_reserved(&socket));
    }
}
