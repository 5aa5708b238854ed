//! Cases of `tests/cases/urls.jsonl` and `urls-ours.jsonl`: spellings of URLs and ways of
//! sending them that might bypass a rule. Each is sent through the program and checked
//! against the requests that the origins received.
//!
//! The member `why` of a case states its subject, `via` the way into the proxy.

use std::collections::HashMap;
use std::sync::Arc;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use tokio::io::AsyncWriteExt;
use tokio::sync::Mutex;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::case_files::{self, Line};
use super::frames;
use super::kit::certificates::{self, Leaf, TestCa};
use super::kit::client::{Crawler, Duplex};
use super::kit::proxy::{Config, Proxy};
use super::kit::raw_origin::Bytes;
use super::kit::run;
use super::strict::{End, Message, Reader, StrictOrigin};

const CASES: &str = include_str!("../cases/urls.jsonl");
const OURS: &str = include_str!("../cases/urls-ours.jsonl");

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    id: String,
    robots: Option<String>,
    robots_http: Option<String>,
    robots_https: Option<String>,
    robots_p_test: Option<String>,
    robots_redirect: Option<String>,
    robots_404_for: Option<String>,
    via: Via,
    target: String,
    connect: Option<String>,
    #[serde(default, deserialize_with = "named")]
    host: Name,
    #[serde(default, deserialize_with = "named")]
    sni: Name,
    #[serde(default, deserialize_with = "named")]
    authority: Name,
    scheme: Option<String>,
    protocol: Option<String>,
    method: Option<String>,
    headers: Option<Vec<(String, String)>>,
    serve_as: Option<String>,
    #[serde(default)]
    then: Vec<(String, String, Expect)>,
    /// Level of `robots.readings` that recognises the spelling; for human readers.
    #[serde(rename = "reading")]
    _reading: IgnoredAny,
    expect: Expect,
    #[serde(default)]
    also: Vec<Expect>,
    sees: Option<String>,
    sees_host: Option<String>,
    why: String,
    /// `default` in the one case that has it; all proxies here run with that.
    #[serde(rename = "egress")]
    _egress: Option<IgnoredAny>,
    /// A line of the configuration.
    config: Option<String>,
}

/// A name that a case gives, leaves out on purpose, or leaves to its default.
#[derive(Clone, Default)]
enum Name {
    #[default]
    Usual,
    Absent,
    Is(String),
}

fn named<'de, D: Deserializer<'de>>(value: D) -> Result<Name, D::Error> {
    let name = Option::deserialize(value)?;
    Ok(name.map_or(Name::Absent, Name::Is))
}

impl Name {
    fn or<'a>(&'a self, usual: &'a str) -> Option<&'a str> {
        match self {
            Self::Usual => Some(usual),
            Self::Absent => None,
            Self::Is(name) => Some(name),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Via {
    Http,
    Connect,
    ConnectPlain,
    ConnectRaw,
    H2,
}

/// Expected outcome of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
enum Expect {
    Refuse,
    Allow,
    Close,
    Status(u16),
}

impl TryFrom<String> for Expect {
    type Error = std::num::ParseIntError;

    fn try_from(word: String) -> Result<Self, Self::Error> {
        match word.as_str() {
            "refuse" => Ok(Self::Refuse),
            "allow" => Ok(Self::Allow),
            "close" => Ok(Self::Close),
            status => status.parse().map(Self::Status),
        }
    }
}

/// Status and body that a crawler received; `None` if the connection or stream just ended.
type Answer = Option<(u16, Vec<u8>)>;

impl Line for Case {
    fn id(&self) -> &str {
        &self.id
    }
}

// Ours.
#[test]
fn no_spelling_of_a_url_bypasses_a_rule() {
    assert_all_hold(CASES, 90);
}

// Ours: the rows cover every way into the proxy and every level of `robots.readings`.
#[test]
fn no_further_spelling_of_a_url_bypasses_a_rule() {
    assert_all_hold(OURS, 600);
}

/// Asserts that `file` has at least `at_least` cases and that all of them hold.
fn assert_all_hold(file: &'static str, at_least: usize) {
    run(async {
        let cases: Vec<Case> = case_files::read(file, &[]);
        assert!(at_least <= cases.len());
        // Cases with equal needs share a world and use it in turn: starting a proxy takes
        // longer than all their requests.
        let worlds = std::sync::Mutex::new(HashMap::<_, Arc<Mutex<Option<World>>>>::new());
        case_files::every(cases, |case| {
            let world = Arc::clone(worlds.lock().unwrap().entry(case.world_key()).or_default());
            async move { case.run(&mut *world.lock().await).await }
        })
        .await;
    });
}

impl Case {
    /// Runs the case and its follow-up requests in the world of `slot`, which is started if
    /// need be.
    async fn run(self, slot: &mut Option<World>) {
        let world = match slot {
            Some(world) => world,
            None => slot.insert(World::start(&self).await),
        };
        world.assert_outcome(&self).await;
        for (agent, url, expect) in &self.then {
            let next = Self {
                headers: Some(vec![("User-Agent".to_owned(), agent.clone())]),
                target: url.clone(),
                expect: *expect,
                also: Vec::new(),
                sees: None,
                ..self.clone()
            };
            world.assert_outcome(&next).await;
        }
    }

    /// Returns a key made of everything on which the case's world depends.
    fn world_key(&self) -> String {
        let robots = (&self.robots, &self.robots_http, &self.robots_https);
        let others = (&self.robots_p_test, &self.robots_redirect);
        let world = (&self.robots_404_for, &self.serve_as, &self.config);
        let is_raw = self.via == Via::ConnectRaw;
        format!("{robots:?} {others:?} {world:?} {is_raw}")
    }

    fn method(&self) -> &str {
        self.method.as_deref().unwrap_or("GET")
    }

    /// Returns the fields of the request without Host.
    fn fields(&self) -> Vec<(String, String)> {
        let mut fields = self.headers.clone().unwrap_or_default();
        let silent = self.headers.as_ref().is_some_and(Vec::is_empty);
        if !silent && !names(&fields, "user-agent") {
            fields.push(("User-Agent".to_owned(), "ExampleBot/1.0".to_owned()));
        }
        fields
    }

    /// Returns the Host to send if the case names none: the target's authority, or
    /// `o.test` if the case expects an error for the target itself.
    fn usual_host(&self) -> &str {
        let rest = self.target.split_once("://").map(|(_, rest)| rest);
        let authority = rest.and_then(|rest| rest.split(['/', '?', '#']).next());
        match self.expect {
            Expect::Refuse | Expect::Allow => authority.unwrap_or("o.test"),
            Expect::Status(_) | Expect::Close => "o.test",
        }
    }

    /// Returns the request as HTTP/1.1; characters U+0000 to U+00FF stand for bytes.
    fn bytes(&self) -> Vec<u8> {
        let mut text = format!("{} {} HTTP/1.1\r\n", self.method(), self.target);
        let fields = self.fields();
        let host = self.host.or(self.usual_host());
        if let Some(host) = host.filter(|_| !names(&fields, "host")) {
            text.push_str(&format!("Host: {host}\r\n"));
        }
        for (name, value) in &fields {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        latin1(&(text + "\r\n"))
    }

    /// Returns the request as the field list of an HTTP/2 stream.
    fn list(&self) -> Vec<(String, String)> {
        let scheme = self.scheme.as_deref().unwrap_or("https");
        let mut list = vec![
            (":method", self.method()),
            (":scheme", scheme),
            (":path", &self.target),
        ];
        list.extend(self.authority.or("o.test").map(|name| (":authority", name)));
        list.extend(self.protocol.as_deref().map(|name| (":protocol", name)));
        if let Name::Is(host) = &self.host {
            list.push(("host", host));
        }
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let mut list: Vec<_> = list.into_iter().map(owned).collect();
        let fields = self.fields().into_iter();
        list.extend(fields.map(|(name, value)| (name.to_ascii_lowercase(), value)));
        list
    }

    /// Returns the answers of an origin that answers `robots` for robots.txt.
    fn answer(&self, robots: Bytes) -> impl Fn(&Message) -> Bytes + Send + Sync + 'static {
        let stranger = self.robots_404_for.clone();
        move |message| {
            let agent = message.values("user-agent").join(" ");
            match &stranger {
                _ if message.asked() != "GET /robots.txt" => Bytes::text("a page"),
                Some(stranger) if agent.contains(stranger) => absent(),
                _ => robots.clone(),
            }
        }
    }
}

fn names(fields: &[(String, String)], name: &str) -> bool {
    fields.iter().any(|(key, _)| key.eq_ignore_ascii_case(name))
}

fn latin1(text: &str) -> Vec<u8> {
    let bytes = text.chars().map(|letter| u8::try_from(letter).unwrap());
    bytes.collect()
}

fn absent() -> Bytes {
    Bytes::of(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
}

fn moved(location: &str) -> Bytes {
    let head = "HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: ";
    Bytes::of(format!("{head}{location}\r\n\r\n").as_bytes())
}

/// A proxy and the three origins that a case may name.
struct World {
    proxy: Proxy,
    plain: StrictOrigin,
    secured: StrictOrigin,
    other: StrictOrigin,
}

impl World {
    async fn start(case: &Case) -> Self {
        let file = |own: &Option<String>, other: &Option<String>| {
            let text = own.as_deref().or(other.as_deref());
            text.map_or_else(absent, Bytes::text)
        };
        let http = match &case.robots_redirect {
            Some(location) => moved(location),
            None => file(&case.robots_http, &case.robots),
        };
        let https = file(&case.robots_https, &case.robots);
        let other = file(&case.robots_p_test, &None);
        let plain = StrictOrigin::start(None, case.answer(http)).await;
        let tls = TestCa::get().server(&Leaf::of("o.test"), &["http/1.1"]);
        let tls = Some(TlsAcceptor::from(tls));
        let secured = StrictOrigin::start(tls, case.answer(https)).await;
        let other = StrictOrigin::start(None, case.answer(other)).await;
        let mut config = Config::default()
            .resolve("o.test", plain.address())
            .resolve("o.test:443", secured.address())
            .resolve("p.test", other.address());
        if let Some(line) = &case.config {
            config = config.set(line);
        }
        if let Some(name) = &case.serve_as {
            config = config.resolve(name, plain.address());
        }
        if case.via == Via::ConnectRaw {
            // Bytes that never become a head are closed after the header timeout.
            config = config.set("proxy.header_timeout = \"1s\"");
        }
        Self {
            proxy: config.start().await,
            plain,
            secured,
            other,
        }
    }

    /// Sends the request of `case`, and asserts that the outcome is one it expects.
    async fn assert_outcome(&self, case: &Case) {
        let before = self.seen();
        let told = self.ask(case).await;
        let seen = self.seen().since(&before);
        let mut right = [&[case.expect], &case.also[..]].concat().into_iter();
        assert!(
            right.any(|expect| case.ended(expect, &told, &seen)),
            "{:?} is wanted ({}), but it was told {:?}, origins saw {seen:?}",
            case.expect,
            case.why,
            told.map(|(status, body)| (status, String::from_utf8_lossy(&body).into_owned())),
        );
        for origin in [&self.plain, &self.secured, &self.other] {
            assert_eq!(origin.faults(), [""; 0]);
        }
    }

    /// Returns the requests that the origins received so far.
    fn seen(&self) -> Seen {
        let origins = [&self.plain, &self.secured, &self.other];
        Seen {
            lines: origins.map(lines),
            connections: origins.map(StrictOrigin::connections).iter().sum(),
        }
    }

    async fn ask(&self, case: &Case) -> Answer {
        match case.via {
            Via::Http => {
                let stream = Crawler::plain(&self.proxy).await.into_stream();
                over_http1(stream, case.method(), &case.bytes()).await
            }
            Via::ConnectPlain => {
                let stream = self.tunnel(case).await.into_stream();
                over_http1(stream, case.method(), &case.bytes()).await
            }
            Via::ConnectRaw => {
                let stream = self.tunnel(case).await.into_stream();
                over_http1(stream, "GET", &latin1(&case.target)).await
            }
            Via::Connect => {
                let stream = self.tls(case, "http/1.1").await?;
                over_http1(stream, case.method(), &case.bytes()).await
            }
            Via::H2 => {
                let stream = self.tls(case, "h2").await?;
                let body = frames::ask(stream, &case.list()).await?;
                // Only the proxy's own answers are JSON; pages and robots.txt are not.
                let problem = serde_json::from_slice::<serde_json::Value>(&body);
                let status = problem.map_or(Some(200), |problem| problem["status"].as_u64());
                Some((u16::try_from(status.unwrap()).unwrap(), body))
            }
        }
    }

    async fn tunnel(&self, case: &Case) -> Crawler {
        Crawler::connect(&self.proxy, case.connect.as_deref().unwrap()).await
    }

    /// Opens TLS inside a CONNECT; `None` if the proxy aborts the handshake.
    async fn tls(&self, case: &Case, alpn: &str) -> Option<impl Duplex> {
        let (host, _) = case.connect.as_deref().unwrap().rsplit_once(':').unwrap();
        let stream = self.tunnel(case).await.into_stream();
        let mut config = (*certificates::client(&self.proxy.ca(), &[alpn])).clone();
        config.enable_sni = case.sni.or(host).is_some();
        let name = case.sni.or(host).unwrap_or(host).to_owned();
        let connector = TlsConnector::from(Arc::new(config));
        let name = name.try_into().unwrap();
        connector.connect(name, stream).await.ok()
    }
}

/// Returns method, target and Host of each request for a page at `origin`.
fn lines(origin: &StrictOrigin) -> Vec<String> {
    let lines = origin.pages().into_iter().map(|page| {
        let host = page.message.values("host").join(", ");
        format!("{} {host}", page.message.asked())
    });
    lines.collect()
}

/// Requests that each origin received, and the number of connections to all of them.
#[derive(Debug)]
struct Seen {
    lines: [Vec<String>; 3],
    connections: usize,
}

impl Seen {
    /// Returns the difference to an earlier state.
    fn since(mut self, before: &Self) -> Self {
        for (lines, before) in self.lines.iter_mut().zip(&before.lines) {
            lines.drain(..before.len());
        }
        self.connections -= before.connections;
        self
    }

    fn has_no_page(&self) -> bool {
        self.lines.iter().all(Vec::is_empty)
    }

    /// Reports whether no origin got a connection.
    fn is_nothing(&self) -> bool {
        self.has_no_page() && self.connections == 0
    }
}

impl Case {
    /// Reports whether the answer and the requests at the origins are those of `expect`.
    fn ended(&self, expect: Expect, told: &Answer, seen: &Seen) -> bool {
        let status = told.as_ref().map(|(status, _)| *status);
        match expect {
            Expect::Allow => {
                status == Some(200) && self.has_expected_requests(&seen.lines.concat())
            }
            Expect::Refuse => self.refuses(told) && seen.has_no_page(),
            Expect::Close => told.is_none() && seen.is_nothing(),
            // On HTTP/2 a malformed request may just end the stream.
            Expect::Status(400) if self.via == Via::H2 && told.is_none() => seen.is_nothing(),
            Expect::Status(wanted) => status == Some(wanted) && seen.is_nothing(),
        }
    }

    fn has_expected_requests(&self, lines: &[String]) -> bool {
        let sees = self.sees.as_deref().unwrap_or_else(|| self.path());
        let host = self.sees_host.as_deref().unwrap_or("o.test");
        // The proxy answers this from the cache.
        if sees == "/robots.txt" && matches!(self.method(), "GET" | "HEAD") {
            return lines.is_empty();
        }
        lines == [format!("{} {sees} {host}", self.method())]
    }

    /// Returns the target without scheme and authority.
    fn path(&self) -> &str {
        let rest = self.target.split_once("://").map(|(_, rest)| rest);
        let start = |rest: &str| rest.find('/').unwrap_or(rest.len());
        rest.map_or(&*self.target, |rest| &rest[start(rest)..])
    }

    /// Reports whether an answer is a refusal with the right reason.
    fn refuses(&self, told: &Answer) -> bool {
        let Some((403, body)) = told else {
            return false;
        };
        let reason = match self.robots_redirect {
            Some(_) => "unreachable",
            None => "rule",
        };
        if self.method() == "HEAD" {
            return body.is_empty();
        }
        let problem: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
        problem["reason"] == reason && problem["status"] == 403
    }
}

async fn over_http1(mut stream: impl Duplex, method: &str, bytes: &[u8]) -> Answer {
    // The proxy may answer and close before it has read everything.
    let _ = stream.write_all(bytes).await;
    let _ = stream.flush().await;
    let answer = Reader::new(stream).answer(method).await.unwrap()?;
    assert_eq!(answer.end, End::Whole, "{answer:?}");
    Some((answer.status(), answer.body))
}
