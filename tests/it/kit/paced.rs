//! What the tests of pace share: requests at the same time, and when an origin
//! saw them.
//!
//! Lower bounds are strict, because an origin counts on them; upper ones are
//! generous, because machines are busy.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::task::{JoinHandle, JoinSet};

use super::client::{Reply, get_as, metrics};
use super::origin::{Origin, Script, Seen};
use super::page::{Gate, Page};
use super::proxy::{Config, Place, Proxy, resolve};
use super::until;

/// One robots.txt for all crawlers, so that none has to wait for its own.
pub(crate) const ONE_FILE: &str = "robots.user_agent = \"OneBot/1.0\"";

/// Milliseconds, as times in the tests are.
pub(crate) fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Returns an origin that asks every crawler for a pause of so many seconds.
pub(crate) fn delaying(seconds: &str) -> Script {
    Script::robots(&format!("User-agent: *\nCrawl-delay: {seconds}\n"))
}

/// Returns an origin that answers `path` when the gate opens, and asks for no
/// pause.
pub(crate) async fn held(path: &str) -> (Gate, Origin) {
    let gate = Gate::shut();
    let page = Page::text("x").after(&gate);
    (gate, Script::robots("").page(path, page).start().await)
}

/// Returns a configuration with the pace that is in force if nothing is
/// configured.
pub(crate) fn standard(origin: &Origin) -> Config {
    let config = resolve("o.test", origin.address());
    config
        .set("pace.profile = \"standard\"")
        .set("pace.origin = {}")
        .set("pace.backoff = { first = \"60s\", longest = \"24h\", forgive = \"30m\" }")
}

/// Asks for all of them at once, each as its crawler over a connection of its
/// own; the answers in the order of the requests.
pub(crate) async fn at_once(proxy: &Arc<Proxy>, requests: &[(&str, &str)]) -> Vec<Reply> {
    let mut asking = JoinSet::new();
    for (place, (agent, url)) in requests.iter().enumerate() {
        let (proxy, agent) = (Arc::clone(proxy), format!("{agent}/1.0"));
        let url = (*url).to_owned();
        asking.spawn(async move { (place, get_as(&proxy, &agent, &url).await) });
    }
    let mut replies = asking.join_all().await;
    replies.sort_by_key(|(place, _)| *place);
    replies.into_iter().map(|(_, reply)| reply).collect()
}

/// Returns the same for ExampleBot.
pub(crate) async fn all(proxy: &Arc<Proxy>, urls: &[String]) -> Vec<Reply> {
    let requests: Vec<_> = urls.iter().map(|url| ("ExampleBot", &**url)).collect();
    at_once(proxy, &requests).await
}

/// `count` URLs of `http://o.test`.
pub(crate) fn urls(count: usize) -> Vec<String> {
    let numbers = 1..=count;
    numbers
        .map(|number| format!("http://o.test/{number}"))
        .collect()
}

pub(crate) fn statuses(replies: &[Reply]) -> Vec<u16> {
    replies.iter().map(Reply::status).collect()
}

/// Returns what these origins saw, in order of time, robots.txt left out.
pub(crate) fn pages(origins: &[&Origin]) -> Vec<Seen> {
    let mut seen: Vec<_> = origins.iter().flat_map(|origin| origin.log()).collect();
    seen.retain(|seen| seen.target != "/robots.txt");
    seen.sort_by_key(|seen| seen.at);
    seen
}

/// Returns the pauses between arrivals in order of time.
pub(crate) fn gaps(seen: &[Seen]) -> Vec<Duration> {
    seen.windows(2)
        .map(|pair| pair[1].at.duration_since(pair[0].at))
        .collect()
}

/// From the first arrival to the last.
pub(crate) fn span(seen: &[Seen]) -> Duration {
    seen[seen.len() - 1].at.duration_since(seen[0].at)
}

/// Holds that no two arrivals lie closer than `pause`, and that there are
/// `count` of them.
pub(crate) fn assert_apart(seen: &[Seen], count: usize, pause: Duration) {
    assert_eq!(seen.len(), count, "{seen:?}");
    let gaps = gaps(seen);
    assert!(gaps.iter().all(|gap| pause <= *gap), "{gaps:?}");
}

/// When `target` came.
pub(crate) fn when(origin: &Origin, target: &str) -> Instant {
    let log = origin.log();
    let seen = log.iter().find(|seen| seen.target == target);
    seen.unwrap_or_else(|| panic!("{target} is not among {log:?}"))
        .at
}

/// Holds that this is our 429 for `reason`, and tells its Retry-After.
pub(crate) fn assert_later(reply: &Reply, reason: &str) -> u64 {
    reply.assert_error(429, "http_request_denied");
    let told = reply.json();
    assert_eq!(told["type"], "urn:politesse:later", "{told}");
    assert_eq!(told["reason"], reason, "{told}");
    assert_eq!(reply.head.values("cache-control"), ["no-store"]);
    let seconds = reply.head.value("retry-after").parse().unwrap();
    assert_eq!(told["retry_after"], seconds, "{told}");
    seconds
}

/// Waits for `count` completed rows, stops the proxy and verifies its audit;
/// the rows.
pub(crate) async fn verified(proxy: Arc<Proxy>, count: usize) -> (Place, Vec<Value>) {
    let rows = proxy.place().completed(count).await;
    let proxy = Arc::into_inner(proxy).unwrap();
    let place = proxy.stop().await;
    let outcome = place.run(&["audit", "verify"]).await;
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    (place, rows)
}

/// Returns the value of a metric; 0 without it.
pub(crate) async fn metric(proxy: &Proxy, name: &str) -> f64 {
    let all = metrics(proxy).await;
    let values = all
        .lines()
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    values
        .map(|value| value.trim().parse::<f64>().unwrap())
        .sum()
}

/// Returns an answer of `status` that asks to come again as `retry_after` says.
pub(crate) fn asking_for_less(status: u16, retry_after: Option<&str>) -> Page {
    let page = Page::text("too much\n").with_status(status);
    match retry_after {
        Some(value) => page.field("Retry-After", value),
        None => page,
    }
}

/// Asks for these without waiting for the answers.
pub(crate) fn asking(proxy: &Arc<Proxy>, agent: &str, paths: &[&str]) -> JoinHandle<Vec<Reply>> {
    let (proxy, agent) = (Arc::clone(proxy), agent.to_owned());
    let urls: Vec<_> = paths
        .iter()
        .map(|path| format!("http://o.test{path}"))
        .collect();
    tokio::spawn(async move {
        let requests: Vec<_> = urls.iter().map(|url| (&*agent, &**url)).collect();
        at_once(&proxy, &requests).await
    })
}

/// Waits until so many wait.
pub(crate) async fn queue(proxy: &Proxy, length: u32) {
    until("a queue", async || {
        let queued = metric(proxy, "politesse_pace_queued").await;
        (queued == f64::from(length)).then_some(())
    })
    .await;
}

/// Waits until no request is in flight: its crawler has the response a moment before.
pub(crate) async fn none_in_flight(proxy: &Proxy) {
    until("no request in flight", async || {
        let in_flight = metric(proxy, "politesse_pace_in_flight").await;
        (in_flight == 0.0).then_some(())
    })
    .await;
}
