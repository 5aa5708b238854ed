//! Shared set-up of the pacing tests: concurrent requests, and the times at which an
//! origin received them.
//!
//! Lower bounds on pauses are strict, because origins rely on them. Upper bounds are
//! generous, because the machine may be busy.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::task::{JoinHandle, JoinSet};

use super::client::{Reply, get, get_as, metrics};
use super::origin::{Origin, Script, Seen};
use super::page::{Gate, Page};
use super::proxy::{Config, Place, Proxy, resolve};
use super::until;

/// Fetches one robots.txt for all crawlers, so that no crawler waits for its own.
pub(crate) const ONE_FILE: &str = "robots.user_agent = \"OneBot/1.0\"";

/// Returns a duration in milliseconds.
pub(crate) fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Returns an origin whose robots.txt has a Crawl-delay of `seconds` for every crawler.
pub(crate) fn delaying(seconds: &str) -> Script {
    Script::robots(&format!("User-agent: *\nCrawl-delay: {seconds}\n"))
}

/// Returns an origin without a Crawl-delay, and the gate that holds back its answer for
/// `path`.
pub(crate) async fn held(path: &str) -> (Gate, Origin) {
    let gate = Gate::shut();
    let page = Page::text("x").after(&gate);
    (gate, Script::robots("").page(path, page).start().await)
}

/// Returns a configuration with the default pace, which most other tests turn off.
pub(crate) fn standard(origin: &Origin) -> Config {
    with_default_pace(resolve("o.test", origin.address()))
}

/// Sets the pace to the program's defaults.
pub(crate) fn with_default_pace(config: Config) -> Config {
    config
        .set("pace.profile = \"standard\"")
        .set("pace.origin = {}")
        .set("pace.backoff = { first = \"60s\", longest = \"24h\", forgive = \"30m\" }")
}

/// Starts `script`, and a proxy with the default pace before it.
pub(crate) async fn standard_site(script: Script) -> (Origin, Arc<Proxy>) {
    let origin = script.start().await;
    let proxy = Arc::new(standard(&origin).start().await);
    (origin, proxy)
}

/// Sends all requests, pairs of crawler and URL, at the same time, each over its own
/// connection. Returns the responses in the order of `requests`.
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

/// Sends requests for all of `urls` at the same time, as ExampleBot.
pub(crate) async fn all(proxy: &Arc<Proxy>, urls: &[String]) -> Vec<Reply> {
    let requests: Vec<_> = urls.iter().map(|url| ("ExampleBot", &**url)).collect();
    at_once(proxy, &requests).await
}

/// Sends requests as [`all`] does, in a task, without waiting for the responses.
pub(crate) fn asking_all(proxy: &Arc<Proxy>, urls: &[String]) -> JoinHandle<Vec<Reply>> {
    let (proxy, urls) = (Arc::clone(proxy), urls.to_vec());
    tokio::spawn(async move { all(&proxy, &urls).await })
}

/// Requests `url` as ExampleBot in a task, without waiting for the response.
pub(crate) fn asking_for(proxy: &Arc<Proxy>, url: &str) -> JoinHandle<Reply> {
    let (proxy, url) = (Arc::clone(proxy), url.to_owned());
    tokio::spawn(async move { get(&proxy, &url).await })
}

/// Returns `count` URLs under `http://o.test`.
pub(crate) fn urls(count: usize) -> Vec<String> {
    (1..=count).map(|n| format!("http://o.test/{n}")).collect()
}

pub(crate) fn statuses(replies: &[Reply]) -> Vec<u16> {
    replies.iter().map(Reply::status).collect()
}

/// Returns the page requests that `origins` received, ordered by time.
pub(crate) fn pages(origins: &[&Origin]) -> Vec<Seen> {
    let mut seen: Vec<_> = origins.iter().flat_map(|origin| origin.log()).collect();
    seen.retain(|seen| seen.target != "/robots.txt");
    seen.sort_by_key(|seen| seen.at);
    seen
}

/// Returns the pauses between successive requests.
pub(crate) fn gaps(seen: &[Seen]) -> Vec<Duration> {
    seen.windows(2)
        .map(|pair| pair[1].at.duration_since(pair[0].at))
        .collect()
}

/// Returns the time from the first request to the last.
pub(crate) fn span(seen: &[Seen]) -> Duration {
    seen[seen.len() - 1].at.duration_since(seen[0].at)
}

/// Asserts that there are `count` requests, and that successive ones are at least `pause`
/// apart.
pub(crate) fn assert_apart(seen: &[Seen], count: usize, pause: Duration) {
    assert_eq!(seen.len(), count, "{seen:?}");
    let gaps = gaps(seen);
    assert!(gaps.iter().all(|gap| pause <= *gap), "{gaps:?}");
}

/// Returns the time at which the first request for `target` arrived.
pub(crate) fn when(origin: &Origin, target: &str) -> Instant {
    let log = origin.log();
    let seen = log.iter().find(|seen| seen.target == target);
    seen.unwrap_or_else(|| panic!("{target} is not among {log:?}"))
        .at
}

/// Asserts that `reply` is the proxy's own 429 for `reason`, and returns its Retry-After.
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

/// Waits until `count` decisions have ended, stops the proxy, verifies its record, and
/// returns the decisions.
pub(crate) async fn verified(proxy: Arc<Proxy>, count: usize) -> (Place, Vec<Value>) {
    let rows = proxy.place().completed(count).await;
    let proxy = Arc::into_inner(proxy).unwrap();
    let place = proxy.stop().await;
    place.assert_verified().await;
    (place, rows)
}

/// Returns the value of a metric, or 0 if it is absent.
pub(crate) async fn metric(proxy: &Proxy, name: &str) -> f64 {
    let all = metrics(proxy).await;
    let lines = all.lines();
    let values = lines.filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    values
        .map(|value| value.trim().parse::<f64>().unwrap())
        .sum()
}

/// Returns a response of `status` with `retry_after` as its Retry-After field.
pub(crate) fn asking_for_less(status: u16, retry_after: Option<&str>) -> Page {
    let page = Page::text("too much\n").with_status(status);
    match retry_after {
        Some(value) => page.field("Retry-After", value),
        None => page,
    }
}

/// Sends concurrent requests for `paths` in a task, without waiting for the responses.
pub(crate) fn asking(proxy: &Arc<Proxy>, agent: &str, paths: &[&str]) -> JoinHandle<Vec<Reply>> {
    let (proxy, agent) = (Arc::clone(proxy), agent.to_owned());
    let urls = paths.iter().map(|path| format!("http://o.test{path}"));
    let urls: Vec<_> = urls.collect();
    tokio::spawn(async move {
        let requests: Vec<_> = urls.iter().map(|url| (&*agent, &**url)).collect();
        at_once(&proxy, &requests).await
    })
}

/// Returns the values of one column of the record's rows.
pub(crate) fn column(rows: &[Value], name: &str) -> Vec<Value> {
    rows.iter().map(|row| row[name].clone()).collect()
}

/// Waits until the value of a metric, which is 0 if it is absent, is as `wanted`.
pub(crate) async fn until_metric(proxy: &Proxy, name: &str, wanted: impl Fn(f64) -> bool) {
    until(name, async || {
        wanted(metric(proxy, name).await).then_some(())
    })
    .await;
}

/// Waits until a metric has this value.
pub(crate) async fn metric_is(proxy: &Proxy, name: &str, value: f64) {
    until_metric(proxy, name, |found| found == value).await;
}

/// Waits until exactly `length` requests are queued.
pub(crate) async fn queue(proxy: &Proxy, length: u32) {
    metric_is(proxy, "politesse_pace_queued", length.into()).await;
}

/// Waits until no request is in flight. A crawler can have its response slightly before
/// the proxy counts the request as finished.
pub(crate) async fn none_in_flight(proxy: &Proxy) {
    metric_is(proxy, "politesse_pace_in_flight", 0.0).await;
}
