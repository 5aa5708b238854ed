//! Client: its identity, its limits, and the number of shares that it holds.
//!
//! Does not know which client may take a share; `shares` does.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use governor::Quota;
use governor::clock::Clock as _;
use ipnet::IpNet;
use thiserror::Error;

use crate::clock::{LimiterClock, RateLimiter};

/// Number of leading bits that distinguish clients over IPv6. A site can use any number
/// of addresses that share these bits (RFC 6177, section 2).
const V6_PREFIX: u32 = 64;

/// Identity of a client. Shares are counted for each identity.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ClientId {
    /// The proxy itself, for work that no client requested.
    Proxy,
    /// A crawler that has presented its credential.
    Crawler(Arc<str>),
    /// Any other client, identified by its address. An IPv6 address is cut to its first
    /// 64 bits.
    Address(IpAddr),
    /// All clients in a network for which the operator has set limits.
    Network(IpNet),
}

impl ClientId {
    /// Returns the configuration key that sets the quota of this client.
    fn rate_key(&self) -> &'static str {
        match self {
            Self::Network(_) => "proxy.clients",
            Self::Proxy | Self::Crawler(_) | Self::Address(_) => "proxy.per_client.rate",
        }
    }
}

impl From<IpAddr> for ClientId {
    fn from(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            IpAddr::V4(address) => IpAddr::V4(address),
            IpAddr::V6(address) => {
                let host_bits = u128::BITS - V6_PREFIX;
                let prefix = address.to_bits() >> host_bits << host_bits;
                IpAddr::V6(Ipv6Addr::from_bits(prefix))
            }
        })
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Distinct from every crawler: names have no parentheses (RFC 9110,
            // section 5.6.2).
            Self::Proxy => f.write_str("(proxy)"),
            Self::Crawler(name) => f.write_str(name),
            Self::Address(address @ IpAddr::V4(_)) => address.fmt(f),
            Self::Address(address @ IpAddr::V6(_)) => write!(f, "{address}/{V6_PREFIX}"),
            Self::Network(network) => network.fmt(f),
        }
    }
}

/// Declares [`Resource`] with the names of its variants, so that every list is complete.
macro_rules! resources {
    ($($(#[doc = $doc:literal])+ $Resource:ident = $name:literal,)+) => {
        /// Finite resource that clients share.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Resource {
            $($(#[doc = $doc])+ $Resource,)+
        }

        impl Resource {
            /// All resources, in the order of their discriminants.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$Resource),+];

            /// Returns the name used in the configuration, the metrics and the API.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$Resource => $name,)+
                }
            }
        }
    };
}

resources! {
    /// Open connections of clients (`proxy.max_connections`).
    Connections = "connections",
    /// TLS handshakes in progress (`proxy.max_handshakes`).
    Handshakes = "handshakes",
    /// Requests, from the arrival of the head to the end of the response
    /// (`proxy.max_requests`).
    Requests = "requests",
    /// Requests that wait for their turn or for a robots.txt (`pace.queue.total`).
    Waiting = "waiting",
    /// DNS lookups (`upstream.dns_lookups`).
    Lookups = "lookups",
    /// Fetches of robots.txt (`robots.max_fetches`).
    RobotsFetches = "robots_fetches",
    /// Leaf certificates being signed.
    Leaves = "leaves",
}

/// Limits that the operator has set for one client, or for all clients of a network
/// together. By default there are none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientLimits {
    /// Maximum number of shares of each resource.
    most: [Option<u32>; Resource::ALL.len()],
    /// Quota of requests.
    rate: Option<Quota>,
}

impl ClientLimits {
    /// Sets the maximum number of shares of `resource`.
    pub fn set(&mut self, resource: Resource, most: u32) {
        self.most[resource as usize] = Some(most);
    }

    /// Returns the maximum number of shares of `resource`; `None` for no limit.
    #[must_use]
    pub fn of(&self, resource: Resource) -> Option<u32> {
        self.most[resource as usize]
    }

    /// Sets the quota to `requests` in each period of length `per`. All of them may come
    /// at once.
    pub fn set_rate(&mut self, requests: NonZeroU32, per: Duration) {
        let one_each = Quota::with_period(per / requests.get());
        self.rate = one_each.map(|quota| quota.allow_burst(requests));
    }
}

/// Error: a client or its network has used up its quota.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{client} has used up its quota of requests ({})", .client.rate_key())]
pub struct QuotaExceeded {
    /// Client or network whose quota is used up.
    pub client: ClientId,
    /// Time until the quota has room for one more request.
    pub wait: Duration,
}

/// Counters of one resource for one client.
#[derive(Debug, Default)]
pub(super) struct ResourceUse {
    /// Shares held now.
    pub(super) held: AtomicU32,
    /// Requests that wait for a share now.
    pub(super) waiting: AtomicU32,
    /// Shares refused since the client was first seen.
    pub(super) refused: AtomicU64,
    /// Shares lost to other clients since the client was first seen.
    pub(super) displaced: AtomicU64,
}

/// Client with its limits and counters. `ClientDirectory` creates one for each identity,
/// except for the proxy itself ([`Client::proxy`]).
#[derive(Debug)]
pub struct Client {
    /// Identity.
    pub id: ClientId,
    /// Number that no other client of this process has.
    pub(super) number: u64,
    pub(super) limits: ClientLimits,
    /// Limiter for the quota in `limits`. Dropped together with the client, so the number
    /// of limiters is bounded.
    quota: Option<RateLimiter>,
    /// Network of the client, if the operator has set limits for one.
    pub(super) network: Option<Arc<Self>>,
    /// Counters of each resource, by its discriminant.
    pub(super) uses: [ResourceUse; Resource::ALL.len()],
}

impl Client {
    /// Returns the client that stands for the proxy itself, without limits.
    #[must_use]
    pub fn proxy() -> Arc<Self> {
        // Number 0 is free, because the directory counts from 1.
        Arc::new(Self::new(ClientId::Proxy, 0, ClientLimits::default()))
    }

    pub(super) fn new(id: ClientId, number: u64, limits: ClientLimits) -> Self {
        let limiter = |quota| RateLimiter::direct_with_clock(quota, LimiterClock::default());
        Self {
            id,
            number,
            quota: limits.rate.map(limiter),
            limits,
            network: None,
            uses: Default::default(),
        }
    }

    /// Returns the number of shares of `resource` that the client holds.
    #[must_use]
    pub fn held(&self, resource: Resource) -> u32 {
        self.uses[resource as usize].held.load(Ordering::Relaxed)
    }

    /// Returns the identity whose limit on `resource` is reached: the client or its
    /// network. Returns `None` if neither is.
    pub(super) fn limited_by(&self, resource: Resource) -> Option<&ClientId> {
        let most = self.limits.of(resource);
        if most.is_some_and(|most| most <= self.held(resource)) {
            return Some(&self.id);
        }
        self.network.as_ref()?.limited_by(resource)
    }

    /// Counts a request against the quota of the client and that of its network.
    ///
    /// # Errors
    ///
    /// [`QuotaExceeded`] if one of the quotas has no room. That quota is not charged.
    pub fn count_request(&self) -> Result<(), QuotaExceeded> {
        // The client's own quota comes first, so that requests beyond it take nothing
        // from the other clients of its network.
        if let Some(quota) = &self.quota
            && let Err(exceeded) = quota.check()
        {
            return Err(QuotaExceeded {
                client: self.id.clone(),
                wait: exceeded.wait_time_from(quota.clock().now()),
            });
        }
        match &self.network {
            Some(network) => network.count_request(),
            None => Ok(()),
        }
    }

    /// Counts one more share of `resource`, for the client and its network. The caller
    /// must hold the lock of the resource.
    pub(super) fn add_held(&self, resource: Resource) {
        // Relaxed is enough: all writes happen under one lock, and reads outside it
        // are for display only.
        self.uses[resource as usize]
            .held
            .fetch_add(1, Ordering::Relaxed);
        if let Some(network) = &self.network {
            network.add_held(resource);
        }
    }

    /// Reverts one call of [`Client::add_held`].
    pub(super) fn remove_held(&self, resource: Resource) {
        self.uses[resource as usize]
            .held
            .fetch_sub(1, Ordering::Relaxed);
        if let Some(network) = &self.network {
            network.remove_held(resource);
        }
    }

    /// Counts a refusal of `resource`.
    pub fn count_refused(&self, resource: Resource) {
        self.uses[resource as usize]
            .refused
            .fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(address: &str) -> String {
        ClientId::from(address.parse::<IpAddr>().unwrap()).to_string()
    }

    // RFC 6177, section 2; RFC 4291, section 2.5.5.2.
    #[test]
    fn an_ipv6_client_is_identified_by_the_first_64_bits_of_its_address() {
        assert_eq!(id("192.0.2.7"), "192.0.2.7");
        assert_eq!(id("::ffff:192.0.2.7"), "192.0.2.7");
        assert_eq!(id("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
        assert_ne!(id("2001:db8:1:3::1"), id("2001:db8:1:2::1"));
    }

    // Ours.
    #[test]
    fn a_network_counts_the_shares_of_its_clients() {
        let network = Arc::new(Client::new(
            ClientId::Network("10.0.0.0/8".parse().unwrap()),
            0,
            ClientLimits::default(),
        ));
        let address: IpAddr = "10.0.0.1".parse().unwrap();
        let mut client = Client::new(address.into(), 1, ClientLimits::default());
        client.network = Some(Arc::clone(&network));
        client.add_held(Resource::Lookups);
        client.add_held(Resource::Lookups);
        client.remove_held(Resource::Lookups);
        assert_eq!(network.held(Resource::Lookups), 1);
        assert_eq!(network.held(Resource::Requests), 0);
    }

    // Ours: `proxy.per_client.rate`.
    #[tokio::test(start_paused = true)]
    async fn requests_are_limited_by_the_quotas_of_client_and_network() {
        let limits = |requests, per| {
            let mut limits = ClientLimits::default();
            limits.set_rate(NonZeroU32::new(requests).unwrap(), per);
            limits
        };
        let id = ClientId::Network("10.0.0.0/8".parse().unwrap());
        let network = Client::new(id, 0, limits(4, Duration::from_secs(60)));
        let network = Arc::new(network);
        let [one, other] = ["10.0.0.1", "10.0.0.2"].map(|address| {
            let id = ClientId::from(address.parse::<IpAddr>().unwrap());
            let mut client = Client::new(id, 1, limits(2, Duration::from_secs(1)));
            client.network = Some(Arc::clone(&network));
            client
        });
        let exceeded = |client: &Client| {
            let exceeded = client.count_request().unwrap_err();
            (exceeded.client.to_string(), exceeded.wait.as_millis())
        };
        assert_eq!([one.count_request(), one.count_request()], [Ok(()), Ok(())]);
        assert_eq!(exceeded(&one), ("10.0.0.1".to_owned(), 500));
        // Room for one request returns after half a second, not before.
        tokio::time::advance(Duration::from_millis(499)).await;
        assert_eq!(exceeded(&one), ("10.0.0.1".to_owned(), 1));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(
            [one.count_request(), other.count_request()],
            [Ok(()), Ok(())]
        );
        assert_eq!(exceeded(&other), ("10.0.0.0/8".to_owned(), 14_500));
        assert_eq!(Client::proxy().count_request(), Ok(()));
    }
}
