//! How often somebody may try a password.
//!
//! By address, and by the network of 64 bits that one IPv6 customer has. Nobody
//! is locked out by another address, nor for longer than a minute.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Tries that one address has in [`WINDOW`].
const TRIES_MAX: u32 = 10;
/// How long tries count, from the first of them.
const WINDOW: Duration = Duration::from_secs(60);
/// Addresses remembered.
const ADDRESSES_MAX: usize = 4096;

/// The tries of the last minute.
#[derive(Debug, Default)]
pub(super) struct Tries(Mutex<HashMap<IpAddr, Tried>>);

/// Those of one address.
#[derive(Debug)]
struct Tried {
    since: Instant,
    count: u32,
}

impl Tries {
    /// Counts a try at `now`.
    ///
    /// # Errors
    ///
    /// After how long there will be one again, if there is none left.
    pub(super) fn begin(&self, address: IpAddr, now: Instant) -> Result<(), Duration> {
        let mut addresses = self.lock();
        let is_over = |tried: &Tried| WINDOW <= now.duration_since(tried.since);
        if ADDRESSES_MAX <= addresses.len() {
            addresses.retain(|_, tried| !is_over(tried));
        }
        if ADDRESSES_MAX <= addresses.len() {
            // So many addresses have more tries than any count takes from them.
            addresses.clear();
        }
        let fresh = Tried {
            since: now,
            count: 0,
        };
        let tried = addresses.entry(network(address)).or_insert(fresh);
        if is_over(tried) {
            (tried.since, tried.count) = (now, 0);
        }
        if TRIES_MAX <= tried.count {
            return Err(WINDOW.saturating_sub(now.duration_since(tried.since)));
        }
        tried.count += 1;
        Ok(())
    }

    /// Takes a try back that was right.
    pub(super) fn succeeded(&self, address: IpAddr) {
        if let Some(tried) = self.lock().get_mut(&network(address)) {
            tried.count = tried.count.saturating_sub(1);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Tried>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What stands for all addresses that one customer has.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let kept = u128::from(address) & (u128::MAX << 64);
            IpAddr::V6(Ipv6Addr::from(kept))
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    // Security, section 8: ten tries a minute an address.
    #[tokio::test(start_paused = true)]
    async fn the_eleventh_try_in_a_minute_is_refused() {
        let tries = Tries::default();
        let begin = |address: &str| tries.begin(ip(address), clock::instant());
        for _ in 0..10 {
            assert_eq!(begin("10.0.0.1"), Ok(()));
        }
        tokio::time::advance(Duration::from_secs(20)).await;
        assert_eq!(begin("10.0.0.1"), Err(Duration::from_secs(40)));
        assert_eq!(begin("::ffff:10.0.0.1"), Err(Duration::from_secs(40)));
        assert_eq!(begin("10.0.0.2"), Ok(()));
        tokio::time::advance(Duration::from_secs(40)).await;
        assert_eq!(begin("10.0.0.1"), Ok(()));
    }

    // Security, section 8.
    #[tokio::test(start_paused = true)]
    async fn what_was_right_is_no_try() {
        let tries = Tries::default();
        for _ in 0..100 {
            assert_eq!(tries.begin(ip("10.0.0.1"), clock::instant()), Ok(()));
            tries.succeeded(ip("10.0.0.1"));
        }
    }

    // RFC 6177: a customer has 64 bits at least.
    #[tokio::test(start_paused = true)]
    async fn addresses_of_one_network_count_together() {
        let tries = Tries::default();
        let begin = |address: &str| tries.begin(ip(address), clock::instant());
        for n in 0..10 {
            assert_eq!(begin(&format!("2001:db8::{n}")), Ok(()));
        }
        assert!(begin("2001:db8::ffff:1").is_err());
        assert_eq!(begin("2001:db8:0:1::1"), Ok(()));
    }

    // Invariant 8.
    #[tokio::test(start_paused = true)]
    async fn addresses_are_bounded() {
        let tries = Tries::default();
        for n in 0..5000_u32 {
            assert_eq!(tries.begin(IpAddr::V4(n.into()), clock::instant()), Ok(()));
            assert!(tries.lock().len() <= ADDRESSES_MAX);
        }
    }
}
