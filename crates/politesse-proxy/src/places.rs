//! Places of connections and requests within the limits for all clients, and when a place
//! may pass to a client that holds fewer.
//!
//! A connection can lose its place while none of its requests is under way: all are
//! answered, or wait for their turns. A client that fills every connection with waiting
//! requests therefore cannot keep other clients out, and its waiting requests are still
//! answered. If there is no such connection, one whose requests have been under way for
//! some seconds loses its place. Does not know what happens to a displaced connection.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::available_parallelism;

use politesse_base::clients::client::Resource;
use politesse_base::clients::shares::{DisplacementOrder, Share, Shares};
use politesse_base::metrics::Metrics;

/// Limits on the resources used by clients.
#[derive(Debug, Clone)]
pub struct EntryLimits {
    /// Maximum number of open connections (`proxy.max_connections`).
    pub connections: NonZeroUsize,
    /// Maximum number of concurrent TLS handshakes with clients (`proxy.max_handshakes`).
    pub handshakes: NonZeroUsize,
    /// Maximum number of concurrent requests (`proxy.max_requests`).
    pub requests: NonZeroUsize,
}

/// Shares of the resources that incoming connections and requests use.
#[derive(Debug)]
pub struct EntryShares {
    /// Open connections.
    pub connections: Arc<Shares>,
    /// TLS handshakes in progress.
    pub handshakes: Arc<Shares>,
    /// Requests, from their heads to the ends of their responses.
    pub requests: Arc<Shares>,
    /// Leaf certificates being signed.
    pub leaves: Arc<Shares>,
}

impl EntryShares {
    /// Creates the shares for `limits`.
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

    /// Changes the limits. Clients keep the shares that they hold.
    pub fn set_limits(&self, limits: &EntryLimits) {
        self.connections.set_limit(limits.connections.get());
        self.handshakes.set_limit(limits.handshakes.get());
        self.requests.set_limit(limits.requests.get());
        self.leaves.set_waiting_limit(limits.handshakes.get());
    }
}

/// Returns how many leaf certificates are signed concurrently.
fn signing_at_once() -> NonZeroUsize {
    let cores = available_parallelism().map_or(1, NonZeroUsize::get);
    // A signature keeps a core busy. With one share per core, work would queue in the
    // runtime, which does not distinguish clients, instead of at the shares.
    NonZeroUsize::new(cores / 2).unwrap_or(NonZeroUsize::MIN)
}

/// Place of a connection within the limit on open connections.
#[derive(Debug)]
pub struct ConnectionPlace {
    /// Share of the client's connections that the place takes up.
    share: Share,
    /// Number of requests that keep the connection from being displaced.
    kept_for: AtomicUsize,
}

impl ConnectionPlace {
    /// Creates the place of a connection that has no request yet.
    #[must_use]
    pub fn new(share: Share) -> Arc<Self> {
        share.may_be_displaced(true);
        Arc::new(Self {
            share,
            kept_for: AtomicUsize::new(0),
        })
    }

    /// Completes when another client has taken the place.
    pub async fn displaced(&self) {
        self.share.displaced().await;
    }

    /// Protects the place for one more request.
    // All accesses are relaxed: they guard nothing but the place, and a client that takes
    // it synchronises by the lock of the shares.
    fn keep(&self) {
        if self.kept_for.fetch_add(1, Ordering::Relaxed) == 0 {
            self.share.may_be_displaced(false);
        }
    }

    /// Ends the protection by one request.
    fn release(&self) {
        if self.kept_for.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.share.may_be_displaced(true);
            // Another request of the connection may have arrived in between.
            if self.kept_for.load(Ordering::Relaxed) != 0 {
                self.share.may_be_displaced(false);
            }
        }
    }
}

/// Place of a request within the limit on requests, and its hold on its connection's
/// place. Both are released on drop.
#[derive(Debug)]
pub struct RequestPlace {
    /// Share of the client's requests that the place takes up.
    share: Share,
    /// Place of the connection that carries the request.
    connection: Arc<ConnectionPlace>,
    /// Whether the request currently keeps its connection's place.
    keeps: AtomicBool,
}

impl RequestPlace {
    /// Creates the place of a request on `connection`, whose place is protected from now
    /// on.
    #[must_use]
    pub fn new(share: Share, connection: &Arc<ConnectionPlace>) -> Arc<Self> {
        connection.keep();
        Arc::new(Self {
            share,
            connection: Arc::clone(connection),
            keeps: AtomicBool::new(true),
        })
    }

    /// Sets whether another client may take the place. Allowed only while the request
    /// waits for its turn.
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

    /// Completes when another client has taken the place of the request or of its
    /// connection.
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

    /// Returns clients at two different addresses.
    fn clients() -> [Arc<Client>; 2] {
        let directory = ClientDirectory::default();
        [1, 2].map(|number: u32| directory.at(IpAddr::V4(number.into())))
    }

    /// Returns whether `other` gets a connection.
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
    fn a_waiting_request_does_not_keep_its_connection() {
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
