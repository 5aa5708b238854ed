//! The descriptors of this process: how many the system gives it, and the last
//! ones, which are kept for the admin listener and for files.
//!
//! Connections of crawlers and to origins use descriptors up to
//! [`is_reserved`]; what else needs one may take the rest. So `/readyz` and
//! `/metrics` still answer when crawlers hold all that they can have.

use std::os::fd::AsRawFd;

use rustix::process::{Resource, Rlimit, getrlimit};

/// Descriptors that connections of crawlers and to origins leave free: as many
/// as the admin listener serves connections, and as many again for lookups of
/// names and for files.
pub const RESERVED: u64 = 128;

/// Of a low limit this part is reserved, one of so many, so that some are left
/// for connections.
const RESERVED_PART: u64 = 4;

/// How many descriptors this process may have open; none where that is not
/// limited.
pub fn limit() -> Option<u64> {
    limits().current
}

/// How many it may have if it asks for all.
pub fn hard_limit() -> Option<u64> {
    limits().maximum
}

fn limits() -> Rlimit {
    getrlimit(Resource::Nofile)
}

/// Whether `socket` has one of the last descriptors, so that it must be closed.
///
/// The system gives out the lowest number that is free, so the number of a new
/// socket says how many descriptors are in use at least. Nothing has to be
/// counted, nor listed in `/proc/self/fd`.
pub fn is_reserved(socket: &impl AsRawFd) -> bool {
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
