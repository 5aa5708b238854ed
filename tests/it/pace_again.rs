//! Requests sent again after the origin closed a reused connection. Each takes a new
//! turn, so that the origin's delay also lies between the two attempts.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::kit::client::{ask, get, reload};
use crate::kit::paced::{asking_for, metric, ms, urls};
use crate::kit::page::Gate;
use crate::kit::proxy::{Config, Proxy, resolve};
use crate::kit::raw_origin::{Bytes, read_head};
use crate::kit::server::Server;
use crate::kit::{clock, until};

/// Path for which the origin keeps a reused connection open until its gate opens, before
/// it closes it without an answer.
const HELD: &str = "/held";

/// An origin that answers the first request on each connection, then reads the second
/// and closes without an answer.
struct Closing {
    server: Server,
    log: Log,
    gate: Gate,
}

/// Targets of requests, with the times of their arrival.
type Log = Arc<Mutex<Vec<(String, Instant)>>>;

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

    /// Returns the number of requests for `page`.
    fn sent(&self, page: &str) -> usize {
        self.targets().iter().filter(|own| *own == page).count()
    }

    /// Asserts that requests arrived at least `pause` apart. A page may follow its
    /// robots.txt at once, because that file may expire within the pause.
    fn assert_apart(&self, pause: Duration) {
        let (seen, robots) = (self.seen(), "/robots.txt");
        for pair in seen.windows(2) {
            let is_page_after_robots = pair[0].0 == robots && pair[1].0 != robots;
            let gap = pair[1].1.duration_since(pair[0].1);
            assert!(is_page_after_robots || pause <= gap, "{gap:?} {seen:?}");
        }
    }
}

/// Requests the pages `/1` to `/count`, one after another.
async fn get_pages(proxy: &Proxy, count: usize) {
    for url in urls(count) {
        let reply = get(proxy, &url).await;
        assert_eq!(reply.status(), 200, "{url}: {}", reply.text());
    }
}

/// Returns an override that allows everything until `end`.
fn allowed_until(end: Timestamp) -> String {
    let terms = "origin = \"http://o.test\", action = \"allow\", reason = \"ours\"";
    format!("robots.override = [{{ {terms}, until = {end} }}]")
}

async fn serve(mut stream: TcpStream, robots: &str, log: Log, gate: Gate) {
    let first = next(&mut stream, &log).await;
    let is_robots = first.as_deref() == Some("/robots.txt");
    let answer = Bytes::text(if is_robots { robots } else { "x" });
    if first.is_some() && stream.write_all(&answer.bytes).await.is_ok() {
        let second = next(&mut stream, &log).await;
        if second.as_deref() == Some(HELD) {
            gate.pass().await;
        }
    }
}

/// Reads one request, logs it and returns its target.
async fn next(stream: &mut TcpStream, log: &Log) -> Option<String> {
    let head = read_head(stream, &mut Vec::new()).await?;
    let target = head.split(' ').nth(1)?.to_owned();
    log.lock().unwrap().push((target.clone(), clock::instant()));
    Some(target)
}

#[tokio::test]
async fn a_page_sent_again_keeps_the_crawl_delay() {
    let origin = Closing::start("User-agent: *\nCrawl-delay: 0.6\n").await;
    let proxy = origin.config().start().await;
    get_pages(&proxy, 3).await;
    origin.assert_apart(ms(600));
    let again = metric(&proxy, "politesse_upstream_retries_total").await;
    assert_eq!(origin.targets().len() as f64, 3.0 + again);
    assert!(1.0 <= again, "no connection was used again");
}

// The operator's default rate of five requests per second also separates attempts.
#[tokio::test]
async fn without_a_crawl_delay_the_second_attempt_follows_soon() {
    let origin = Closing::start("").await;
    let proxy = origin.config().start().await;
    let begun = clock::instant();
    get_pages(&proxy, 4).await;
    assert!(clock::since(begun) < ms(5000));
    // The rate of 200 ms runs from start to start; arrivals may be closer under load, but
    // not together.
    origin.assert_apart(ms(50));
    assert!(4 < origin.targets().len(), "no connection was used again");
}

#[tokio::test]
async fn a_robots_txt_fetch_sent_again_keeps_the_crawl_delay() {
    let origin = Closing::start("User-agent: *\nCrawl-delay: 0.6\n").await;
    let config = origin.config().set("robots.ttl = \"1s\"");
    let proxy = config.set("robots.ttl_min = \"1s\"").start().await;
    get_pages(&proxy, 5).await;
    assert!(1 <= origin.sent("/robots.txt"), "{:?}", origin.targets());
    origin.assert_apart(ms(600));
}

// RFC 9209, section 2.3.
#[tokio::test]
async fn a_client_that_may_not_wait_for_a_second_attempt_gets_502() {
    let origin = Closing::start("User-agent: *\nCrawl-delay: 0.8\n").await;
    let proxy = origin.config().start().await;
    get_pages(&proxy, 1).await;
    // Time under test: the crawl delay must be over, because this client may not wait.
    tokio::time::sleep(ms(900)).await;
    let fields = ["User-Agent: ExampleBot/1.0", "Prefer: wait=0"];
    let lost = ask(&proxy, "GET", "http://o.test/2", &fields).await;
    lost.assert_error(502, "http_response_incomplete");
    assert_eq!(origin.sent("/2"), 1, "{:?}", origin.targets());
    let rows = proxy.place().completed(2).await;
    assert_eq!(rows[1]["status"], 502, "{rows:?}");
    assert_eq!(rows[1]["verdict"], "allow");
}

#[tokio::test]
async fn a_request_no_longer_allowed_is_not_sent_again() {
    let origin = Closing::start("User-agent: *\nDisallow: /2\nCrawl-delay: 1\n").await;
    let until = clock::now() + ms(3000);
    let proxy = origin.config().set(&allowed_until(until)).start().await;
    get_pages(&proxy, 1).await;
    let left = until.duration_since(clock::now()) - SignedDuration::from_millis(500);
    // Time under test: the override expires between the first turn and the second.
    tokio::time::sleep(left.try_into().unwrap_or_default()).await;
    let reply = get(&proxy, "http://o.test/2").await;
    // On a slow machine it is refused before the first attempt.
    assert!([403, 502].contains(&reply.status()), "{}", reply.text());
    assert!(origin.sent("/2") <= 1, "{:?}", origin.targets());
}

// Ours: no pace delays the second turn, so only the new verdict can stop it.
#[tokio::test]
async fn a_request_forbidden_while_in_flight_is_not_sent_again() {
    let origin = Closing::start("User-agent: *\nDisallow: /held\n").await;
    let until = clock::now() + ms(2000);
    let proxy = origin.config().set(&allowed_until(until)).start().await;
    get_pages(&proxy, 1).await;
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
    assert!(origin.sent(HELD) <= 1, "{:?}", origin.targets());
}

// Ours: the mode in force decides about a second attempt.
#[tokio::test]
async fn a_request_in_flight_when_enforcement_starts_is_not_sent_again() {
    let origin = Closing::start("User-agent: *\nDisallow: /held\n").await;
    let report = origin.config().set("enforcement.mode = \"report\"");
    let proxy = Arc::new(report.start().await);
    get_pages(&proxy, 1).await;
    let asking = asking_for(&proxy, &format!("http://o.test{HELD}"));
    until("the request", async || {
        (origin.sent(HELD) == 1).then_some(())
    })
    .await;
    proxy.place().configure(&origin.config());
    reload(&proxy).await;
    origin.gate.open(1);
    assert_eq!(asking.await.unwrap().status(), 502);
    assert_eq!(origin.sent(HELD), 1);
}
