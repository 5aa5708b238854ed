//! A name server on loopback that answers on cue.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use hickory_proto::op::OpCode;
use hickory_proto::rr::Record;
use hickory_proto::rr::rdata::{A, AAAA, CNAME, SOA};
use hyper::rt::Executor as _;
use tokio::net::TcpListener;

use super::*;
use politesse_base::clock;
use politesse_base::tasks::Tasks;

/// Time for which requests wait.
const PATIENCE: Duration = Duration::from_secs(5);

/// Zone of a server: what it answers, `None` for nothing at all.
type Zone = fn(&Query, Via) -> Option<Message>;

/// Transport of a question.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Via {
    Udp,
    Tcp,
}

/// A server that answers by `zone`, and counts the questions.
struct Stub {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
}

impl Stub {
    async fn start(zone: Zone) -> Self {
        let (udp, tcp) = loop {
            let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            // The same port may be taken for TCP.
            if let Ok(tcp) = TcpListener::bind(udp.local_addr().unwrap()).await {
                break (udp, tcp);
            }
        };
        let stub = Self {
            address: udp.local_addr().unwrap(),
            asked: Arc::default(),
        };
        let asked = Arc::clone(&stub.asked);
        Tasks::default().execute(async move {
            let mut buffer = [0; 512];
            while let Ok((length, from)) = udp.recv_from(&mut buffer).await {
                asked.fetch_add(1, Ordering::SeqCst);
                if let Some(answer) = answer(zone, &buffer[..length], Via::Udp) {
                    udp.send_to(&answer, from).await.unwrap();
                }
            }
        });
        Tasks::default().execute(async move {
            while let Ok((mut stream, _)) = tcp.accept().await {
                let mut question = vec![0; stream.read_u16().await.unwrap().into()];
                stream.read_exact(&mut question).await.unwrap();
                let answer = answer(zone, &question, Via::Tcp).unwrap();
                let length = u16::try_from(answer.len()).unwrap();
                stream.write_u16(length).await.unwrap();
                stream.write_all(&answer).await.unwrap();
            }
        });
        stub
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

fn answer(zone: Zone, question: &[u8], via: Via) -> Option<Vec<u8>> {
    let question = Message::from_vec(question).unwrap();
    assert!(question.metadata.recursion_desired);
    let query = question.queries[0].clone();
    let mut answer = zone(&query, via)?;
    answer.metadata.id = answer.metadata.id.wrapping_add(question.metadata.id);
    if answer.queries.is_empty() {
        answer.add_query(query);
    }
    Some(answer.to_vec().unwrap())
}

fn name(text: &str) -> Name {
    Name::from_ascii(text).unwrap()
}

/// A message with records, and a number to add to that of the question.
fn message(answers: &[(&str, u32, RData)]) -> Message {
    let mut message = Message::response(0, OpCode::Query);
    for (owner, ttl, data) in answers {
        message.add_answer(Record::from_rdata(name(owner), *ttl, data.clone()));
    }
    message
}

fn v4(text: &str) -> RData {
    RData::A(A(text.parse().unwrap()))
}

fn v6(text: &str) -> RData {
    RData::AAAA(AAAA(text.parse().unwrap()))
}

fn alias(target: &str) -> RData {
    RData::CNAME(CNAME(name(target)))
}

fn code(code: ResponseCode) -> Message {
    let mut message = message(&[]);
    message.metadata.response_code = code;
    message
}

/// "There is none", for so many seconds.
fn negative(response: ResponseCode, ttl: u32, minimum: u32) -> Message {
    let mut message = code(response);
    let [mname, rname] = ["ns.test.", "root.test."].map(name);
    let soa = SOA::new(mname, rname, 1, 1, 1, 1, minimum);
    message.add_authority(Record::from_rdata(name("test."), ttl, RData::SOA(soa)));
    message
}

/// Both kinds of addresses, one of each name.
fn both(query: &Query, _: Via) -> Option<Message> {
    let owner = query.name().to_string();
    let (ttl, data) = if query.query_type() == RecordType::A {
        (60, v4("93.184.216.34"))
    } else {
        (30, v6("2606:4700::1111"))
    };
    Some(message(&[(&owner, ttl, data)]))
}

fn refuses(_: &Query, _: Via) -> Option<Message> {
    Some(code(ResponseCode::ServFail))
}

fn silent(_: &Query, _: Via) -> Option<Message> {
    None
}

async fn asked(zone: Zone, name: &str) -> Result<NameAnswer, NoConnection> {
    let stub = Stub::start(zone).await;
    NameServers::new(vec![stub.address], PATIENCE)
        .ask(name)
        .await
}

fn found(addresses: &[&str], ttl: u64) -> Result<NameAnswer, NoConnection> {
    Ok(NameAnswer {
        addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
        ttl: Some(Duration::from_secs(ttl)),
    })
}

// RFC 1035; RFC 3596.
#[tokio::test]
async fn both_kinds_of_addresses_are_asked_for() {
    let expected = found(&["93.184.216.34", "2606:4700::1111"], 30);
    assert_eq!(asked(both, "o.test").await, expected);
}

// Ours: there are such names, whatever RFC 1123, section 2.1, says.
#[tokio::test]
async fn any_label_of_a_host_name_is_asked_for() {
    let zone: Zone = |query, _| {
        let mut answer = message(&[]);
        if query.query_type() == RecordType::A {
            let address = v4("93.184.216.34");
            answer.add_answer(Record::from_rdata(query.name().clone(), 60, address));
        }
        Some(answer)
    };
    let expected = found(&["93.184.216.34"], 60);
    assert_eq!(asked(zone, "-a_b-.test").await, expected);
}

// RFC 1034, section 3.6.2: the shortest time of the chain counts.
#[tokio::test]
async fn aliases_are_followed_within_a_message_and_beyond() {
    let chain: Zone = |query, _| {
        let target = ("c.test.", 50, v4("93.184.216.34"));
        Some(match (query.query_type(), &*query.name().to_string()) {
            (RecordType::A, "a.test.") => message(&[
                ("a.test.", 40, alias("b.test.")),
                ("b.test.", 20, alias("c.test.")),
                target,
            ]),
            (RecordType::A, "far.test.") => message(&[("far.test.", 40, alias("c.test."))]),
            (RecordType::A, "c.test.") => message(&[target]),
            (_, "loop.test.") => message(&[("loop.test.", 40, alias("loop.test."))]),
            _ => negative(ResponseCode::NoError, 5, 5),
        })
    };
    for (name, ttl) in [("a.test", 20), ("far.test", 50)] {
        assert_eq!(asked(chain, name).await, found(&["93.184.216.34"], ttl));
    }
    assert_eq!(asked(chain, "loop.test").await, Err(NoConnection::Dns));
}

// RFC 2308, section 5.
#[tokio::test]
async fn a_negative_answer_holds_for_as_long_as_its_zone_says() {
    let none: Zone = |query, _| {
        Some(match &*query.name().to_string() {
            "gone.test." => negative(ResponseCode::NXDomain, 300, 60),
            "empty.test." => negative(ResponseCode::NoError, 40, 60),
            _ => code(ResponseCode::NXDomain),
        })
    };
    assert_eq!(asked(none, "gone.test").await, found(&[], 60));
    assert_eq!(asked(none, "empty.test").await, found(&[], 40));
    assert_eq!(asked(none, "other.test").await, Ok(NameAnswer::default()));
}

// RFC 7766, section 5.
#[tokio::test]
async fn what_does_not_fit_is_asked_for_over_tcp() {
    let large: Zone = |query, via| {
        let mut answer = both(query, via)?;
        if via == Via::Udp {
            answer.answers.clear();
            answer.metadata.truncation = true;
        }
        Some(answer)
    };
    let expected = found(&["93.184.216.34", "2606:4700::1111"], 30);
    assert_eq!(asked(large, "o.test").await, expected);
}

// RFC 5452, section 9.1.
#[tokio::test]
async fn an_answer_to_another_question_is_none() {
    let forged: Zone = |query, _| {
        let mut answer = both(query, Via::Udp)?;
        match &*query.name().to_string() {
            "number.test." => answer.metadata.id = 1,
            _ => drop(answer.add_query(Query::query(name("x.test."), RecordType::A))),
        }
        Some(answer)
    };
    for name in ["number.test", "question.test"] {
        let soon = timeout(Duration::from_millis(100), asked(forged, name));
        assert!(soon.await.is_err(), "{name}");
    }
}

// Ours: a server that fails, or is not there, is passed over at once.
#[tokio::test]
async fn the_next_server_is_asked_if_one_gives_no_answer() {
    let (first, second) = (Stub::start(refuses).await, Stub::start(both).await);
    let nobody = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let gone = nobody.local_addr().unwrap();
    drop(nobody);
    let servers = NameServers::new(vec![gone, first.address, second.address], PATIENCE);
    let begun = clock::instant();
    assert_eq!(servers.ask("o.test").await.unwrap().addresses.len(), 2);
    assert!(clock::instant() - begun < NEXT_SERVER_AFTER);
    assert_eq!(first.asked(), 2);
    // From now on the one that answered is asked first.
    assert!(servers.ask("p.test").await.is_ok());
    assert_eq!((first.asked(), second.asked()), (2, 4));
    let refusing = NameServers::new(vec![first.address], PATIENCE);
    assert_eq!(refusing.ask("o.test").await, Err(NoConnection::Dns));
}

// Ours: a server that is silent costs its time once.
#[tokio::test]
async fn a_silent_server_is_overtaken_by_the_next() {
    let (first, second) = (Stub::start(silent).await, Stub::start(both).await);
    let servers = NameServers::new(vec![first.address, second.address], PATIENCE);
    let begun = clock::instant();
    assert!(servers.ask("o.test").await.is_ok());
    assert!(NEXT_SERVER_AFTER <= clock::instant() - begun);
    assert!(servers.ask("p.test").await.is_ok());
    assert_eq!((first.asked(), second.asked()), (2, 4));
    // A question is sent again, and nothing more once nobody waits.
    let alone = NameServers::new(vec![first.address], RESEND_AFTER * 3 / 2);
    let begun = clock::instant();
    assert_eq!(alone.ask("o.test").await, Err(NoConnection::DnsTimeout));
    assert!(clock::instant() - begun < RESEND_AFTER * 3 / 2);
    assert_eq!(first.asked(), 2 + 4);
}
