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
use super::overload;
use super::problem::Problem;
use super::server::{ConnectionSlot, ListenerGroup, ProxyServer};
use super::socket::Socket;
use crate::clients::shares::ShareRefusal;
use crate::descriptors;
use crate::throttle::REPEATING;
use politesse_robots::origin::Scheme;

/// Pause after `accept` failed for want of descriptors, until some are closed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Limits that a connection is refused by, as they are named to its client.
const CONNECTIONS: &str = "proxy.max_connections";
const DESCRIPTORS: &str = "the limit of descriptors";

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

/// Serves a connection if its client may connect and there is a place for it.
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
    let sharer = server.clients.at(client);
    let connections = &server.entry.connections;
    // A connection of another client may be closed for this one, which takes its
    // descriptor for that time out of the reserve.
    if descriptors::is_reserved(&stream) && !connections.make_room(&sharer) {
        tracing::warn!(target: REPEATING, %client, "no descriptors are left for crawlers");
        server.count_refused("descriptors");
        return turn_away(
            server,
            stream,
            group,
            &overload(DESCRIPTORS, ShareRefusal::Full),
        );
    }
    let share = match connections.take_now(&sharer) {
        Ok(share) => share,
        Err(refusal) => {
            tracing::warn!(target: REPEATING, %client, "proxy.max_connections: {refusal}");
            server.count_refused("max_connections");
            return turn_away(server, stream, group, &overload(CONNECTIONS, refusal));
        }
    };
    let socket = Socket::from(stream);
    let slot = ConnectionSlot::new(server, &socket, group, share);
    if let Some(tally) = &group.tally {
        tally.add_connection();
    }
    let connection = ClientConnection::new(slot, client, sharer);
    let tasks = &server.tasks.0;
    match scheme {
        Scheme::Http => tasks.spawn(connection.serve(socket, Protocol::Http1)),
        Scheme::Https => tasks.spawn(connection.serve_tls(socket)),
    };
}

fn overload(key: &'static str, refusal: ShareRefusal) -> Problem {
    Problem::Overload { key, refusal }
}

/// Answers a connection that has no place, and closes it.
fn turn_away(
    server: &Arc<ProxyServer>,
    stream: TcpStream,
    group: &Arc<ListenerGroup>,
    problem: &Problem,
) {
    let answer = server.in_force.load().proxy.turn_away_unread(problem);
    let place = Arc::clone(&server.turned_away).try_acquire_owned();
    let Some(place) = place
        .ok()
        .filter(|_| !descriptors::is_in_last_reserve(&stream))
    else {
        return overload::answer_now(&stream, &answer);
    };
    let group = Arc::clone(group);
    server.tasks.0.spawn(async move {
        let _place = place;
        tokio::select! {
            () = group.stop.cancelled() => {}
            () = overload::answer_and_close(stream, answer) => {}
        }
    });
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
