//! Tests of the pages as a client sees them.

use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use jiff::Timestamp;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use politesse_base::clients::client::Resource;
use politesse_decision::back_off::ReleaseOrder;
use politesse_decision::digest::Digest;
use politesse_pace::host_pace::HostPace;
use politesse_proxy::client_pages::ClientPages;

/// Admin listener with made-up hosts.
struct Kit {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
    released: Arc<Mutex<Vec<ReleaseOrder>>>,
    access: Arc<Access>,
    clients: Arc<ClientDirectory>,
    _folder: TempDir,
    _tracker: TaskTracker,
}

fn host(name: &str, queued: u32) -> HostPace {
    HostPace {
        host: name.to_owned(),
        in_flight: 1,
        queued,
        next_start: Some(Timestamp::UNIX_EPOCH),
        cause: Some("crawl_delay".into()),
        backoff_until: None,
    }
}

/// Returns no plan for the last URL, as if the time were up.
fn all_but_one() -> PlanSource {
    PlanSource(Arc::new(|request| {
        let plans = request.targets.iter().skip(1).map(|_| Default::default());
        let plans = Ok(plans.collect());
        Box::pin(async move { plans })
    }))
}

/// Returns a configuration without keys.
fn no_configuration() -> ConfigurationInForce {
    ConfigurationInForce {
        since: Timestamp::UNIX_EPOCH,
        file: None,
        sha256: Digest::of(b""),
        policy: Digest::of(b""),
        contact: None,
        keys: Arc::default(),
        overrides: Vec::new(),
        failed_reload: None,
    }
}

impl Kit {
    async fn new() -> Self {
        Self::with(all_but_one()).await
    }

    async fn with(plan: PlanSource) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tracker = TaskTracker::new();
        let metrics = Arc::new(Metrics::default());
        let options = politesse_record::Options {
            queue: NonZeroUsize::MIN,
            ..politesse_record::Options::new(folder.path().join("data/audit.db"))
        };
        let log = AuditLog::open(&options, Arc::clone(&metrics), &tracker).unwrap();
        let sessions = SessionOptions {
            most: NonZeroUsize::MIN,
            lifetime: Duration::from_secs(60),
        };
        let access = Access::new(&token(RIGHT), sessions, Arc::clone(&metrics));
        let access = Arc::new(access);
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let released = Arc::new(Mutex::new(Vec::new()));
        let orders = Arc::clone(&released);
        let clients = Arc::new(ClientDirectory::default());
        let audit = Arc::new(log);
        let admin = Admin {
            clients: Arc::clone(&clients),
            archive: ArchiveAsker::default(),
            audit: Arc::clone(&audit),
            metrics,
            is_draining: Arc::default(),
            stop: CancellationToken::new(),
            access: Arc::clone(&access),
            base_path: "".into(),
            arrival: Arc::default(),
            tls: Arc::default(),
            fleet: FleetSource(Arc::new(|| None)),
            pace: PaceSource(Arc::new(move || {
                count.fetch_add(1, Ordering::Relaxed);
                vec![host("a.test", 0), host("b.test", 2), host("c.test", 9)]
            })),
            gauges: GaugeRefresh(Arc::new(|| {})),
            client: ClientPageSource(Arc::new(|_| ClientPages {
                proxies: Vec::new(),
                ca: None,
            })),
            configuration: Arc::new(ArcSwap::from_pointee(no_configuration())),
            plan,
            release: BackOffRelease(Arc::new(move |host, order| {
                let is_known = host.to_string() == "b.test";
                if is_known {
                    orders.lock().unwrap().push(order);
                }
                is_known
            })),
            refetch: RobotsRefetch {
                begin: Arc::new(|_| Box::pin(async { Vec::new() })),
                audit,
            },
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        listen(admin, listener, &tracker, CancellationToken::new());
        Self {
            address,
            asked,
            released,
            access,
            clients,
            _folder: folder,
            _tracker: tracker,
        }
    }

    /// Returns the response to a request with these additional fields.
    async fn get(&self, path: &str, fields: &[&str]) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let mut head = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n", self.address);
        for field in fields {
            head.push_str(field);
            head.push_str("\r\n");
        }
        stream
            .write_all(format!("{head}\r\n").as_bytes())
            .await
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    async fn status(&self, fields: &[&str]) -> u16 {
        let answer = self.get("/api/v1/pace", fields).await;
        answer[9..12].parse().unwrap()
    }

    /// Returns the names in the response, in order, and the total.
    async fn hosts(&self, path: &str) -> (Vec<String>, u64) {
        let answer = self.get(path, &[RIGHT]).await;
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        let hosts = body["hosts"].as_array().unwrap().iter();
        let names = hosts.map(|host| host["host"].as_str().unwrap().to_owned());
        (names.collect(), body["total"].as_u64().unwrap())
    }
}

/// Returns the token in a field `Authorization: Bearer …`.
fn token(field: &str) -> AdminToken {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    let (_, digits) = field.rsplit_once(' ').unwrap();
    std::fs::write(&path, digits).unwrap();
    AdminToken::read(&path).unwrap()
}

const RIGHT: &str =
    "Authorization: Bearer 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
const WRONG: &str =
    "Authorization: Bearer 00112233445566778899aabbccddeeff00112233445566778899aabbccddeefe";

// Ours.
#[tokio::test]
async fn the_page_lists_hosts_with_waiting_requests_first() {
    let kit = Kit::new().await;
    let of = |names: &[&str]| {
        names
            .iter()
            .map(|&name| name.to_owned())
            .collect::<Vec<_>>()
    };
    for (path, told) in [
        ("/api/v1/pace", (of(&["c.test", "b.test", "a.test"]), 3)),
        ("/api/v1/pace?limit=1", (of(&["c.test"]), 3)),
        (
            "/api/v1/pace?limit=0",
            (of(&["c.test", "b.test", "a.test"]), 3),
        ),
        ("/api/v1/pace?host=B.test.", (of(&["b.test"]), 1)),
        ("/api/v1/pace?host=z.test", (of(&[]), 0)),
    ] {
        assert_eq!(kit.hosts(path).await, told, "{path}");
    }
    let answer = kit.get("/api/v1/pace?host=a.test", &[RIGHT]).await;
    let host = r#"{"hosts":[{"host":"a.test","in_flight":1,"queued":0,"next_start":"1970-01-01T00:00:00Z","cause":"crawl_delay","backoff_until":null}],"total":1}"#;
    assert!(answer.ends_with(host), "{answer}");
    let bad = kit.get("/api/v1/pace?limit=x", &[RIGHT]).await;
    assert!(bad.starts_with("HTTP/1.1 400 "), "{bad}");
}

// Ours.
#[tokio::test]
async fn clients_are_listed_only_with_the_token() {
    let kit = Kit::new().await;
    let clients = Arc::clone(&kit.clients);
    let client = clients.at("192.0.2.7".parse().unwrap());
    client.count_refused(Resource::Lookups);
    let answer = kit.get("/api/v1/clients?limit=9", &[RIGHT]).await;
    let expected = r#"{"clients":[{"client":"192.0.2.7","kind":"address","shares":{"lookups":{"held":0,"waiting":0,"refused":1,"displaced":0}}}],"total":1}"#;
    assert!(answer.ends_with(expected), "{answer}");
    let refused = kit.get("/api/v1/clients", &[]).await;
    assert!(refused.starts_with("HTTP/1.1 401 "), "{refused}");
    let bad = kit.get("/api/v1/clients?host=a.test", &[RIGHT]).await;
    assert!(bad.starts_with("HTTP/1.1 400 "), "{bad}");
}

// Ours: nosniff, no-store, CSP; no CORS.
#[tokio::test]
async fn responses_are_private_and_not_cached() {
    let kit = Kit::new().await;
    for fields in [&[RIGHT][..], &[]] {
        let answer = kit.get("/api/v1/pace", fields).await;
        for field in [
            "cache-control: no-store",
            "x-content-type-options: nosniff",
            "content-security-policy: default-src 'none'",
            "referrer-policy: same-origin",
        ] {
            assert!(answer.contains(field), "{field} in {answer}");
        }
        assert!(!answer.contains("access-control"));
    }
}

// RFC 9110, section 15.5.2.
#[tokio::test]
async fn without_the_token_the_answer_is_401_and_names_no_host() {
    let kit = Kit::new().await;
    for fields in [
        &[][..],
        &[WRONG],
        &[RIGHT, RIGHT],
        &["Authorization: Basic eA=="],
    ] {
        let answer = kit.get("/api/v1/pace", fields).await;
        assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
        assert!(answer.contains("www-authenticate: Basic realm"), "{answer}");
        assert!(
            answer.contains("www-authenticate: Bearer realm"),
            "{answer}"
        );
        assert!(!answer.contains(".test"), "{answer}");
    }
    assert_eq!(kit.asked.load(Ordering::Relaxed), 0);
}

// Ours: pages that name no host or client are open.
#[tokio::test]
async fn health_and_metrics_need_no_token() {
    let kit = Kit::new().await;
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert!(
            kit.get(path, &[]).await.starts_with("HTTP/1.1 200 "),
            "{path}"
        );
    }
}

// Ours: the host is checked before the token.
#[tokio::test]
async fn a_foreign_host_name_is_refused_before_the_token_is_checked() {
    let kit = Kit::new().await;
    let mut stream = TcpStream::connect(kit.address).await.unwrap();
    let head = format!("GET /api/v1/pace HTTP/1.1\r\nHost: evil.test\r\n{RIGHT}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 421 "), "{answer}");
    assert_eq!(kit.asked.load(Ordering::Relaxed), 0);
}

// Ours: ending a back-off requires the token and a reason, which is recorded.
#[tokio::test]
async fn a_back_off_is_ended_by_a_delete_with_a_reason() {
    let kit = Kit::new().await;
    let delete = async |target: &str, fields: &str| {
        let mut stream = TcpStream::connect(kit.address).await.unwrap();
        let head = format!("DELETE /api/v1/pace/{target} HTTP/1.1\r\n{fields}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let right = format!("Host: localhost\r\n{RIGHT}");
    for (target, fields, status) in [
        ("b.test?reason=x", "Host: localhost", "401"),
        (
            "b.test?reason=x",
            &*format!("Host: evil.test\r\n{RIGHT}"),
            "421",
        ),
        ("b.test", &right, "400"),
        ("b.test:80?reason=x", &right, "400"),
        ("a.test?reason=x", &right, "404"),
    ] {
        let answer = delete(target, fields).await;
        let expected = format!("HTTP/1.1 {status} ");
        assert!(answer.starts_with(&expected), "{target}: {answer}");
    }
    assert!(kit.released.lock().unwrap().is_empty());
    let answer = delete("B.test.?reason=one%20bad%20URL", &right).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let orders = kit.released.lock().unwrap();
    assert_eq!(orders[0].by, "admin token from 127.0.0.1");
    assert_eq!(orders[0].reason, "one bad URL");
}

/// Sends a question about `urls` with the token.
async fn ask_first(address: SocketAddr, urls: &str) -> TcpStream {
    let body = format!("{{\"agent\":\"A\",\"urls\":[{urls}]}}");
    let mut stream = TcpStream::connect(address).await.unwrap();
    let kind = "Content-Type: Application/JSON; charset=utf-8";
    let length = body.len();
    let head = format!(
        "POST /api/v1/check HTTP/1.1\r\nHost: localhost\r\n{RIGHT}\r\n{kind}\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

async fn answer_on(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

// Ours: the time may be up before all requests are planned.
#[tokio::test]
async fn a_url_without_a_plan_is_unknown() {
    let kit = Kit::new().await;
    let urls = r#""http://a.test/","ftp://b.test/","http://c.test/""#;
    let answer = answer_on(ask_first(kit.address, urls).await).await;
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    let verdicts = [0, 1, 2].map(|place| body["answers"][place]["verdict"].as_str());
    assert_eq!(verdicts, [Some("unknown"), None, Some("unknown")], "{body}");
    assert_eq!(body["answers"][2]["starts_at"], serde_json::Value::Null);
}

// Ours: crawlers need the slots that questions would take.
#[tokio::test]
async fn eight_questions_are_answered_at_a_time() {
    let (asked, gate) = (Arc::new(AtomicUsize::new(0)), CancellationToken::new());
    let (count, opened) = (Arc::clone(&asked), gate.clone());
    let held = PlanSource(Arc::new(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        let opened = opened.clone();
        Box::pin(async move {
            opened.cancelled().await;
            Ok(Vec::new())
        })
    }));
    let kit = Kit::with(held).await;
    let mut waiting = Vec::new();
    for _ in 0..8 {
        waiting.push(ask_first(kit.address, "").await);
    }
    while asked.load(Ordering::SeqCst) < 8 {
        tokio::task::yield_now().await;
    }
    let ninth = answer_on(ask_first(kit.address, "").await).await;
    assert!(ninth.starts_with("HTTP/1.1 503 "), "{ninth}");
    assert!(ninth.contains("retry-after: 1\r\n"), "{ninth}");
    gate.cancel();
    for stream in waiting {
        assert!(answer_on(stream).await.starts_with("HTTP/1.1 200 "));
    }
    let tenth = answer_on(ask_first(kit.address, "").await).await;
    assert!(tenth.starts_with("HTTP/1.1 200 "), "{tenth}");
}

// Ours: wrong tokens cannot lock the right one out, and are counted.
#[tokio::test]
async fn wrong_tokens_are_counted_and_do_not_lock_out_the_right_one() {
    let kit = Kit::new().await;
    for _ in 0..12 {
        assert_eq!(kit.status(&[WRONG]).await, 401);
    }
    assert_eq!(kit.status(&[RIGHT]).await, 200);
    let metrics = kit.get("/metrics", &[]).await;
    let line = "politesse_admin_refused_total{reason=\"unauthorized\"} 12\n";
    assert!(metrics.contains(line), "{metrics}");
}

// Ours: the token can be changed without a restart.
#[tokio::test]
async fn the_token_can_be_replaced_without_a_restart() {
    let kit = Kit::new().await;
    kit.access.set_token(&token(WRONG));
    assert_eq!(kit.status(&[RIGHT]).await, 401);
    assert_eq!(kit.status(&[WRONG]).await, 200);
}

// RFC 7617, section 2: a malformed credential counts as wrong.
#[tokio::test]
async fn malformed_credentials_are_refused() {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    let (_, digits) = RIGHT.rsplit_once(' ').unwrap();
    let basic = |pair: &[u8]| format!("Basic {}", STANDARD.encode(pair));
    let right = basic(format!("admin:{digits}").as_bytes());
    let kit = Kit::new().await;
    for given in [
        "Basic",
        "Basic ",
        "Basic ===",
        "Basic YWRtaW46",
        &format!("{right}!"),
        &format!("Basic {digits}"),
        &format!("Bearer {}", digits.to_uppercase()),
        &format!("Bearer {digits} "),
        &format!("Bearer {digits}0"),
        &format!("Bearer {}", &digits[1..]),
        &basic(b"admin"),
        &basic(digits.as_bytes()),
        &basic(b"admin:\xff\xfe"),
        &basic(b"admin:\0"),
        &basic("a".repeat(64 * 1024).as_bytes()),
        &format!("Bearer {}", "a".repeat(256 * 1024)),
    ] {
        let field = format!("Authorization: {given}");
        let start = &given[..given.len().min(100)];
        // Whitespace around a field's value is not part of it (RFC 9110, section 5.5).
        let status = if given.ends_with("f ") { 200 } else { 401 };
        assert_eq!(kit.status(&[&field]).await, status, "{start}");
    }
    let field = format!("Authorization: {right}");
    assert_eq!(kit.status(&[&field]).await, 200);
}

// Ours: hyper's limit stops reading such a head.
#[tokio::test]
async fn a_credential_of_a_megabyte_is_refused_and_the_listener_survives() {
    let kit = Kit::new().await;
    let stream = TcpStream::connect(kit.address).await.unwrap();
    let (mut read, mut write) = stream.into_split();
    let (start, long) = (
        "GET /api/v1/pace HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic ",
        "YWFh".repeat(256 * 1024),
    );
    // The connection may be cut off while this writes.
    for part in [start, &long, "\r\n\r\n"] {
        write.write_all(part.as_bytes()).await.unwrap_or_default();
    }
    let mut answer = Vec::new();
    read.read_to_end(&mut answer).await.unwrap_or_default();
    let answer = String::from_utf8(answer).unwrap();
    let refused = answer.starts_with("HTTP/1.1 431 ") || answer.is_empty();
    assert!(refused, "{answer}");
    assert_eq!(kit.asked.load(Ordering::Relaxed), 0);
    assert_eq!(kit.status(&[RIGHT]).await, 200);
}

// Ours: the listener accepts many connections before it learns that they are closed.
#[tokio::test]
async fn connections_that_are_closed_at_once_keep_no_place() {
    let kit = Kit::new().await;
    for _ in 0..CONNECTIONS_MAX {
        // Blocking: all are closed before the listener sees the first.
        drop(std::net::TcpStream::connect(kit.address).unwrap());
    }
    assert!(kit.get("/healthz", &[]).await.starts_with("HTTP/1.1 200"));
}

// Ours: silent connections take no place from monitoring.
#[tokio::test]
async fn a_page_is_answered_while_silent_connections_hold_all_places() {
    let kit = Kit::new().await;
    let mut silent = Vec::new();
    for begun in ["", "GET /healthz HT"]
        .into_iter()
        .cycle()
        .take(CONNECTIONS_MAX)
    {
        let mut stream = TcpStream::connect(kit.address).await.unwrap();
        stream.write_all(begun.as_bytes()).await.unwrap();
        silent.push(stream);
    }
    for path in ["/healthz", "/readyz"] {
        assert!(
            kit.get(path, &[]).await.starts_with("HTTP/1.1 200"),
            "{path}"
        );
    }
    // The oldest was displaced, and the latest is still there.
    assert_eq!(silent[0].read(&mut [0]).await.unwrap_or(0), 0);
    let mut latest = silent.pop().unwrap();
    let rest = format!("TP/1.1\r\nHost: {}\r\n\r\n", kit.address);
    latest.write_all(rest.as_bytes()).await.unwrap();
    let mut answer = String::new();
    latest.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}
