//! Listeners: accept the connections of clients, within limits.
//!
//! Does not know what is sent over a connection; `connection` does.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt::set_tcp_nodelay;
use tokio::net::{TcpListener, TcpStream};

use super::connect::Protocol;
use super::connection::ClientConnection;
use super::server::{ConnectionSlot, ListenerGroup, ProxyServer};
use super::socket::Socket;
use crate::descriptors;
use crate::throttle::REPEATING;
use politesse_robots::origin::Scheme;

/// Pause after `accept` failed for want of descriptors, until some are closed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Socket to accept connections on, and how clients speak to it.
#[derive(Debug)]
pub struct ProxyListener {
    socket: TcpListener,
    scheme: Scheme,
}

impl ProxyListener {
    /// Accepts connections on `socket`, in TLS if `scheme` is `https`.
    #[must_use]
    pub fn new(socket: TcpListener, scheme: Scheme) -> Self {
        Self { socket, scheme }
    }
}

/// Connection that was accepted.
struct Arrival {
    stream: TcpStream,
    client: IpAddr,
    scheme: Scheme,
}

/// Accepts connections on `listener` until `group` is stopped, in a task of its
/// own.
pub fn listen(server: &Arc<ProxyServer>, listener: ProxyListener, group: Arc<ListenerGroup>) {
    let accepting = Arc::clone(server);
    // Taken before the task runs: whoever waits for the end of the group must
    // not find it without connections while the listener is still open.
    let open = group.connections.token();
    send_at_once(&listener.socket);
    server.tasks.0.spawn(async move {
        let _open = open;
        loop {
            let accepted = tokio::select! {
                () = group.stop.cancelled() => return,
                accepted = listener.socket.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => {
                    let arrival = Arrival {
                        stream,
                        client: peer.ip().to_canonical(),
                        scheme: listener.scheme,
                    };
                    admit(&accepting, arrival, &group);
                }
                Err(error) => {
                    tracing::warn!(target: REPEATING, %error, "cannot accept");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    });
}

/// Switches Nagle's algorithm off for the connections of a listener: with delayed
/// acknowledgements it adds 40 ms to small responses.
fn send_at_once(listener: &TcpListener) {
    // Connections have the option from their listener, which saves a system call
    // for each of them.
    if let Err(error) = set_tcp_nodelay(listener, true) {
        tracing::debug!(%error, "no TCP_NODELAY");
    }
}

/// Serves a connection if its client may connect and there is a slot for it.
fn admit(server: &Arc<ProxyServer>, arrival: Arrival, group: &Arc<ListenerGroup>) {
    let Arrival {
        stream,
        client,
        scheme,
    } = arrival;
    if !group.admits(client, &server.in_force.load().options) {
        tracing::warn!(target: REPEATING, %client, "not in proxy.clients, closed");
        return server.count_refused("client");
    }
    if descriptors::is_reserved(&stream) {
        tracing::warn!(target: REPEATING, %client, "no descriptors are left for crawlers, closed");
        return server.count_refused("descriptors");
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
    let tasks = &server.tasks.0;
    match scheme {
        Scheme::Http => tasks.spawn(connection.serve(socket, Protocol::Http1)),
        Scheme::Https => tasks.spawn(connection.serve_tls(socket)),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours: the option is set once, and the system hands it on.
    #[tokio::test]
    async fn connections_have_the_option_of_their_listener() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        send_at_once(&listener);
        let address = listener.local_addr().unwrap();
        let _peer = TcpStream::connect(address).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        assert!(accepted.nodelay().unwrap());
    }
}
