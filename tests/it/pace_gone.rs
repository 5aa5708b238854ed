//! Crawlers that give up while they wait for a turn: a
//! cancellation gives the turn back.
//!
//! Most close their connection when their time is over, which is a FIN (RFC
//! 9293, section 3.6): over HTTP/1.1 it looks like the end of the sending side
//! alone, so that what is left of them gets an answer.

use std::sync::Arc;

use tokio::io::AsyncWriteExt as _;

use crate::frames;
use crate::kit::certificates;
use crate::kit::client::{Crawler, curl, get, get_as};
use crate::kit::h2::H2Crawler;
use crate::kit::origin::{Origin, Script};
use crate::kit::paced::{
    ONE_FILE, assert_later, delaying, metric, ms, pages, queue, standard, verified,
};
use crate::kit::page::{Gate, Page};
use crate::kit::proxy::Proxy;
use crate::kit::{clock, run, until};

/// Way in which requests come to the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    Http,
    Https,
}

const BOTH: [Scheme; 2] = [Scheme::Http, Scheme::Https];

impl Scheme {
    async fn start(self, script: Script) -> Origin {
        match self {
            Self::Http => script.start().await,
            Self::Https => script.tls().start().await,
        }
    }

    fn url(self, path: &str) -> String {
        match self {
            Self::Http => format!("http://o.test{path}"),
            Self::Https => format!("https://o.test{path}"),
        }
    }

    /// Returns a connection over which a page was asked for, and nothing read.
    async fn asking(self, proxy: &Proxy, path: &str) -> Crawler {
        let (mut crawler, target) = match self {
            Self::Http => (Crawler::plain(proxy).await, self.url(path)),
            Self::Https => (Crawler::inside(proxy, "o.test:443").await, path.to_owned()),
        };
        crawler.send(&request(&target, "")).await;
        crawler
    }
}

fn request(target: &str, fields: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: o.test\r\nUser-Agent: GoneBot/1.0\r\n{fields}\r\n")
        .into_bytes()
}

/// Returns a proxy that has asked this origin for one page, so that others
/// wait.
async fn after_one(scheme: Scheme, delay: &str) -> (Origin, Arc<Proxy>) {
    let origin = scheme.start(delaying(delay)).await;
    let proxy = Arc::new(standard(&origin).set(ONE_FILE).start().await);
    let first = get(&proxy, &scheme.url("/first")).await;
    assert_eq!(first.status(), 200, "{}", first.text());
    (origin, proxy)
}

/// Returns the targets of the pages that an origin was asked for.
fn asked_for(origin: &Origin) -> Vec<String> {
    let seen = pages(&[origin]);
    seen.into_iter().map(|seen| seen.target).collect()
}

// Ours: nobody reads their answers, and those who try again would double the
// load.
#[test]
fn who_closes_while_waiting_gives_up_the_place() {
    for scheme in BOTH {
        run(async {
            let (origin, proxy) = after_one(scheme, "1").await;
            let mut gone = Vec::new();
            for number in 1..=5 {
                gone.push(scheme.asking(&proxy, &format!("/gone/{number}")).await);
            }
            queue(&proxy, 5).await;
            for crawler in &mut gone {
                crawler.finish_sending().await;
            }
            queue(&proxy, 0).await;
            let next = get_as(&proxy, "NextBot/1.0", &scheme.url("/next")).await;
            assert_eq!(next.status(), 200);
            let seen = pages(&[&origin]);
            assert_eq!(asked_for(&origin), ["/first", "/next"]);
            // The next turn, not the sixth.
            let pause = seen[1].at.duration_since(seen[0].at);
            assert!((ms(1000)..ms(3500)).contains(&pause), "{pause:?}");
            let later = "politesse_pace_later_total{reason=\"crawl_delay\"}";
            assert_eq!(metric(&proxy, later).await, 5.0);
            let (_, rows) = verified(proxy, 7).await;
            drop(gone);
            let put_off = rows.iter().filter(|row| row["verdict"] == "later");
            let put_off: Vec<_> = put_off.collect();
            assert_eq!(put_off.len(), 5, "{rows:?}");
            for row in put_off {
                assert_eq!(row["reason"], "crawl_delay", "{row}");
                assert_eq!(row["status"], 429, "{row}");
            }
        });
    }
}

// The same by a real crawler whose time is over.
#[test]
fn curl_that_gives_up_while_waiting_leaves_the_line() {
    for scheme in BOTH {
        run(async {
            let (origin, proxy) = after_one(scheme, "60").await;
            let url = scheme.url("/gone");
            // Over HTTP/2 it would reset the stream.
            let arguments = ["--http1.1", "--max-time", "1", &*url];
            let outcome = curl(&proxy, &arguments).await;
            // CURLE_OPERATION_TIMEDOUT.
            assert_eq!(outcome.code, Some(28), "{outcome:?}");
            queue(&proxy, 0).await;
            assert_eq!(asked_for(&origin), ["/first"]);
            let (_, rows) = verified(proxy, 2).await;
            assert_eq!(rows[1]["verdict"], "later", "{rows:?}");
        });
    }
}

// RFC 9110, section 10.2.3; RFC 9209: one that closed its sending side alone
// learns what it waited for.
#[test]
fn who_closes_its_sending_side_while_waiting_is_told_when_to_come() {
    for scheme in BOTH {
        run(async {
            let (origin, proxy) = after_one(scheme, "60").await;
            let mut crawler = scheme.asking(&proxy, "/1").await;
            queue(&proxy, 1).await;
            crawler.finish_sending().await;
            let seconds = assert_later(&crawler.reply_to("GET").await, "crawl_delay");
            assert!((50..=60).contains(&seconds), "{seconds}");
            assert!(crawler.closes().await);
            assert_eq!(asked_for(&origin), ["/first"]);
            verified(proxy, 2).await;
        });
    }
}

// Ours: a client that half-closes gets its answer, whatever takes long but a
// turn.
#[test]
fn who_closes_its_sending_side_and_has_its_turn_gets_its_answer() {
    for scheme in BOTH {
        run(async {
            let (robots, page) = (Gate::shut(), Gate::shut());
            let rules = Page::text("User-agent: *\nCrawl-delay: 1\n").after(&robots);
            let script = Script::robots_page(rules).page("/1", Page::text("x").after(&page));
            let origin = scheme.start(script).await;
            let proxy = Arc::new(standard(&origin).start().await);
            let mut crawler = scheme.asking(&proxy, "/1").await;
            crawler.finish_sending().await;
            origin.arrival("/robots.txt").await;
            // Longer than it takes to look again.
            tokio::time::sleep(ms(1500)).await;
            robots.open(1);
            origin.arrival("/1").await;
            tokio::time::sleep(ms(200)).await;
            page.open(1);
            assert_eq!(crawler.reply_to("GET").await.status(), 200);
            verified(proxy, 1).await;
        });
    }
}

// RFC 9112, section 9.3.2: in the order of the requests.
#[tokio::test]
async fn what_stands_behind_a_waiting_request_is_answered_in_order() {
    let (origin, proxy) = after_one(Scheme::Http, "0.5").await;
    let mut crawler = Crawler::plain(&proxy).await;
    // More than is read with the first.
    let padding = format!("X-Padding: {}\r\n", "x".repeat(20_000));
    let mut both = request("http://o.test/1", "");
    both.extend(request("http://o.test/2", &padding));
    crawler.send(&both).await;
    for _ in 0..2 {
        assert_eq!(crawler.reply_to("GET").await.status(), 200);
    }
    assert_eq!(asked_for(&origin), ["/first", "/1", "/2"]);
    // And if nobody waits for them any more.
    crawler.send(&both).await;
    queue(&proxy, 1).await;
    crawler.finish_sending().await;
    for _ in 0..2 {
        assert_later(&crawler.reply_to("GET").await, "crawl_delay");
    }
    assert_eq!(pages(&[&origin]).len(), 3);
    verified(proxy, 5).await;
}

// Ours: our robots.txt fetches take turns, too.
#[test]
fn who_closes_while_its_robots_txt_waits_gives_up_that_place() {
    for scheme in BOTH {
        run(async {
            let origin = scheme.start(delaying("60")).await;
            let proxy = Arc::new(standard(&origin).start().await);
            assert_eq!(get(&proxy, &scheme.url("/first")).await.status(), 200);
            // Of another crawler, whose robots.txt is not known.
            let mut crawler = scheme.asking(&proxy, "/1").await;
            robots_waiting(&proxy, 1.0).await;
            let begun = clock::instant();
            crawler.finish_sending().await;
            let seconds = assert_later(&crawler.reply_to("GET").await, "crawl_delay");
            // Its robots.txt would have come first, ten seconds after the page.
            assert!((1..=10).contains(&seconds), "{seconds}");
            assert!(clock::since(begun) < ms(5000));
            robots_waiting(&proxy, 0.0).await;
            assert_eq!(origin.robots_fetches(), 1);
            assert_eq!(asked_for(&origin), ["/first"]);
            let (_, rows) = verified(proxy, 2).await;
            assert_eq!(rows[1]["verdict"], "later", "{rows:?}");
        });
    }
}

// Ours: the fetch of one who has left may come to wait later, for where it is
// redirected to.
#[tokio::test]
async fn who_closed_before_its_robots_txt_had_to_wait_gives_up_as_well() {
    let gate = Gate::shut();
    let hop = Page::redirect("/rules").after(&gate);
    let rules = Page::text("User-agent: *\nCrawl-delay: 4\n");
    let script = Script::robots_page(hop).page("/rules", rules);
    let origin = script.start().await;
    let proxy = Arc::new(standard(&origin).start().await);
    gate.open(1);
    assert_eq!(get(&proxy, "http://o.test/first").await.status(), 200);
    let mut crawler = Scheme::Http.asking(&proxy, "/1").await;
    until("its robots.txt under way", async || {
        (origin.robots_fetches() == 2).then_some(())
    })
    .await;
    crawler.finish_sending().await;
    let begun = clock::instant();
    gate.open(1);
    assert_later(&crawler.reply_to("GET").await, "crawl_delay");
    assert!(clock::since(begun) < ms(3500));
    verified(proxy, 2).await;
}

// Architecture, "A crawler that hangs up cancels its own exchange and nothing
// else".
#[tokio::test]
async fn who_closes_takes_no_robots_txt_from_others() {
    let origin = delaying("2").start().await;
    let proxy = Arc::new(standard(&origin).start().await);
    assert_eq!(get(&proxy, "http://o.test/first").await.status(), 200);
    let mut gone = Scheme::Http.asking(&proxy, "/1").await;
    robots_waiting(&proxy, 1.0).await;
    let mut stays = Scheme::Http.asking(&proxy, "/2").await;
    gone.finish_sending().await;
    assert_later(&gone.reply_to("GET").await, "crawl_delay");
    assert_eq!(stays.reply_to("GET").await.status(), 200);
    assert_eq!(asked_for(&origin), ["/first", "/2"]);
    verified(proxy, 3).await;
}

/// Waits until so many robots.txt are asked for or wait.
async fn robots_waiting(proxy: &Proxy, count: f64) {
    until("robots.txt that wait", async || {
        let waiting = metric(proxy, "politesse_robots_waiting").await;
        (waiting == count).then_some(())
    })
    .await;
}

// RFC 9113, section 8.1: a stream that is reset is cancelled.
#[tokio::test]
async fn a_stream_that_is_reset_while_waiting_gives_up_its_place() {
    let (origin, proxy) = after_one(Scheme::Https, "60").await;
    let crawler = H2Crawler::inside(&proxy, "o.test:443").await;
    let mut one = crawler.beside();
    let asking = tokio::spawn(async move { one.get("https://o.test/gone").await });
    queue(&proxy, 1).await;
    asking.abort();
    queue(&proxy, 0).await;
    assert_eq!(asked_for(&origin), ["/first"]);
    drop(crawler);
    verified(proxy, 1).await;
}

// RFC 9113, section 5.4.1: the end of the connection is that of its streams.
#[tokio::test]
async fn a_connection_of_streams_that_ends_gives_up_their_places() {
    let (origin, proxy) = after_one(Scheme::Https, "60").await;
    let raw = Crawler::connect(&proxy, "o.test:443").await.into_stream();
    let config = certificates::client(&proxy.ca(), &["h2"]);
    let name = "o.test".try_into().unwrap();
    let connecting = tokio_rustls::TlsConnector::from(config).connect(name, raw);
    let mut stream = connecting.await.unwrap();
    let fields = [
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", "o.test"),
        (":path", "/gone"),
        ("user-agent", "GoneBot/1.0"),
    ];
    let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned()));
    frames::send(&mut stream, &fields).await;
    queue(&proxy, 1).await;
    stream.shutdown().await.unwrap();
    queue(&proxy, 0).await;
    assert_eq!(asked_for(&origin), ["/first"]);
    drop(stream);
    verified(proxy, 1).await;
}
