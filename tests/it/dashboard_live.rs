//! The live view: it continues where a page ended, repeats nothing, and buffers little
//! for a slow reader. Every test here is ours.

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::dashboard::Browser;
use crate::kit::client::{Crawler, get, metrics};
use crate::kit::proxy::{Config, Place};
use crate::kit::{assert_contains_each, soon, until};

/// An open event stream and the text read so far.
pub(crate) struct Stream {
    client: Crawler,
    pub(crate) text: String,
}

impl Stream {
    pub(crate) async fn open(browser: &Browser, path: &str, fields: &[&str]) -> Self {
        let admin = browser.proxy.admin();
        let mut client = Crawler::to(admin).await;
        let (line, host) = (format!("GET {path} HTTP/1.1"), format!("Host: {admin}"));
        let head = [&[&*line, &*host, &*browser.cookie][..], fields].concat();
        let head = format!("{}\r\n\r\n", head.join("\r\n"));
        client.send(head.as_bytes()).await;
        let head = client.head().await.unwrap();
        assert_eq!(head.status, 200);
        assert_eq!(head.value("content-type"), "text/event-stream");
        Self {
            client,
            text: String::new(),
        }
    }

    /// Reads until the text contains `wanted`.
    pub(crate) async fn until(&mut self, wanted: &str) {
        soon(wanted, async {
            while !self.text.contains(wanted) {
                let more = self.client.peek(self.text.len() + 1).await;
                self.text = String::from_utf8_lossy(more).into_owned();
            }
        })
        .await;
    }

    /// Returns the numbers of the decisions received so far.
    fn numbers(&self) -> Vec<u64> {
        let lines = self.text.lines();
        let ids = lines.filter_map(|line| line.strip_prefix("id: "));
        ids.map(|id| id.parse().unwrap()).collect()
    }
}

#[tokio::test]
async fn a_live_stream_sends_only_decisions_that_match_its_filter() {
    let browser = Browser::new(Config::default()).await;
    let path = "/decisions/stream?verdict=disallow";
    let mut streams = [
        Stream::open(&browser, path, &[]).await,
        Stream::open(&browser, &format!("/api/v1{path}"), &[]).await,
    ];
    until("both streams to be open", async || {
        let shown = metrics(&browser.proxy).await;
        shown.contains("politesse_admin_watchers 2\n").then_some(())
    })
    .await;
    // A stream starts at the end of the record, which its first poll finds. No event
    // reports that, so requests are repeated until each stream shows one.
    let starting = async {
        for stream in &mut streams {
            stream.until("/private/first").await;
        }
    };
    let repeating = async {
        loop {
            get(&browser.proxy, "http://o.test/private/first").await;
        }
    };
    tokio::select! {
        () = starting => {}
        () = repeating => unreachable!("the loop has no end"),
    }
    get(&browser.proxy, "http://o.test/open/live").await;
    get(&browser.proxy, "http://o.test/private/live").await;
    let row = "<td class=\"u\" data-label=\"request\">";
    for (mut stream, wanted) in streams.into_iter().zip([row, "\"verdict\":\"disallow\""]) {
        stream.until("/private/live").await;
        assert_contains_each(&stream.text, &["event: decision\nid: ", wanted]);
        assert!(!stream.text.contains("/open/live"), "{}", stream.text);
    }
}

#[tokio::test]
async fn the_live_view_continues_where_its_page_ended() {
    let browser = Browser::new(Config::default()).await;
    // The filter matches no row, so the position must come from the record itself.
    let page = browser.get("/decisions?host=never.test").await.text();
    let (_, rest) = page.split_once("data-last=\"").unwrap();
    let last = rest.split('"').next().unwrap();
    get(&browser.proxy, "http://o.test/open/between").await;
    browser.proxy.place().completed(5).await;
    let path = format!("/decisions/stream?after={last}");
    let mut stream = Stream::open(&browser, &path, &[]).await;
    stream.until("/open/between").await;
    get(&browser.proxy, "http://o.test/open/then").await;
    stream.until("/open/then").await;
    assert_eq!(stream.numbers().len(), 2, "{}", stream.text);

    // A browser that reconnects sends its last event id and gets only later events.
    let had = format!("Last-Event-ID: {}", stream.numbers()[0]);
    let mut again = Stream::open(&browser, &path, &[&had]).await;
    get(&browser.proxy, "http://o.test/private/last").await;
    again.until("/private/last").await;
    let numbers = again.numbers();
    assert_eq!(numbers[0], stream.numbers()[1]);
    assert_eq!(numbers.len(), 2, "{}", again.text);
    let wrong = browser.get("/decisions/stream?after=x").await;
    assert_eq!(wrong.status(), 400);
}

#[tokio::test]
async fn a_decision_made_while_a_stream_begins_is_sent() {
    let browser = Arc::new(Browser::new(Config::default()).await);
    let mut watching = JoinSet::new();
    // Streams with different filters have a feed each, and the first queries of twelve
    // feeds wait for one another.
    for day in 10..22 {
        let browser = Arc::clone(&browser);
        watching.spawn(async move {
            let path = format!("/decisions/stream?after=0&until=2100-01-{day}T00:00:00Z");
            let mut stream = Stream::open(&browser, &path, &[]).await;
            stream.until("/private/2").await;
            let url = format!("http://o.test/private/while/{day}");
            get(&browser.proxy, &url).await;
            stream
        });
    }
    for mut stream in watching.join_all().await {
        for day in 10..22 {
            stream.until(&format!("/private/while/{day}")).await;
        }
    }
}

#[tokio::test]
async fn rows_beyond_the_size_of_one_poll_are_dropped_and_counted_as_missed() {
    let browser = Browser::idle(Place::with(&Config::default())).await;
    let long = "Z".repeat(40_000);
    for number in 0..30 {
        // Fails at once, because the host does not exist.
        let url = format!("http://never.test/{number}/{long}");
        get(&browser.proxy, &url).await;
    }
    browser.proxy.place().completed(30).await;
    let mut stream = Stream::open(&browser, "/api/v1/decisions/stream?after=0", &[]).await;
    stream.until("event: missed").await;
    stream.until("\n\n").await;
    let shown = stream.numbers().len();
    assert!((5..14).contains(&shown), "{shown}");
    let missed = format!("event: missed\ndata: {}\n", 30 - shown);
    stream.until(&missed).await;
    assert!(stream.text.len() < 600_000, "{}", stream.text.len());
    // The newest rows are kept.
    assert!(stream.text.contains("never.test/29/"));
}
