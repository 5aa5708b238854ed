//! Snapshots of clients: their counters at one time, as plain values for `admin` and
//! `politesse clients`.
//!
//! A client takes shares of resources, such as a connection, for each of its requests.
//! Does not know which client may take one.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};

use super::client::{Client, ClientId, Resource};

/// Counters of one client at some time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientSnapshot {
    /// Name of the crawler, address, or network.
    pub client: String,
    /// Kind of `client`: `crawler`, `address`, `network`, or `proxy` for the proxy itself.
    pub kind: Cow<'static, str>,
    /// Counters by name of the resource. Resources that the client has never used are
    /// left out.
    pub shares: BTreeMap<Cow<'static, str>, ResourceSnapshot>,
}

/// Counters of one resource for one client at some time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceSnapshot {
    /// Shares held now.
    pub held: u32,
    /// Requests that wait for a share now.
    pub waiting: u32,
    /// Shares refused since the client was first seen.
    pub refused: u64,
    /// Shares lost to other clients since the client was first seen.
    pub displaced: u64,
}

impl ClientSnapshot {
    /// Takes the snapshot of a client.
    #[must_use]
    pub fn of(client: &Client) -> Self {
        let kind = match client.id {
            ClientId::Proxy => "proxy",
            ClientId::Crawler(_) => "crawler",
            ClientId::Address(_) => "address",
            ClientId::Network(_) => "network",
        };
        let shares = Resource::ALL.into_iter().map(|resource| {
            let counts = &client.uses[resource as usize];
            let snapshot = ResourceSnapshot {
                held: counts.held.load(Ordering::Relaxed),
                waiting: counts.waiting.load(Ordering::Relaxed),
                refused: counts.refused.load(Ordering::Relaxed),
                displaced: counts.displaced.load(Ordering::Relaxed),
            };
            (Cow::Borrowed(resource.as_str()), snapshot)
        });
        let none = ResourceSnapshot::default();
        Self {
            client: client.id.to_string(),
            kind: Cow::Borrowed(kind),
            shares: shares.filter(|(_, snapshot)| *snapshot != none).collect(),
        }
    }

    /// Returns the sort key: clients with the most waiting requests come first, then
    /// clients with the most shares, because they are the likeliest cause of a problem.
    fn rank(&self) -> impl Ord + '_ {
        let sum = |count: fn(&ResourceSnapshot) -> u32| {
            let counts = self.shares.values().map(|share| u64::from(count(share)));
            Reverse(counts.sum::<u64>())
        };
        (
            sum(|share| share.waiting),
            sum(|share| share.held),
            &self.client,
        )
    }
}

/// The most active clients, and the total number of clients.
#[derive(Debug, Serialize, Deserialize)]
pub struct ClientSnapshots {
    /// Clients to show.
    pub clients: Vec<ClientSnapshot>,
    /// Number of all clients, shown or not.
    pub total: usize,
}

impl ClientSnapshots {
    /// Keeps the first `limit` of `clients`, sorted by the most waiting requests, then by
    /// the most shares.
    #[must_use]
    pub fn first(mut clients: Vec<ClientSnapshot>, limit: usize) -> Self {
        let total = clients.len();
        clients.sort_unstable_by(|one, other| one.rank().cmp(&other.rank()));
        clients.truncate(limit);
        Self { clients, total }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(name: &str, held: u32, waiting: u32) -> ClientSnapshot {
        let share = ResourceSnapshot {
            held,
            waiting,
            ..ResourceSnapshot::default()
        };
        ClientSnapshot {
            client: name.to_owned(),
            kind: "address".into(),
            shares: BTreeMap::from([("lookups".into(), share)]),
        }
    }

    // Ours.
    #[test]
    fn waiting_clients_come_first_and_survive_a_round_trip_through_json() {
        let all = vec![client("a", 0, 0), client("b", 9, 0), client("c", 1, 2)];
        let shown = ClientSnapshots::first(all, 2);
        let text = serde_json::to_string(&shown).unwrap();
        let again: ClientSnapshots = serde_json::from_str(&text).unwrap();
        assert_eq!(again.clients, [client("c", 1, 2), client("b", 9, 0)]);
        assert_eq!(again.total, 3);
        assert!(text.contains(r#""lookups":{"held":1,"#), "{text}");
    }
}
