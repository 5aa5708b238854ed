//! Requests sent again after the origin closed a reused connection. Each takes a new
//! turn, so that the origin's delay also lies between the two attempts.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jiff::SignedDuration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::kit::client::{ask, get, reload};
use crate::kit::paced::{metric, ms};
use crate::kit::page::Gate;
use crate::kit::proxy::{Config, resolve};
use crate::kit::raw_origin::find;
use crate::kit::server::Server;
use crate::kit::{clock, until};

/// Path for which the origin keeps a reused connection open until its gate opens, before
/// it closes it without an answer.
const HELD: &str = "/held";

/// An origin that answers the first request on each connection, then reads the second
/// and closes without an answer.
struct Closing {
    server: Server,
    log: Arc<Mutex<Vec<(String, Instant)>>>,
    gate: Gate,
}

impl Closing {
    async fn start(robots: &'static str) -> Self {
        let (log, gate) = (Arc::default(), Gate::shut());
        let (shared, held) = (Arc::clone(&log), gate.clone());
        let serve = move |stream| serve(stream, robots, Arc::clone(&shared), held.clone());
        let server = Server::start(serve).await;
        Self { server, log, gate }
    }

    /// Returns a proxy configuration with the default pace.
    fn config(&self) -> Config {
        resolve("o.test", self.server.address())
            .set("pace.profile = \"standard\"")
            .set("pace.origin = {}")
    }

    /// Returns the requests in order of arrival, without the first: it is the fetch of
    /// robots.txt, which comes before every page.
    fn seen(&self) -> Vec<(String, Instant)> {
        self.log.lock().unwrap()[1..].to_vec()
    }

    fn targets(&self) -> Vec<String> {
        self.seen().into_iter().map(|(target, _)| target).collect()
    }

    /// Asserts that requests arrived at least `pause` apart. A page may follow its
    /// robots.txt at once, because that file may expire within the pause.
    fn assert_apart(&self, pause: Duration) {
        let (seen, robots) = (self.seen(), "/robots.txt");
        let gaps = seen
            .windows(2)
            .filter(|pair| pair[0].0 != robots || pair[1].0 == robots)
            .map(|pair| pair[1].1.duration_since(pair[0].1));
        let gaps: Vec<_> = gaps.collect();
        assert!(gaps.iter().all(|gap| pause <= *gap), "{gaps:?} {seen:?}");
    }
}

async fn serve(
    mut stream: TcpStream,
    robots: &str,
    log: Arc<Mutex<Vec<(String, Instant)>>>,
    gate: Gate,
) {
    let first = next(&mut stream, &log).await;
    let body = if first.as_deref() == Some("/robots.txt") {
        robots
    } else {
        "x"
    };
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    if first.is_some() && stream.write_all(answer.as_bytes()).await.is_ok() {
        let second = next(&mut stream, &log).await;
        if second.as_deref() == Some(HELD) {
            gate.pass().await;
        }
    }
}

/// Reads one request, logs it and returns its target.
async fn next(stream: &mut TcpStream, log: &Mutex<Vec<(String, Instant)>>) -> Option<String> {
    let mut head = Vec::new();
    while find(&head, b"\r\n\r\n").is_none() {
        if stream.read_buf(&mut head).await.ok()? == 0 {
            return None;
        }
    }
    let line = String::from_utf8_lossy(&head).into_owned();
    let target = line.split(' ').nth(1)?.to_owned();
    log.lock().unwrap().push((target.clone(), clock::instant()));
    Some(target)
}

#[tokio::test]
async fn a_page_sent_again_keeps_the_crawl_delay() {
    let origin = Closing::start("User-agent: *\nCrawl-delay: 0.6\n").await;
    let proxy = origin.config().start().await;
    for page in ["/1", "/2", "/3"] {
        let reply = get(&proxy, &format!("http://o.test{page}")).await;
        assert_eq!(reply.status(), 200, "{page}: {}", reply.text());
    }
    origin.assert_apart(ms(600));
    let again = metric(&proxy, "politesse_upstream_retries_total").await;
    assert_eq!(origin.targets().len() as f64, 3.0 + again);
    assert!(1.0 <= again, "no connection was used again");
}

// With a long delay the proxy opens a new connection for each page: no page is lost,
// and no client waits for the delay twice.
#[tokio::test]
async fn with_a_long_crawl_delay_no_request_is_sent_twice() {
    let origin = Closing::start("User-agent: *\nCrawl-delay: 1.2\n").await;
    let proxy = origin.config().start().await;
    for page in ["/1", "/2", "/3"] {
        assert_eq!(
            get(&proxy, &format!("http://o.test{page}")).await.status(),
            200
        );
    }
    origin.assert_apart(ms(1200));
    assert_eq!(origin.targets(), ["/1", "/2", "/3"]);
}

// The operator's default rate of five requests per second also separates attempts.
#[tokio::test]
async fn without_a_crawl_delay_the_second_attempt_follows_soon() {
    let origin = Closing::start("").await;
    let proxy = origin.config().start().await;
    let begun = clock::instant();
    for page in 1..=4 {
        assert_eq!(
            get(&proxy, &format!("http://o.test/{page}")).await.status(),
            200
        );
    }
    assert!(clock::since(begun) < ms(5000));
    // The rate of 200 ms runs from start to start; arrivals may be a little closer.
    origin.assert_apart(ms(100));
    assert!(4 < origin.targets().len(), "no connection was used again");
}

#[tokio::test]
async fn a_robots_txt_fetch_sent_again_keeps_the_crawl_delay() {
    let origin = Closing::start("User-agent: *\nCrawl-delay: 0.6\n").await;
    let config = origin.config().set("robots.ttl = \"1s\"");
    let proxy = config.set("robots.ttl_min = \"1s\"").start().await;
    for page in 1..=5 {
        let reply = get(&proxy, &format!("http://o.test/{page}")).await;
        assert_eq!(reply.status(), 200, "{page}: {}", reply.text());
    }
    let targets = origin.targets();
    assert!(targets.contains(&"/robots.txt".to_owned()), "{targets:?}");
    origin.assert_apart(ms(600));
}

// Ours: if the client may not wait for a second turn, it gets 502. RFC 9209,
// section 2.3.
#[tokio::test]
async fn a_client_that_may_not_wait_for_a_second_attempt_gets_502() {
    let origin = Closing::start("User-agent: *\nCrawl-delay: 0.8\n").await;
    let proxy = origin.config().start().await;
    assert_eq!(get(&proxy, "http://o.test/1").await.status(), 200);
    // Time under test: the crawl delay must be over, because this client may not wait.
    tokio::time::sleep(ms(900)).await;
    let fields = ["User-Agent: ExampleBot/1.0", "Prefer: wait=0"];
    let lost = ask(&proxy, "GET", "http://o.test/2", &fields).await;
    lost.assert_error(502, "http_response_incomplete");
    let targets = origin.targets();
    let sent = targets.iter().filter(|target| *target == "/2").count();
    assert_eq!(sent, 1, "{targets:?}");
    let rows = proxy.place().completed(2).await;
    assert_eq!(rows[1]["status"], 502, "{rows:?}");
    assert_eq!(rows[1]["verdict"], "allow");
}

#[tokio::test]
async fn a_request_no_longer_allowed_is_not_sent_again() {
    let origin = Closing::start("User-agent: *\nDisallow: /2\nCrawl-delay: 1\n").await;
    let until = clock::now() + ms(3000);
    let leave = "origin = \"http://o.test\", action = \"allow\", reason = \"ours\"";
    let leave = format!("robots.override = [{{ {leave}, until = {until} }}]");
    let proxy = origin.config().set(&leave).start().await;
    let first = get(&proxy, "http://o.test/1").await;
    assert_eq!(first.status(), 200, "{}", first.text());
    let left = until.duration_since(clock::now()) - SignedDuration::from_millis(500);
    // Time under test: the override expires between the first turn and the second.
    tokio::time::sleep(left.try_into().unwrap_or_default()).await;
    let reply = get(&proxy, "http://o.test/2").await;
    // On a slow machine it is refused before the first attempt.
    assert!([403, 502].contains(&reply.status()), "{}", reply.text());
    let targets = origin.targets();
    let sent = targets.iter().filter(|target| *target == "/2").count();
    assert!(sent <= 1, "{targets:?}");
}

// Ours: the verdict changes while the origin holds the request. No pace delays the
// second turn, so only the new verdict can stop it.
#[tokio::test]
async fn a_request_forbidden_while_in_flight_is_not_sent_again() {
    let origin = Closing::start("User-agent: *\nDisallow: /held\n").await;
    let until = clock::now() + ms(2000);
    let leave = "origin = \"http://o.test\", action = \"allow\", reason = \"ours\"";
    let leave = format!("robots.override = [{{ {leave}, until = {until} }}]");
    let proxy = origin.config().set(&leave).start().await;
    let first = get(&proxy, "http://o.test/1").await;
    assert_eq!(first.status(), 200, "{}", first.text());
    let left = until.duration_since(clock::now()) + SignedDuration::from_millis(100);
    let open = async {
        // Time under test: the override expires while the origin holds the request.
        tokio::time::sleep(left.try_into().unwrap_or_default()).await;
        origin.gate.open(1);
    };
    let url = format!("http://o.test{HELD}");
    let (reply, ()) = tokio::join!(get(&proxy, &url), open);
    // On a slow machine it is refused before the first attempt.
    assert!([403, 502].contains(&reply.status()), "{}", reply.text());
    let targets = origin.targets();
    let sent = targets.iter().filter(|target| *target == HELD).count();
    assert!(sent <= 1, "{targets:?}");
}

// Ours: report mode sends a disallowed request, but the mode in force decides about a
// second attempt.
#[tokio::test]
async fn a_request_in_flight_when_enforcement_starts_is_not_sent_again() {
    let origin = Closing::start("User-agent: *\nDisallow: /held\n").await;
    let report = origin.config().set("enforcement.mode = \"report\"");
    let proxy = Arc::new(report.start().await);
    let first = get(&proxy, "http://o.test/1").await;
    assert_eq!(first.status(), 200, "{}", first.text());
    let asking = tokio::spawn({
        let proxy = Arc::clone(&proxy);
        async move { get(&proxy, &format!("http://o.test{HELD}")).await }
    });
    let held = || origin.targets().iter().filter(|at| *at == HELD).count();
    until("the request", async || (held() == 1).then_some(())).await;
    proxy.place().configure(&origin.config());
    reload(&proxy).await;
    origin.gate.open(1);
    assert_eq!(asking.await.unwrap().status(), 502);
    assert_eq!(held(), 1);
}
