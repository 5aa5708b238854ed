//! The pages as a client gets them.

use std::sync::atomic::{AtomicUsize, Ordering};

use jiff::Timestamp;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::audit;
use crate::pace::host_pace::HostPace;

/// An admin listener over made-up hosts.
struct Kit {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
    access: Arc<Access>,
    folder: TempDir,
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

impl Kit {
    /// With the password that a file of `line` holds.
    async fn new(line: Option<&str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tracker = TaskTracker::new();
        let metrics = Arc::new(Metrics::default());
        let options = audit::Options {
            path: folder.path().join("data/audit.db"),
            durability: audit::Durability::Queue,
            queue: std::num::NonZeroUsize::MIN,
            wal_max: 1 << 28,
            new_record: false,
        };
        let log = AuditLog::open(&options, Arc::clone(&metrics), &tracker).unwrap();
        let access = Arc::new(Access::new(password(folder.path(), line)));
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let admin = Admin {
            audit: Arc::new(log),
            metrics,
            stop: CancellationToken::new(),
            access: Arc::clone(&access),
            pace: PaceSource(Arc::new(move || {
                count.fetch_add(1, Ordering::Relaxed);
                vec![host("a.test", 0), host("b.test", 2), host("c.test", 9)]
            })),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        listen(admin, listener, (&tracker, CancellationToken::new()));
        Self {
            address,
            asked,
            access,
            folder,
            _tracker: tracker,
        }
    }

    /// The answer to a request with these further fields.
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

    /// The names told, in order, and the total.
    async fn hosts(&self, path: &str) -> (Vec<String>, u64) {
        let answer = self.get(path, &[RIGHT]).await;
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        let hosts = body["hosts"].as_array().unwrap().iter();
        let names = hosts.map(|host| host["host"].as_str().unwrap().to_owned());
        (names.collect(), body["total"].as_u64().unwrap())
    }
}

/// The password that a file of `line` holds.
fn password(folder: &std::path::Path, line: Option<&str>) -> Option<Password> {
    use std::os::unix::fs::PermissionsExt as _;
    let path = folder.join("admin.password");
    std::fs::write(&path, line?).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    Some(Password::read(&path).unwrap())
}

const PLAIN: &str = "pass word";
const RIGHT: &str = "Authorization: Bearer pass word";
const WRONG: &str = "Authorization: Bearer password";
/// Of `pass word`, with costs for tests.
const ARGON2: &str = "$argon2id$v=19$m=64,t=2,p=4$L2Qk1JjG+oXhc1TQDAaYkA$GpDhkTMxcYqbtFOHyC2K19g5+NB7Dqim9wv6wIM6ttY";

// Issue 6, Deliver 5.
#[tokio::test]
async fn the_page_tells_the_hosts_those_that_wait_first() {
    let kit = Kit::new(Some(PLAIN)).await;
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

// Security, section 8: nosniff, no-store, CSP; no CORS.
#[tokio::test]
async fn nobody_keeps_the_page() {
    let kit = Kit::new(Some(PLAIN)).await;
    for fields in [&[RIGHT][..], &[]] {
        let answer = kit.get("/api/v1/pace", fields).await;
        for field in [
            "cache-control: no-store",
            "x-content-type-options: nosniff",
            "content-security-policy: default-src 'none'",
            "referrer-policy: no-referrer",
        ] {
            assert!(answer.contains(field), "{field} in {answer}");
        }
        assert!(!answer.contains("access-control"));
    }
}

// Contract, section 2, `admin`; RFC 9110, section 15.5.2.
#[tokio::test]
async fn without_the_password_nothing_is_told() {
    let kit = Kit::new(Some(PLAIN)).await;
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

// Contract, section 2: what names nobody is open.
#[tokio::test]
async fn without_a_password_file_the_api_is_closed_and_the_rest_open() {
    let kit = Kit::new(None).await;
    let answer = kit.get("/api/v1/pace", &[RIGHT]).await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert!(answer.contains("admin.password_file"), "{answer}");
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert!(
            kit.get(path, &[]).await.starts_with("HTTP/1.1 200 "),
            "{path}"
        );
    }
}

// Security, section 8: names are judged before passwords.
#[tokio::test]
async fn a_name_that_is_not_ours_is_turned_away_first() {
    let kit = Kit::new(Some(PLAIN)).await;
    let mut stream = TcpStream::connect(kit.address).await.unwrap();
    let head = format!("GET /api/v1/pace HTTP/1.1\r\nHost: evil.test\r\n{RIGHT}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 421 "), "{answer}");
    assert_eq!(kit.asked.load(Ordering::Relaxed), 0);
}

// Security, section 8: ten tries a minute an address.
#[tokio::test]
async fn after_ten_wrong_passwords_even_the_right_one_has_to_wait() {
    for line in [PLAIN, ARGON2] {
        let kit = Kit::new(Some(line)).await;
        for _ in 0..12 {
            assert_eq!(kit.status(&[RIGHT]).await, 200);
        }
        // What is no password is no try.
        for _ in 0..12 {
            assert_eq!(kit.status(&[]).await, 401);
        }
        for _ in 0..10 {
            assert_eq!(kit.status(&[WRONG]).await, 401);
        }
        let answer = kit.get("/api/v1/pace", &[RIGHT]).await;
        assert!(answer.starts_with("HTTP/1.1 429 "), "{answer}");
        assert!(answer.contains("retry-after: "), "{answer}");
    }
}

// Security, section 8: never locking out the right token.
#[tokio::test]
async fn a_token_is_never_locked_out() {
    let token = "0123456789abcdef0123456789abcdef";
    let kit = Kit::new(Some(token)).await;
    for _ in 0..12 {
        assert_eq!(kit.status(&[WRONG]).await, 401);
    }
    let right = format!("Authorization: Bearer {token}");
    assert_eq!(kit.status(&[&right]).await, 200);
}

// Ours: a password is changed without a restart.
#[tokio::test]
async fn another_password_can_be_put_in_force() {
    let kit = Kit::new(Some(PLAIN)).await;
    kit.access
        .change(password(kit.folder.path(), Some("password")));
    assert_eq!(kit.status(&[RIGHT]).await, 401);
    assert_eq!(kit.status(&[WRONG]).await, 200);
    kit.access.change(None);
    assert_eq!(kit.status(&[WRONG]).await, 403);
}

// RFC 7617, section 2: what is no credential is a wrong one.
#[tokio::test]
async fn what_is_no_password_is_refused_and_nothing_more() {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    for line in [PLAIN, ARGON2, "0123456789abcdef0123456789abcdef"] {
        let kit = Kit::new(Some(line)).await;
        for given in [
            "Basic",
            "Basic ",
            "Basic ===",
            "Basic YWRtaW46",
            "Basic YWRtaW46cGFzcyB3b3Jk!",
            &format!("Basic {}", STANDARD.encode("admin")),
            &format!("Basic {}", STANDARD.encode(b"admin:\xff\xfe")),
            &format!("Basic {}", STANDARD.encode(b"admin:\0")),
            &format!("Basic {}", STANDARD.encode("a".repeat(64 * 1024))),
            &format!("Bearer {}", "a".repeat(256 * 1024)),
        ] {
            let field = format!("Authorization: {given}");
            let start = &given[..given.len().min(40)];
            assert_eq!(kit.status(&[&field]).await, 401, "{start}");
        }
        assert_eq!(kit.asked.load(Ordering::Relaxed), 0);
        let right = format!("Authorization: Bearer {line}");
        let right = if line == ARGON2 { RIGHT } else { &right };
        assert_eq!(kit.status(&[right]).await, 200, "{line}");
    }
}

// Invariant 8: such a head is not read to its end (hyper's limit).
#[tokio::test]
async fn a_password_of_a_megabyte_harms_nobody() {
    let kit = Kit::new(Some(PLAIN)).await;
    let stream = TcpStream::connect(kit.address).await.unwrap();
    let (mut read, mut write) = stream.into_split();
    let (start, long) = (
        "GET /api/v1/pace HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic ",
        "YWFh".repeat(256 * 1024),
    );
    // It may be cut off while it writes.
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

// Ours: the listener accepts many before it learns that they are closed.
#[tokio::test]
async fn connections_that_are_closed_at_once_keep_no_place() {
    let kit = Kit::new(None).await;
    for _ in 0..CONNECTIONS_MAX {
        // Blocking: the listener sees none of them before all are closed.
        drop(std::net::TcpStream::connect(kit.address).unwrap());
    }
    assert!(kit.get("/healthz", &[]).await.starts_with("HTTP/1.1 200"));
}
