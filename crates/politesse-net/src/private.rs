//! Connections to origins that belong to one connection of a client.
//!
//! Some origins authenticate a connection in place of each request: NTLM, and
//! Negotiate as most servers have it (RFC 4559, section 6). They answer whatever
//! comes over it next as that client. So no other request is sent there, nor a fetch of
//! the proxy's own. Such connections never enter the pool, and are closed with the
//! client's. Does not know which requests go over a connection.

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

/// Schemes that authenticate connections. The registry of IANA has Negotiate, and says
/// so of it; the others are Microsoft's.
const CONNECTION_SCHEMES: [&str; 4] = ["ntlm", "negotiate", "nego2", "kerberos"];

/// Field by which a server says that a connection stays authenticated.
const PERSISTENT_AUTH: HeaderName = HeaderName::from_static("persistent-auth");

/// Idle connections of one client's connection. A browser keeps six to a host, and each
/// of them is a connection of its own here. All together have half of
/// `upstream.pool_idle_total`.
const IDLE_MAX: usize = 4;

/// Reports whether a request or a response with `fields` is part of the authentication
/// of its connection.
pub(super) fn authenticates_connection(fields: &HeaderMap) -> bool {
    fields.contains_key(PERSISTENT_AUTH)
        || fields
            .get_all(AUTHORIZATION)
            .iter()
            .chain(fields.get_all(WWW_AUTHENTICATE))
            .any(|value| has_connection_scheme(value.as_bytes()))
}

/// Reports whether a scheme of connections is in a list of credentials or challenges.
/// One that stands in a quoted parameter counts, too: that costs one connection.
fn has_connection_scheme(value: &[u8]) -> bool {
    let challenges = value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
    let mut schemes = challenges.filter_map(|one| one.split(u8::is_ascii_whitespace).next());
    schemes.any(|scheme| {
        CONNECTION_SCHEMES
            .iter()
            .any(|known| scheme.eq_ignore_ascii_case(known.as_bytes()))
    })
}

/// Idle connections that only the requests of one client's connection may use.
/// Dropped, they are closed.
#[derive(Debug, Default)]
pub struct PrivateConnections(Mutex<VecDeque<PrivateConnection>>);

#[derive(Debug)]
struct PrivateConnection {
    origin: Origin,
    connection: Connection,
    since: Stamp,
    /// Name of the credential of the requests that may use it.
    credential: Option<Arc<str>>,
    /// Pool of the configuration under which it was made.
    pool: Weak<Pool>,
    _place: OwnedSemaphorePermit,
}

/// Private connections as the requests with one credential may use them. Several
/// clients may come over one connection, each with a credential of its own.
#[derive(Debug, Clone)]
pub struct PrivateScope {
    /// All of the client's connection.
    pub connections: Arc<PrivateConnections>,
    /// Name of the credential, if there is one.
    pub credential: Option<Arc<str>>,
}

impl PrivateScope {
    /// Takes the connection to `origin` that was used last. None is used that was made
    /// under an earlier configuration than `pool`, which may deny what it leads to.
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

    /// Puts a connection in; the oldest is closed if there are too many. It is closed
    /// itself where those of all clients have no place left.
    pub(super) fn put(self, origin: Origin, connection: Connection, pool: &Arc<Pool>) {
        let mut idle = self.connections.idle();
        if IDLE_MAX <= idle.len() {
            idle.pop_front();
        }
        // A body may be dropped where no runtime is, at the end of a process.
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

/// Closes the connections that have expired once one that was put in now has.
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

    // RFC 9110, section 11.6: a challenge is one of a list, and its scheme has any
    // case. RFC 4559, section 4.
    #[test]
    fn a_connection_is_authenticated_by_few_schemes() {
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
