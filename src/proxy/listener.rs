//! Listeners: accept the connections of clients, within limits.
//!
//! Does not know what is sent over a connection; `connection` does.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

use super::connect::Protocol;
use super::connection::ClientConnection;
use super::server::{ConnectionSlot, ListenerGroup, ProxyServer};
use super::socket::Socket;
use crate::descriptors;
use crate::throttle::REPEATING;

/// Pause after `accept` failed for want of descriptors, until some are closed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections on `listener` until `group` is stopped, in a task of its
/// own.
pub fn listen(server: &Arc<ProxyServer>, listener: TcpListener, group: Arc<ListenerGroup>) {
    let accepting = Arc::clone(server);
    // Taken before the task runs: whoever waits for the end of the group must
    // not find it without connections while the listener is still open.
    let open = group.connections.token();
    server.tasks.0.spawn(async move {
        let _open = open;
        loop {
            let accepted = tokio::select! {
                () = group.stop.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => admit(&accepting, stream, peer.ip().to_canonical(), &group),
                Err(error) => {
                    tracing::warn!(target: REPEATING, %error, "cannot accept");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    });
}

/// Serves a connection if its client may connect and there is a slot for it.
fn admit(server: &Arc<ProxyServer>, stream: TcpStream, client: IpAddr, group: &Arc<ListenerGroup>) {
    if !group.admits(client, &server.in_force.load().options) {
        tracing::warn!(target: REPEATING, %client, "not in proxy.clients, closed");
        return server.count_refused("client");
    }
    if descriptors::is_reserved(&stream) {
        tracing::warn!(target: REPEATING, %client, "no descriptors are left for crawlers, closed");
        return server.count_refused("descriptors");
    }
    // Without it, Nagle's algorithm and delayed acknowledgements add 40 ms.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "no TCP_NODELAY");
    }
    let socket = Socket::from(stream);
    let Some(slot) = ConnectionSlot::take(server, &socket, group) else {
        tracing::warn!(target: REPEATING, %client, "proxy.max_connections are open, closed");
        return server.count_refused("max_connections");
    };
    if let Some(tally) = &group.tally {
        tally.add_connection();
    }
    let connection = ClientConnection::new(slot, client);
    server
        .tasks
        .0
        .spawn(connection.serve(socket, Protocol::Http1));
}
