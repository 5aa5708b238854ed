//! Addresses for servers that cannot report which port the system gave them.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::sync::atomic::{AtomicU16, Ordering};

/// Ports below the range that Linux assigns to outgoing connections and to listeners on
/// port 0 (`net.ipv4.ip_local_port_range`). A port inside that range could be taken by
/// any connection between the test's check and the server's `bind`.
const PORTS: Range<u16> = 12_000..32_000;

/// Returns loopback addresses on which nothing listens. No two calls in one process
/// return the same address, and each test process starts at a different port.
pub(crate) fn free_addresses<const N: usize>() -> [SocketAddr; N] {
    [(); N].map(|()| free_address())
}

/// Returns a single address, as [`free_addresses`] does.
pub(crate) fn free_address() -> SocketAddr {
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    let count = PORTS.end - PORTS.start;
    // Processes started one after another have neighbouring ids; the factor spreads them.
    let first = std::process::id().wrapping_mul(997) % u32::from(count);
    for _ in PORTS {
        let taken = TAKEN.fetch_add(1, Ordering::Relaxed);
        let offset = (first + u32::from(taken)) % u32::from(count);
        let port = PORTS.start + u16::try_from(offset).unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
    panic!("no free port in {PORTS:?}");
}
