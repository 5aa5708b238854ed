//! Listeners: accept the connections of clients, within limits.
//!
//! Does not know what is sent over a connection; `connection` does.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::connect::Protocol;
use super::connection::ClientConnection;
use super::overload;
use super::problem::Problem;
use super::proxy_protocol::{ProxyHeaderError, read_client};
use super::server::{ConnectionSlot, ListenerGroup, ProxyServer};
use super::socket::Socket;
use politesse_base::clients::shares::ShareRefusal;
use politesse_base::descriptors;
use politesse_base::throttle::REPEATING;
use politesse_robots::origin::Scheme;

/// Pause after `accept` failed for want of descriptors, until some are closed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Most bytes that the system keeps for a client and has not sent.
///
/// Of an endless response, a client that takes next to nothing would have the proxy
/// copy up to 4 MiB into the send buffer of each of its connections, in the time of
/// others. What is on its way does not count, so a client far away has the rate that
/// it had; with half of this, one nearby waits for more wake-ups.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNSENT_BYTES_MAX: u32 = 128 * 1024;

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
    set_options(&listener.socket);
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
                    receive(&accepting, arrival, &group);
                }
                Err(error) => {
                    tracing::warn!(target: REPEATING, %error, "cannot accept");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    });
}

/// Sets the options of the connections of a listener.
fn set_options(listener: &TcpListener) {
    // Connections have the options from their listener, which saves a system call
    // for each of them.
    let socket = SockRef::from(listener);
    // With delayed acknowledgements, Nagle's algorithm adds 40 ms to small
    // responses.
    if let Err(error) = socket.set_tcp_nodelay(true) {
        tracing::debug!(%error, "no TCP_NODELAY");
    }
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if let Err(error) = socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX) {
        tracing::debug!(%error, "no TCP_NOTSENT_LOWAT");
    }
}

/// Admits a connection, once it has named its client if it comes from a load
/// balancer.
fn receive(server: &Arc<ProxyServer>, arrival: Arrival, group: &Arc<ListenerGroup>) {
    let in_force = server.in_force.load();
    if !group.wants_header(arrival.client, &in_force.options) {
        return admit(server, arrival, group);
    }
    // Which client it is decides whose place it may take, so it has none until then
    // but one of its own kind.
    if descriptors::is_reserved(&arrival.stream) {
        server.awaited_headers.displace_oldest();
    }
    let most = in_force.options.limits.handshakes.get();
    let awaited = server.awaited_headers.join(most);
    let longest = in_force.options.header_timeout;
    let (accepting, group) = (Arc::clone(server), Arc::clone(group));
    let open = group.connections.token();
    server.tasks.0.spawn(async move {
        let _open = open;
        let balancer = arrival.client;
        let named = tokio::select! {
            () = group.stop.cancelled() => return,
            () = awaited.displaced.cancelled() => {
                tracing::warn!(target: REPEATING, %balancer, "another connection has taken the place \
                    of one without a PROXY header (proxy.max_handshakes)");
                return accepting.count_refused("max_handshakes");
            }
            named = timeout(longest, named_by_header(arrival)) => named,
        };
        drop(awaited);
        match named.unwrap_or(Err(ProxyHeaderError::Timeout)) {
            Ok(arrival) => admit(&accepting, arrival, &group),
            Err(error) => {
                let cause = std::error::Error::source(&error).map(tracing::field::display);
                tracing::warn!(target: REPEATING, %balancer, cause, "{error}, closed");
                accepting.count_refused("proxy_header");
            }
        }
    });
}

/// Returns the connection with the client that its header names.
async fn named_by_header(mut arrival: Arrival) -> Result<Arrival, ProxyHeaderError> {
    if let Some(client) = read_client(&mut arrival.stream).await? {
        arrival.client = client;
    }
    Ok(arrival)
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
    #[cfg(any(target_os = "linux", target_os = "android"))]
    use tokio::net::TcpSocket;

    use super::*;

    /// Time in which a buffer that can be written to is found to be so.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const PAUSE: Duration = Duration::from_millis(300);

    // Ours: the options are set once, and the system hands them on.
    #[tokio::test]
    async fn connections_have_the_options_of_their_listener() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        set_options(&listener);
        let address = listener.local_addr().unwrap();
        let _peer = TcpStream::connect(address).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        assert!(accepted.nodelay().unwrap());
        #[cfg(any(target_os = "linux", target_os = "android"))]
        {
            let unsent = SockRef::from(&accepted).tcp_notsent_lowat().unwrap();
            assert_eq!(unsent, UNSENT_BYTES_MAX);
        }
    }

    // Ours: the bytes are written in the time of other clients.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    #[tokio::test]
    async fn no_more_is_written_for_a_client_that_takes_nothing_than_it_has_room_for() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        set_options(&listener);
        let address = listener.local_addr().unwrap();
        let peer = TcpSocket::new_v4().unwrap();
        // The system doubles it, for what it keeps beside the bytes.
        peer.set_recv_buffer_size(UNSENT_BYTES_MAX / 2).unwrap();
        let _peer = peer.connect(address).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        let (mut written, part) = (0, [0; 16 * 1024]);
        // Two bounds: of the peer's system, and ours, each by one write too late.
        while let Ok(Ok(())) = timeout(PAUSE, accepted.writable()).await {
            written += accepted.try_write(&part).unwrap_or_default();
        }
        let most = 2 * UNSENT_BYTES_MAX as usize + 4 * part.len();
        assert!(written <= most, "{written}");
    }
}
