//! Places of connections and requests among those of all clients, and when one
//! may be given up for a client that holds less.
//!
//! A connection may lose its place while none of its requests is under way: they
//! have been answered, or wait for their turn. So a client that holds every
//! connection with requests that wait keeps nobody out, and each of these
//! requests is answered all the same. Where there is no such connection, one goes
//! whose requests have been under way for some seconds. Does not know how a place
//! that was lost is left.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::available_parallelism;

use politesse_base::clients::client::Resource;
use politesse_base::clients::shares::{DisplacementOrder, Share, Shares};
use politesse_base::metrics::Metrics;

/// How many of each resource there are.
#[derive(Debug, Clone)]
pub struct EntryLimits {
    /// Connections that are open at one time (`proxy.max_connections`).
    pub connections: NonZeroUsize,
    /// TLS handshakes with clients that are under way at one time
    /// (`proxy.max_handshakes`).
    pub handshakes: NonZeroUsize,
    /// Requests that are under way at one time (`proxy.max_requests`).
    pub requests: NonZeroUsize,
}

/// Shares of the resources that clients use on their way in.
#[derive(Debug)]
pub struct EntryShares {
    /// Open connections.
    pub connections: Arc<Shares>,
    /// TLS handshakes that have not ended.
    pub handshakes: Arc<Shares>,
    /// Requests from their head to the end of their response.
    pub requests: Arc<Shares>,
    /// Leaf certificates being signed.
    pub leaves: Arc<Shares>,
}

impl EntryShares {
    /// Makes the shares of `limits`.
    #[must_use]
    pub fn new(limits: &EntryLimits, metrics: &Arc<Metrics>) -> Self {
        let shares = |resource, limit: NonZeroUsize, order| {
            Shares::new(resource, limit.get(), order, Arc::clone(metrics))
        };
        let (oldest, newest) = (
            DisplacementOrder::OldestFirst,
            DisplacementOrder::NewestFirst,
        );
        let entry = Self {
            connections: shares(Resource::Connections, limits.connections, oldest),
            handshakes: shares(Resource::Handshakes, limits.handshakes, oldest),
            requests: shares(Resource::Requests, limits.requests, newest),
            leaves: shares(Resource::Leaves, signing_at_once(), newest),
        };
        entry.leaves.set_waiting_limit(limits.handshakes.get());
        entry
    }

    /// Puts other limits in force. What clients hold stays with them.
    pub fn set_limits(&self, limits: &EntryLimits) {
        self.connections.set_limit(limits.connections.get());
        self.handshakes.set_limit(limits.handshakes.get());
        self.requests.set_limit(limits.requests.get());
        self.leaves.set_waiting_limit(limits.handshakes.get());
    }
}

/// Returns how many leaf certificates are signed at one time.
fn signing_at_once() -> NonZeroUsize {
    let cores = available_parallelism().map_or(1, NonZeroUsize::get);
    // A signature keeps its core busy. With one for each core nobody would wait for
    // a share, but all in the order of the runtime, which knows no clients.
    NonZeroUsize::new(cores / 2).unwrap_or(NonZeroUsize::MIN)
}

/// Place of a connection among all that may be open.
#[derive(Debug)]
pub struct ConnectionPlace {
    share: Share,
    /// Requests for which the connection is kept.
    kept_for: AtomicUsize,
}

impl ConnectionPlace {
    /// Makes the place of a connection on which no request has come yet.
    #[must_use]
    pub fn new(share: Share) -> Arc<Self> {
        share.may_be_displaced(true);
        Arc::new(Self {
            share,
            kept_for: AtomicUsize::new(0),
        })
    }

    /// Waits until the place is lost to another client.
    pub async fn displaced(&self) {
        self.share.displaced().await;
    }

    // Relaxed throughout: what is guarded is the place alone, and who gets it
    // waits for the lock of the shares.
    fn keep(&self) {
        if self.kept_for.fetch_add(1, Ordering::Relaxed) == 0 {
            self.share.may_be_displaced(false);
        }
    }

    fn release(&self) {
        if self.kept_for.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.share.may_be_displaced(true);
            // Another request of the connection may have come in between.
            if self.kept_for.load(Ordering::Relaxed) != 0 {
                self.share.may_be_displaced(false);
            }
        }
    }
}

/// Place of a request among all that may be under way, and its hold on the place
/// of its connection. Both are given back when it is dropped.
#[derive(Debug)]
pub struct RequestPlace {
    share: Share,
    connection: Arc<ConnectionPlace>,
    /// Whether the request keeps its connection.
    keeps: AtomicBool,
}

impl RequestPlace {
    /// Makes the place of a request that came over `connection`, which may not
    /// be displaced from now on.
    #[must_use]
    pub fn new(share: Share, connection: &Arc<ConnectionPlace>) -> Arc<Self> {
        connection.keep();
        Arc::new(Self {
            share,
            connection: Arc::clone(connection),
            keeps: AtomicBool::new(true),
        })
    }

    /// Says whether the request may lose its place to another client: while it
    /// waits for its turn, and no longer.
    pub fn may_be_displaced(&self, is_allowed: bool) {
        self.share.may_be_displaced(is_allowed);
        let keeps = !is_allowed;
        if self.keeps.swap(keeps, Ordering::Relaxed) == keeps {
            return;
        }
        if keeps {
            self.connection.keep();
        } else {
            self.connection.release();
        }
    }

    /// Waits until the place of the request or of its connection is lost to
    /// another client.
    pub async fn displaced(&self) {
        tokio::select! {
            () = self.share.displaced() => {}
            () = self.connection.displaced() => {}
        }
    }
}

impl Drop for RequestPlace {
    fn drop(&mut self) {
        if *self.keeps.get_mut() {
            self.connection.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use politesse_base::clients::client::Client;
    use politesse_base::clients::directory::ClientDirectory;

    fn entry() -> EntryShares {
        let one = NonZeroUsize::MIN;
        let limits = EntryLimits {
            connections: one.saturating_add(1),
            handshakes: one,
            requests: one.saturating_add(9),
        };
        EntryShares::new(&limits, &Arc::default())
    }

    /// Clients at two addresses.
    fn clients() -> [Arc<Client>; 2] {
        let directory = ClientDirectory::default();
        [1, 2].map(|number: u32| directory.at(IpAddr::V4(number.into())))
    }

    /// Returns whether a client at another address gets a connection.
    fn lets_in(entry: &EntryShares, other: &Arc<Client>) -> bool {
        entry.connections.take_now(other).is_ok()
    }

    // Ours.
    #[test]
    fn a_connection_with_a_request_keeps_its_place_and_an_idle_one_does_not() {
        let (entry, [client, other]) = (entry(), clients());
        let connect = || ConnectionPlace::new(entry.connections.take_now(&client).unwrap());
        let [first, second] = [connect(), connect()];
        let request = |connection| {
            let share = entry.requests.take_now(&client).unwrap();
            RequestPlace::new(share, connection)
        };
        let kept = [request(&first), request(&first), request(&second)];
        assert!(!lets_in(&entry, &other));
        let [one, two, _three] = kept;
        drop(one);
        assert!(!lets_in(&entry, &other));
        drop(two);
        assert!(lets_in(&entry, &other));
        assert!(first.share.is_displaced() && !second.share.is_displaced());
    }

    #[test]
    fn a_request_that_waits_does_not_keep_its_connection() {
        let (entry, [client, other]) = (entry(), clients());
        let connect = || ConnectionPlace::new(entry.connections.take_now(&client).unwrap());
        let connections = [connect(), connect()];
        let requests = connections.each_ref().map(|connection| {
            RequestPlace::new(entry.requests.take_now(&client).unwrap(), connection)
        });
        requests[1].may_be_displaced(true);
        requests[1].may_be_displaced(true);
        requests[1].may_be_displaced(false);
        assert!(!lets_in(&entry, &other));
        requests[1].may_be_displaced(true);
        assert!(lets_in(&entry, &other));
        assert!(connections[1].share.is_displaced());
        drop(requests);
        assert!(
            connections
                .iter()
                .all(|connection| connection.kept_for.load(Ordering::Relaxed) == 0)
        );
    }
}
