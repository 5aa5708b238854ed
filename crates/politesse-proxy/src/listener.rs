//! Listeners: accept client connections within the configured limits.
//!
//! Does not know the protocol spoken over a connection; `connection` does.

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

/// Pause after `accept` fails, for example because no descriptors are free, so that some
/// can be closed in the meantime.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Limit on the unsent bytes in the kernel's send buffer of a client connection
/// (`TCP_NOTSENT_LOWAT`).
///
/// Without it, a client that reads almost nothing of an endless response would make the
/// proxy copy up to 4 MiB into the send buffer of each connection, at the expense of
/// other clients. Bytes in flight do not count, so a distant client keeps its full rate.
/// Half of this limit would already cost a nearby client more wake-ups.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNSENT_BYTES_MAX: u32 = 128 * 1024;

/// Limits that can refuse a connection, as named in the answer to the client.
const CONNECTIONS: &str = "proxy.max_connections";
const DESCRIPTORS: &str = "the limit of descriptors";

/// Listening socket and the scheme that its clients use.
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

/// An accepted connection.
struct Arrival {
    stream: TcpStream,
    /// Address of the client: that of the peer, until a PROXY header names another.
    client: IpAddr,
    /// `https` for TLS to the proxy.
    scheme: Scheme,
}

/// Spawns a task that accepts connections on `listener` until `group` is stopped.
pub fn listen(server: &Arc<ProxyServer>, listener: ProxyListener, group: Arc<ListenerGroup>) {
    let accepting = Arc::clone(server);
    // Taken before the task runs. Otherwise, a shutdown that waits for the group's
    // connections could find none while the listener is still open.
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

/// Sets the socket options that accepted connections inherit from `listener`.
fn set_options(listener: &TcpListener) {
    // Accepted sockets inherit these options, which saves a system call per connection.
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

/// Admits a connection. A connection from a load balancer is admitted only after its
/// PROXY header has named the client.
fn receive(server: &Arc<ProxyServer>, arrival: Arrival, group: &Arc<ListenerGroup>) {
    let in_force = server.in_force.load();
    if !group.wants_header(arrival.client, &in_force.options) {
        return admit(server, arrival, group);
    }
    // Only the client's identity decides whose place it may take. Until the header has
    // named the client, it can only displace another connection that awaits a header.
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

/// Reads the PROXY header and returns the connection with the client that it names.
async fn named_by_header(mut arrival: Arrival) -> Result<Arrival, ProxyHeaderError> {
    if let Some(client) = read_client(&mut arrival.stream).await? {
        arrival.client = client;
    }
    Ok(arrival)
}

/// Serves a connection if its client may connect and a connection place is free.
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
    // Room for this connection may require closing another client's connection. Until
    // that one is closed, this one uses a descriptor of the reserve.
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

/// Returns the problem that a connection beyond the limit `key` is answered with.
fn overload(key: &'static str, refusal: ShareRefusal) -> Problem {
    Problem::Overload { key, refusal }
}

/// Answers a connection that got no place, then closes it.
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

    /// Time within which a writable buffer is reported as writable.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const PAUSE: Duration = Duration::from_millis(300);

    // Ours: the options are set once, on the listener, and accepted sockets inherit them.
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

    // Ours: copying bytes for a client that does not read takes time from other clients.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    #[tokio::test]
    async fn unsent_bytes_are_bounded_for_a_client_that_reads_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        set_options(&listener);
        let address = listener.local_addr().unwrap();
        let peer = TcpSocket::new_v4().unwrap();
        // The system doubles this value, to account for its own bookkeeping.
        peer.set_recv_buffer_size(UNSENT_BYTES_MAX / 2).unwrap();
        let _peer = peer.connect(address).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        let (mut written, part) = (0, [0; 16 * 1024]);
        // Two buffers limit the bytes: the peer's and ours. Each can be exceeded by one
        // write.
        while let Ok(Ok(())) = timeout(PAUSE, accepted.writable()).await {
            written += accepted.try_write(&part).unwrap_or_default();
        }
        let most = 2 * UNSENT_BYTES_MAX as usize + 4 * part.len();
        assert!(written <= most, "{written}");
    }
}
