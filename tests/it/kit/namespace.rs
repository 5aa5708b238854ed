//! A network namespace per test, in which this machine answers at every address.
//!
//! The test binary runs itself under unshare(1), with interfaces and routes that are
//! invisible outside. Loopback is the only interface, and the routes send packets for
//! every address to it. So a test can listen at any address that the proxy dials, and no
//! packet leaves the machine.

use std::env;
use std::fs;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};
use tokio::time::timeout;

use super::raw_origin::read_head;
use super::run;

/// Environment variable that holds the test's name in the process inside the namespace.
const INSIDE: &str = "EGRESS_NAMESPACE";

/// Addresses that belong to this machine, besides loopback.
#[derive(Clone, Copy)]
pub(crate) enum Addresses {
    /// All of them.
    Every,
    /// Exactly these addresses.
    These(&'static [&'static str]),
}

/// Runs `test` in a namespace. `name` is the full name of the calling test function.
pub(crate) fn inside(name: &str, addresses: Addresses, test: impl Future<Output = ()>) {
    if env::var_os(INSIDE).is_some_and(|own| own == name) {
        set_up(addresses);
        return run(test);
    }
    let folder = TempDir::new().unwrap();
    let file = |name: &str, text| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let resolv = file(
        "resolv.conf",
        "nameserver 127.0.0.1\noptions attempts:1 timeout:30\n",
    );
    let nsswitch = file("nsswitch.conf", "hosts: files dns\n");
    // Pins the names in /etc/hosts, which differ between machines.
    let hosts = file("hosts", "127.0.0.1 localhost\n10.0.0.9 listed.test\n");
    let script = format!(
        "set -e\n\
         for pair in {resolv}:resolv.conf {nsswitch}:nsswitch.conf {hosts}:hosts; do\n\
           touch /etc/${{pair#*:}}\n\
           mount --bind ${{pair%%:*}} /etc/${{pair#*:}}\n\
         done\n\
         exec \"$@\""
    );
    let mut command = unshare();
    command
        .args(["sh", "-c", &script, "sh"])
        .arg(env::current_exe().unwrap())
        .args(["--exact", name, "--include-ignored", "--nocapture"])
        .env(INSIDE, name);
    let output = command.output().expect("unshare of util-linux");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && told.contains("1 passed"),
        "{told}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Returns an unshare command that works with the privileges of this process.
fn unshare() -> Command {
    let ways: [&[&str]; 2] = [
        &["--net", "--mount"],
        &["--net", "--mount", "--map-root-user"],
    ];
    let works = |way: &&&[&str]| {
        let tried = Command::new("unshare").args(**way).arg("true").output();
        tried.is_ok_and(|output| output.status.success())
    };
    let way = ways.iter().find(works).expect(
        "these tests need a network namespace: unshare (util-linux), ip (iproute2), and either \
         root or user namespaces that anybody may make",
    );
    let mut command = Command::new("unshare");
    command.args(*way);
    command
}

fn set_up(addresses: Addresses) {
    ip("link set lo up");
    match addresses {
        Addresses::Every => {
            ip("route add local 0.0.0.0/0 dev lo");
            ip("-6 route add local ::/0 dev lo");
        }
        Addresses::These(list) => {
            for address in list {
                let nodad = if address.contains(':') { " nodad" } else { "" };
                ip(&format!("address add {address} dev lo{nodad}"));
            }
        }
    }
}

fn ip(arguments: &str) {
    let done = Command::new("ip").args(arguments.split(' ')).output();
    let done = done.expect("ip of iproute2");
    assert!(done.status.success(), "ip {arguments}: {done:?}");
}

/// Returns a counter of this namespace, such as `ActiveOpens` of `Tcp`.
pub(crate) fn counter(protocol: &str, name: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/net/snmp").unwrap();
    let mut lines = text
        .lines()
        .filter(|line| line.starts_with(&format!("{protocol}: ")));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let mut pairs = names.split(' ').zip(values.split(' '));
    let (_, value) = pairs.find(|(own, _)| *own == name).unwrap();
    value.parse().unwrap()
}

/// A server on one port of every address. Answers each request with the same bytes, by
/// default an empty 200, and records which addresses were dialled.
pub(crate) struct Everywhere(Arc<Mutex<Vec<SocketAddr>>>);

impl Everywhere {
    pub(crate) async fn listen(port: u16) -> Self {
        let answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        Self::answering(port, answer).await
    }

    pub(crate) async fn answering(port: u16, answer: &'static str) -> Self {
        let listener = TcpListener::bind(("::", port)).await.unwrap();
        let dialled = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&dialled);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let local = stream.local_addr().unwrap();
                let ip = local.ip().to_canonical();
                log.lock().unwrap().push(SocketAddr::new(ip, local.port()));
                tokio::spawn(reply(stream, answer));
            }
        });
        Self(dialled)
    }

    /// Returns the dialled addresses in order, each once.
    pub(crate) fn dialled(&self) -> Vec<String> {
        let mut dialled = Vec::new();
        for address in self.0.lock().unwrap().iter() {
            let ip = address.ip().to_string();
            if !dialled.contains(&ip) {
                dialled.push(ip);
            }
        }
        dialled
    }
}

async fn reply(mut stream: TcpStream, answer: &str) {
    if read_head(&mut stream, &mut Vec::new()).await.is_some() {
        // The client may hang up before it reads the answer.
        let _ = stream.write_all(answer.as_bytes()).await;
    }
}

/// An address that accepts no connection, because its accept queue is full.
pub(crate) struct DeadAddress {
    _listener: TcpListener,
    _queue: Vec<TcpStream>,
}

impl DeadAddress {
    pub(crate) async fn at(address: &str) -> Self {
        let address = address.parse().unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(address).unwrap();
        let listener = socket.listen(1).unwrap();
        let mut queue = Vec::new();
        while let Ok(stream) = timeout(FULL_AFTER, TcpStream::connect(address)).await {
            queue.push(stream.unwrap());
        }
        Self {
            _listener: listener,
            _queue: queue,
        }
    }
}

/// Wait after which a connection attempt on loopback shows that the queue is full.
const FULL_AFTER: Duration = Duration::from_millis(300);

/// Maps a name, and the number of earlier queries for it, to addresses. `None` leaves the
/// query unanswered.
type Zone = fn(&str, usize) -> Option<&'static [&'static str]>;

/// The namespace's name server. It drops queries for IPv6 addresses of names that begin
/// with `old`.
pub(crate) struct NameServer(Arc<Mutex<Vec<String>>>);

impl NameServer {
    pub(crate) async fn start(zone: Zone) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:53").await.unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        tokio::spawn(async move {
            let mut buffer = [0; 1500];
            while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
                let question = &buffer[..length];
                let (name, kind) = read_question(question);
                let place = count(&log, &name, kind);
                let is_dropped = kind == AAAA && name.starts_with("old");
                let Some(addresses) = zone(&name, place).filter(|_| !is_dropped) else {
                    continue;
                };
                let answer = answer(question, kind, addresses);
                socket.send_to(&answer, from).await.unwrap();
            }
        });
        Self(asked)
    }

    /// Returns the number of queries for the IPv4 addresses of `name`.
    pub(crate) fn asked(&self, name: &str) -> usize {
        let log = self.0.lock().unwrap();
        log.iter().filter(|own| *own == name).count()
    }
}

const A: u16 = 1;
const AAAA: u16 = 28;

/// Counts a query for `name`, and returns the number of earlier ones. The A and AAAA
/// queries of one lookup get the same number, because a resolver sends both, A first.
fn count(log: &Mutex<Vec<String>>, name: &str, kind: u16) -> usize {
    let mut log = log.lock().unwrap();
    let before = log.iter().filter(|own| *own == name).count();
    if kind == A {
        log.push(name.to_owned());
        before
    } else {
        before.saturating_sub(1)
    }
}

/// Reads the name and type of the question (RFC 1035, section 4.1.2).
fn read_question(message: &[u8]) -> (String, u16) {
    let (mut labels, mut at) = (Vec::new(), 12);
    while message[at] != 0 {
        let end = at + 1 + usize::from(message[at]);
        labels.push(String::from_utf8_lossy(&message[at + 1..end]).to_ascii_lowercase());
        at = end;
    }
    let kind = u16::from_be_bytes([message[at + 1], message[at + 2]]);
    (labels.join("."), kind)
}

/// Builds a response: the question, then those of `addresses` that have the type asked
/// for, with TTL 0 (RFC 1035, section 4.1).
fn answer(question: &[u8], kind: u16, addresses: &[&str]) -> Vec<u8> {
    let records: Vec<Vec<u8>> = addresses
        .iter()
        .filter_map(|text| match (text.parse().unwrap(), kind) {
            (IpAddr::V4(address), A) => Some(address.octets().to_vec()),
            (IpAddr::V6(address), AAAA) => Some(address.octets().to_vec()),
            _ => None,
        })
        .collect();
    let end = 12 + question[12..].iter().position(|&byte| byte == 0).unwrap() + 5;
    let mut message = question[..end].to_vec();
    message[2..4].copy_from_slice(&[0x81, 0x80]);
    message[6..12].copy_from_slice(&[0, u8::try_from(records.len()).unwrap(), 0, 0, 0, 0]);
    for record in records {
        message.extend([0xc0, 12]);
        message.extend(kind.to_be_bytes());
        message.extend([0, 1, 0, 0, 0, 0, 0, u8::try_from(record.len()).unwrap()]);
        message.extend(record);
    }
    message
}
