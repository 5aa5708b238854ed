//! Connections to origins that belong to a single client connection.
//!
//! Some origins authenticate a connection rather than each request: NTLM, and Negotiate
//! in most implementations (RFC 4559, section 6). They treat every later request on the
//! connection as coming from the same client. So the connection carries no other
//! requests, and no fetches of the proxy itself. It never enters the pool, and is closed
//! with the client's connection. Does not know which requests use a connection.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use http::HeaderMap;
use http::header::{AUTHORIZATION, HeaderName, WWW_AUTHENTICATE};
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::sleep;

use super::connect::Connection;
use super::pool::Pool;
use politesse_base::clock::Stamp;
use politesse_robots::origin::Origin;

/// Schemes that authenticate connections. The IANA registry lists Negotiate with a note
/// to that effect; the others are Microsoft's.
const CONNECTION_SCHEMES: [&str; 4] = ["ntlm", "negotiate", "nego2", "kerberos"];

/// Field in which a server states that a connection stays authenticated.
const PERSISTENT_AUTH: HeaderName = HeaderName::from_static("persistent-auth");

/// Maximum number of idle private connections per client connection. A browser keeps six
/// per host, each of which is a separate client connection here. All together are limited
/// to half of `upstream.pool_idle_total`.
const IDLE_MAX: usize = 4;

/// Reports whether a request or response with `fields` is part of authenticating its
/// connection.
pub(super) fn authenticates_connection(fields: &HeaderMap) -> bool {
    fields.contains_key(PERSISTENT_AUTH)
        || fields
            .get_all(AUTHORIZATION)
            .iter()
            .chain(fields.get_all(WWW_AUTHENTICATE))
            .any(|value| has_connection_scheme(value.as_bytes()))
}

/// Reports whether a list of credentials or challenges contains a connection-based
/// scheme. A match inside a quoted parameter counts, too, which only costs one
/// connection.
fn has_connection_scheme(value: &[u8]) -> bool {
    let challenges = value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
    let mut schemes = challenges.filter_map(|one| one.split(u8::is_ascii_whitespace).next());
    schemes.any(|scheme| {
        CONNECTION_SCHEMES
            .iter()
            .any(|known| scheme.eq_ignore_ascii_case(known.as_bytes()))
    })
}

/// Idle connections reserved for the requests of one client connection. Closed on drop.
#[derive(Debug, Default)]
pub struct PrivateConnections(Mutex<VecDeque<PrivateConnection>>);

#[derive(Debug)]
struct PrivateConnection {
    origin: Origin,
    connection: Connection,
    since: Stamp,
    /// Name of the credential required to use it, if any.
    credential: Option<Arc<str>>,
    /// Pool of the configuration under which the connection was opened.
    pool: Weak<Pool>,
    _place: OwnedSemaphorePermit,
}

/// Private connections available to requests with one credential. A client connection may
/// carry several clients, each with its own credential.
#[derive(Debug, Clone)]
pub struct PrivateScope {
    /// All private connections of the client connection.
    pub connections: Arc<PrivateConnections>,
    /// Name of the credential, if any.
    pub credential: Option<Arc<str>>,
}

impl PrivateScope {
    /// Takes the most recently used connection to `origin`. Connections opened under a
    /// different configuration than that of `pool` are closed, because the current one
    /// may deny their destinations.
    pub(super) fn take(&self, origin: &Origin, pool: &Arc<Pool>) -> Option<Connection> {
        let mut idle = self.connections.idle();
        if idle.is_empty() {
            return None;
        }
        idle.retain(|one| {
            let is_of_pool = std::ptr::eq(one.pool.as_ptr(), Arc::as_ptr(pool));
            one.is_usable() && is_of_pool
        });
        let fits =
            |one: &PrivateConnection| one.origin == *origin && one.credential == self.credential;
        let newest = idle.iter().rposition(fits)?;
        Some(idle.remove(newest)?.connection)
    }

    /// Returns a connection after use. If there are too many, the oldest is closed. If
    /// the limit for all clients is reached, this one is closed.
    pub(super) fn put(self, origin: Origin, connection: Connection, pool: &Arc<Pool>) {
        let mut idle = self.connections.idle();
        if IDLE_MAX <= idle.len() {
            idle.pop_front();
        }
        // A body may be dropped outside a runtime, at the end of a process.
        let (Some(place), Ok(runtime)) = (pool.private_place(), Handle::try_current()) else {
            return;
        };
        idle.push_back(PrivateConnection {
            origin,
            connection,
            since: Stamp::now(),
            credential: self.credential,
            pool: Arc::downgrade(pool),
            _place: place,
        });
        let connections = Arc::downgrade(&self.connections);
        runtime.spawn(close_in_time(connections, pool.idle_timeout()));
    }
}

/// Waits until a connection returned now has expired, then closes all expired ones.
async fn close_in_time(connections: Weak<PrivateConnections>, idle_timeout: Duration) {
    sleep(idle_timeout).await;
    if let Some(connections) = connections.upgrade() {
        connections.idle().retain(PrivateConnection::is_usable);
    }
}

impl PrivateConnection {
    fn is_usable(&self) -> bool {
        let pool = self.pool.upgrade();
        let is_in_force =
            pool.is_some_and(|pool| self.since.age() < pool.idle_timeout() && !pool.is_retired());
        is_in_force && !self.connection.is_closed()
    }
}

impl PrivateConnections {
    fn idle(&self) -> MutexGuard<'_, VecDeque<PrivateConnection>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 9110, section 11.6: a challenge is one item of a list, and its scheme is
    // case-insensitive. RFC 4559, section 4.
    #[test]
    fn only_connection_based_schemes_authenticate_a_connection() {
        for (name, value, expected) in [
            (WWW_AUTHENTICATE, "NTLM", true),
            (WWW_AUTHENTICATE, "negotiate", true),
            (WWW_AUTHENTICATE, "Negotiate oRQwEqAD", true),
            (WWW_AUTHENTICATE, "Basic realm=\"a, b\", NTLM", true),
            (WWW_AUTHENTICATE, "Basic realm=\"NTLM\"", false),
            (WWW_AUTHENTICATE, "Digest realm=\"a\", nonce=\"b\"", false),
            (AUTHORIZATION, "NTLM TlRMTVNTUAAB", true),
            (AUTHORIZATION, "Negotiate YII", true),
            (AUTHORIZATION, "Bearer NTLM", false),
            (PERSISTENT_AUTH, "true", true),
        ] {
            let fields = HeaderMap::from_iter([(name, value.parse().unwrap())]);
            assert_eq!(authenticates_connection(&fields), expected, "{value}");
        }
    }
}
