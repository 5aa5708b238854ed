//! Name servers that are asked by the proxy itself (`upstream.resolver`): a
//! question each for the IPv4 and the IPv6 addresses of a name, over UDP, and over
//! TCP where the answer does not fit.
//!
//! RFC 1035; aliases by RFC 1034, section 3.6.2, negative answers by RFC 2308. The
//! servers are recursive ones. A future that is dropped asks no further. Does not
//! know which addresses may be dialled, nor what is cached.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hickory_proto::op::{Edns, Message, MessageType, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};
use thiserror::Error;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Instant, timeout, timeout_at};

use crate::upstream::staggered::first_success;
use politesse_base::clock;
use politesse_base::throttle::REPEATING;
use politesse_decision::access::NoConnection;

/// Time after which the next server is asked as well.
const NEXT_SERVER_AFTER: Duration = Duration::from_millis(500);

/// Longest wait for the addresses of one family behind those of the other (RFC 8305,
/// section 3, has 50 ms for IPv6). The answer is cached, so that it is worth more here.
const RESOLUTION_DELAY: Duration = Duration::from_millis(250);

/// Time after which a question is sent again, since UDP loses packets.
const RESEND_AFTER: Duration = Duration::from_secs(1);

/// Largest answer over UDP: what passes every network in one piece (RFC 9715,
/// section 3).
const UDP_BYTES_MAX: u16 = 1232;

/// Aliases that are followed for one name; a loop of them ends there.
const ALIASES_MAX: usize = 8;

/// Servers in the order in which they are asked.
#[derive(Debug)]
pub(super) struct NameServers {
    addresses: Vec<SocketAddr>,
    /// Index of the server that answered last, which is asked first: one that is
    /// down costs its time once, not for each name.
    preferred: AtomicUsize,
    timeout: Duration,
}

/// A name that is asked for.
#[derive(Debug)]
struct NameQuestion {
    name: Name,
    /// Time at which no server is waited for any more.
    deadline: Instant,
}

/// Addresses of a name, which may be none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct NameAnswer {
    pub(super) addresses: Vec<IpAddr>,
    /// Time for which this holds; absent if nobody said.
    pub(super) ttl: Option<Duration>,
}

/// Reason why a server gave no answer.
#[derive(Debug, Error)]
enum ServerError {
    /// Nothing came in time.
    #[error("it does not answer in time")]
    Timeout,
    /// No socket, or nobody listens there.
    #[error("it cannot be asked: {0}")]
    Io(#[from] io::Error),
    /// The server does not want to answer, or failed to find out.
    #[error("it answers with \"{0}\"")]
    Code(ResponseCode),
    /// The answer over TCP is no answer to the question.
    #[error("its answer cannot be read")]
    Malformed,
    /// The name is an alias of an alias, and so on.
    #[error("its answers lead from one alias to the other")]
    Aliases,
}

/// Content of a message, as far as one kind of record is concerned.
#[derive(Debug, PartialEq, Eq)]
enum Content {
    /// Addresses, or that there are none.
    Answer(NameAnswer),
    /// The name is an alias for one that the message has nothing of.
    Alias(Name),
}

impl NameServers {
    /// Makes a list of servers, for requests that wait for `patience`.
    pub(super) fn new(addresses: Vec<SocketAddr>, patience: Duration) -> Self {
        Self {
            addresses,
            preferred: AtomicUsize::default(),
            // A little less: the requests learn that it is over, and the next ones
            // from the cache, before they give up.
            timeout: patience * 19 / 20,
        }
    }

    /// Asks for the addresses of a name: IPv4 first, since more networks have it.
    ///
    /// # Errors
    ///
    /// [`NoConnection::Dns`] or [`NoConnection::DnsTimeout`] if no server gave an
    /// answer.
    pub(super) async fn ask(&self, name: &str) -> Result<NameAnswer, NoConnection> {
        let first = self.preferred.load(Ordering::Relaxed);
        let count = self.addresses.len();
        let order: Vec<_> = (0..count).map(|place| (first + place) % count).collect();
        let question = NameQuestion {
            // As bytes: some hosts have labels that begin with a hyphen, which the
            // crate takes for a mistake in text.
            name: Name::from_labels(name.split('.').map(str::as_bytes))
                .map_err(|_| NoConnection::Dns)?,
            deadline: clock::instant() + self.timeout,
        };
        let asked = |index| self.ask_server(index, &question);
        let first = first_success(&order, NEXT_SERVER_AFTER, &asked);
        first.await.ok_or(NoConnection::Dns)?
    }

    /// Asks one server; an error is logged with its address.
    async fn ask_server(
        &self,
        index: usize,
        question: &NameQuestion,
    ) -> Result<NameAnswer, NoConnection> {
        let (server, name) = (self.addresses[index], &question.name);
        let kinds = [RecordType::A, RecordType::AAAA];
        let [v4, v6] = kinds.map(|kind| {
            let asked = addresses_of(server, name, kind);
            async {
                timeout_at(question.deadline, asked)
                    .await
                    .map_err(|_| ServerError::Timeout)?
            }
        });
        let answer = match both(v4, v6).await {
            (Ok(v4), Ok(v6)) => Ok(v4.and(v6)),
            // Some servers know one kind of question only.
            (Ok(some), Err(_)) | (Err(_), Ok(some)) if !some.addresses.is_empty() => Ok(some),
            (Err(error), _) | (_, Err(error)) => Err(error),
        };
        answer
            .inspect(|_| self.preferred.store(index, Ordering::Relaxed))
            .map_err(|error| {
                tracing::warn!(
                    target: REPEATING, %server, %name, %error,
                    "a name server of upstream.resolver gave no answer"
                );
                match error {
                    ServerError::Timeout => NoConnection::DnsTimeout,
                    ServerError::Io(_)
                    | ServerError::Code(_)
                    | ServerError::Malformed
                    | ServerError::Aliases => NoConnection::Dns,
                }
            })
    }
}

impl NameAnswer {
    /// Returns both answers as one, which holds for as long as both do.
    fn and(mut self, other: Self) -> Self {
        self.ttl = match (self.addresses.is_empty(), other.addresses.is_empty()) {
            // That a kind of address is missing says nothing about the other.
            (true, false) => other.ttl,
            (false, true) => self.ttl,
            (true, true) | (false, false) => self.ttl.into_iter().chain(other.ttl).min(),
        };
        self.addresses.extend(other.addresses);
        self
    }
}

/// Waits for the answers about IPv4 and IPv6 addresses; once one of them has addresses,
/// for [`RESOLUTION_DELAY`] at most for the other. Some networks drop what is asked about
/// IPv6, and a name whose addresses are known need not wait for that.
async fn both<F>(v4: F, v6: impl Future<Output = F::Output>) -> (F::Output, F::Output)
where
    F: Future<Output = Result<NameAnswer, ServerError>>,
{
    let (mut v4, mut v6) = (pin!(v4), pin!(v6));
    let has_addresses = |answer: &F::Output| {
        answer
            .as_ref()
            .is_ok_and(|answer| !answer.addresses.is_empty())
    };
    let late = |_| Err(ServerError::Timeout);
    tokio::select! {
        answer = v4.as_mut() => match has_addresses(&answer) {
            true => (answer, timeout(RESOLUTION_DELAY, v6).await.unwrap_or_else(late)),
            false => (answer, v6.await),
        },
        answer = v6.as_mut() => match has_addresses(&answer) {
            true => (timeout(RESOLUTION_DELAY, v4).await.unwrap_or_else(late), answer),
            false => (v4.await, answer),
        },
    }
}

/// Asks `server` for one kind of address, wherever aliases lead.
async fn addresses_of(
    server: SocketAddr,
    name: &Name,
    kind: RecordType,
) -> Result<NameAnswer, ServerError> {
    let mut name = name.clone();
    for _ in 0..ALIASES_MAX {
        let message = exchange(server, Query::query(name.clone(), kind)).await?;
        match content(&message, &name, kind)? {
            Content::Answer(answer) => return Ok(answer),
            Content::Alias(target) => name = target,
        }
    }
    Err(ServerError::Aliases)
}

/// Reads what a message says about `name`.
fn content(message: &Message, name: &Name, kind: RecordType) -> Result<Content, ServerError> {
    let code = message.metadata.response_code;
    if !matches!(code, ResponseCode::NoError | ResponseCode::NXDomain) {
        return Err(ServerError::Code(code));
    }
    let (mut owner, mut ttl) = (name, u32::MAX);
    for _ in 0..ALIASES_MAX {
        let own = || {
            message
                .answers
                .iter()
                .filter(|record| record.name == *owner)
        };
        let mut addresses = Vec::new();
        for record in own().filter(|record| record.record_type() == kind) {
            addresses.extend(address(&record.data));
            ttl = ttl.min(record.ttl);
        }
        if !addresses.is_empty() {
            let ttl = Some(Duration::from_secs(ttl.into()));
            return Ok(Content::Answer(NameAnswer { addresses, ttl }));
        }
        let alias = own().find_map(|record| Some((alias_target(&record.data)?, record.ttl)));
        let Some((target, alias_ttl)) = alias else {
            let negative = negative_ttl(message).map(|negative| negative.min(ttl));
            // Without the zone of the alias' target nothing is said about that.
            if negative.is_none() && owner != name && code == ResponseCode::NoError {
                return Ok(Content::Alias(owner.clone()));
            }
            return Ok(Content::Answer(NameAnswer {
                addresses,
                ttl: negative.map(|seconds| Duration::from_secs(seconds.into())),
            }));
        };
        (owner, ttl) = (target, ttl.min(alias_ttl));
    }
    Err(ServerError::Aliases)
}

/// Returns for how many seconds a name has no address (RFC 2308, section 5).
fn negative_ttl(message: &Message) -> Option<u32> {
    let mut authorities = message.authorities.iter();
    authorities.find_map(|record| {
        let RData::SOA(soa) = &record.data else {
            return None;
        };
        Some(record.ttl.min(soa.minimum))
    })
}

fn address(data: &RData) -> Option<IpAddr> {
    if let RData::A(address) = data {
        return Some(IpAddr::V4(address.0));
    }
    let RData::AAAA(address) = data else {
        return None;
    };
    Some(IpAddr::V6(address.0))
}

fn alias_target(data: &RData) -> Option<&Name> {
    let RData::CNAME(target) = data else {
        return None;
    };
    Some(&target.0)
}

/// Asks a question over UDP, again and again until there is an answer, and over
/// TCP if that is too large.
async fn exchange(server: SocketAddr, query: Query) -> Result<Message, ServerError> {
    // With a random number (RFC 5452, section 9.2).
    let mut question = Message::query();
    question.metadata.recursion_desired = true;
    question.add_query(query);
    let mut edns = Edns::new();
    edns.set_max_payload(UDP_BYTES_MAX);
    question.set_edns(edns);
    let bytes = question.to_vec().map_err(|_| ServerError::Malformed)?;
    // A socket of its own for each question: the system gives each a random port.
    // Connected, it takes packets of the server alone.
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    let answer = loop {
        socket.send(&bytes).await?;
        if let Ok(received) = timeout(RESEND_AFTER, receive(&socket, &question)).await {
            break received?;
        }
    };
    if answer.metadata.truncation {
        return exchange_over_tcp(server, &question, &bytes).await;
    }
    Ok(answer)
}

/// Receives the answer to `question`; whatever else comes is not from the server.
async fn receive(socket: &UdpSocket, question: &Message) -> io::Result<Message> {
    let mut buffer = [0; UDP_BYTES_MAX as usize];
    loop {
        let length = socket.recv(&mut buffer).await?;
        let received = buffer.get(..length).unwrap_or(&buffer);
        if let Some(answer) = answer_to(question, received) {
            return Ok(answer);
        }
    }
}

async fn exchange_over_tcp(
    server: SocketAddr,
    question: &Message,
    bytes: &[u8],
) -> Result<Message, ServerError> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(bytes.len()).map_err(|_| ServerError::Malformed)?;
    // In one piece: some servers read no further than the first segment.
    stream
        .write_all(&[&length.to_be_bytes(), bytes].concat())
        .await?;
    let mut buffer = vec![0; stream.read_u16().await?.into()];
    stream.read_exact(&mut buffer).await?;
    answer_to(question, &buffer).ok_or(ServerError::Malformed)
}

/// Reads a message, if it is an answer to `question` (RFC 5452, section 9.1).
fn answer_to(question: &Message, bytes: &[u8]) -> Option<Message> {
    let answer = Message::from_vec(bytes).ok()?;
    let is_answer = answer.metadata.message_type == MessageType::Response
        && answer.metadata.id == question.metadata.id
        && answer.queries == question.queries;
    is_answer.then_some(answer)
}

#[cfg(test)]
mod tests;
