//! What the connections of one listener have in common: who may connect, where
//! their requests are counted, and when they end.

use std::net::IpAddr;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::tally::Tally;

/// One listener, or several that are alike, as their connections see it.
#[derive(Debug)]
pub struct ListenerGroup {
    /// Whom to admit.
    pub clients: AllowedClients,
    /// Where requests are counted, if they are.
    pub tally: Option<Arc<Tally>>,
    /// Cancelled when no more connections may be accepted, and those that are
    /// open are to end with their requests.
    pub stop: CancellationToken,
    /// Cancelled when what is still going on must end.
    pub abort: CancellationToken,
    /// Holds a token of each connection, so that their end can be waited for.
    pub connections: TaskTracker,
}

/// Who may connect to a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllowedClients {
    /// Those in `proxy.clients`, as it is in force.
    Configured,
    /// This machine alone, whatever `proxy.clients` says: the listener was
    /// opened for a command that runs here.
    Loopback,
}

impl ListenerGroup {
    /// The entrance for the listeners of the configuration.
    #[must_use]
    pub fn configured(stop: &CancellationToken, abort: &CancellationToken) -> Self {
        Self {
            clients: AllowedClients::Configured,
            tally: None,
            stop: stop.clone(),
            abort: abort.clone(),
            connections: TaskTracker::new(),
        }
    }

    /// The entrance for the listener of one command, whose requests `tally`
    /// counts. It ends with the proxy, or before.
    #[must_use]
    pub fn of_command(
        tally: Arc<Tally>,
        stop: &CancellationToken,
        abort: &CancellationToken,
    ) -> Self {
        Self {
            clients: AllowedClients::Loopback,
            tally: Some(tally),
            stop: stop.child_token(),
            abort: abort.child_token(),
            connections: TaskTracker::new(),
        }
    }

    /// Whether `client` may connect, where the configuration says `configured`.
    pub(super) fn admits(&self, client: IpAddr, configured: impl FnOnce(IpAddr) -> bool) -> bool {
        match self.clients {
            AllowedClients::Configured => configured(client),
            AllowedClients::Loopback => client.is_loopback(),
        }
    }
}
