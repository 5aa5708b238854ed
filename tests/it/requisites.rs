//! Files that a page embeds, of a crawler with `requisites = "follow"`: in the turn of
//! their page. Which requests these are is tried in `crates/politesse-pace/src/tests`.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::kit::client::{Crawler, Reply, ask};
use crate::kit::origin::{Origin, Script};
use crate::kit::paced::{assert_apart, delaying, metric, ms, pages, span, standard, verified};
use crate::kit::page::Page;
use crate::kit::proxy::{Config, Proxy};

pub(crate) const FOLLOW: &str = "crawler = [{ token = \"ExampleBot\", requisites = \"follow\" }]";
/// A second by the clock of the proxy, which counts from start to start.
const RATE: Duration = Duration::from_millis(900);
const FOLLOWED: &str = "politesse_pace_requisites_total";
const AGENT: &str = "User-Agent: ExampleBot/1.0";
const BY_PAGE: &str = "Referer: http://o.test/";
const IMAGE: &str = "Sec-Fetch-Dest: image";

fn one_a_second(origin: &Origin) -> Config {
    standard(origin).set("pace.origin = { rate = \"1/s\" }")
}

async fn get(proxy: &Proxy, path: &str, field: &str) -> Reply {
    let url = format!("http://o.test{path}");
    ask(proxy, "GET", &url, &[AGENT, field]).await
}

/// Asks for the page `/`, then for all of these at once, half of them by `Referer` and half
/// by `Sec-Fetch-Dest`. Returns their statuses.
async fn load(proxy: &Arc<Proxy>, paths: Vec<String>) -> Vec<u16> {
    assert_eq!(get(proxy, "/", "Accept: text/html").await.status(), 200);
    let mut asking = JoinSet::new();
    for (path, field) in paths.into_iter().zip([BY_PAGE, IMAGE].into_iter().cycle()) {
        let proxy = Arc::clone(proxy);
        asking.spawn(async move { get(&proxy, &path, field).await.status() });
    }
    let mut statuses = asking.join_all().await;
    statuses.sort_unstable();
    statuses
}

fn files(folder: &str, count: usize) -> Vec<String> {
    let numbers = 0..count;
    numbers.map(|number| format!("{folder}/{number}")).collect()
}

// Ours: what robots.txt disallows is refused, however it is embedded.
#[tokio::test]
async fn thirty_files_follow_their_page_and_none_that_is_disallowed() {
    let script = Script::robots("User-agent: *\nDisallow: /private\n");
    let origin = script.start().await;
    let proxy = Arc::new(one_a_second(&origin).set(FOLLOW).start().await);
    let paths = [files("/private", 2), files("/files", 30)].concat();
    let statuses = load(&proxy, paths).await;
    assert_eq!(statuses, [[200; 30].as_slice(), &[403; 2]].concat());
    let seen = pages(&[&origin]);
    assert_eq!(seen.len(), 31);
    assert!(span(&seen) < ms(20_000), "{seen:?}");
    assert!(!seen.iter().any(|seen| seen.target.starts_with("/private")));
    assert_eq!(metric(&proxy, FOLLOWED).await, 30.0);
    // Each is decided and recorded.
    verified(proxy, 33).await;
}

#[tokio::test]
async fn each_file_waits_where_the_site_asks_for_a_pause() {
    let origin = delaying("1").start().await;
    let proxy = Arc::new(one_a_second(&origin).set(FOLLOW).start().await);
    assert_eq!(load(&proxy, files("/files", 3)).await, [200; 3]);
    assert_apart(&pages(&[&origin]), 4, ms(1000));
    assert_eq!(metric(&proxy, FOLLOWED).await, 0.0);
}

#[tokio::test]
async fn each_file_waits_without_the_key() {
    let origin = Script::robots("").start().await;
    let proxy = Arc::new(one_a_second(&origin).start().await);
    assert_eq!(load(&proxy, files("/files", 3)).await, [200; 3]);
    assert_apart(&pages(&[&origin]), 4, RATE);
}

#[tokio::test]
async fn files_beyond_the_bound_wait() {
    let origin = Script::robots("").start().await;
    let config = one_a_second(&origin).set(FOLLOW);
    let config = config.set("pace.requisites = { files = 2 }");
    let proxy = Arc::new(config.start().await);
    assert_eq!(load(&proxy, files("/files", 4)).await, [200; 4]);
    assert_eq!(metric(&proxy, FOLLOWED).await, 2.0);
    assert!(2 * RATE <= span(&pages(&[&origin])));
}

#[tokio::test]
async fn nothing_else_follows_a_page() {
    let gone = Script::robots("").page("/gone", Page::status(404));
    let origin = gone.start().await;
    let config = one_a_second(&origin).set(FOLLOW);
    let config = config.set("pace.requisites = { time = \"700ms\" }");
    let proxy = Arc::new(config.start().await);
    // Its page was never given.
    assert_eq!(get(&proxy, "/1", IMAGE).await.status(), 200);
    assert_eq!(
        get(&proxy, "/gone", "Accept: text/html").await.status(),
        404
    );
    let by_gone = "Referer: http://o.test/gone";
    assert_eq!(get(&proxy, "/2", by_gone).await.status(), 200);
    // Another client.
    assert_eq!(get(&proxy, "/", "Accept: text/html").await.status(), 200);
    let mut other = Crawler::from(&proxy, 7).await;
    let line = "GET http://o.test/3 HTTP/1.1";
    let reply = other
        .ask(&[line, "Host: o.test", AGENT, BY_PAGE, IMAGE])
        .await;
    assert_eq!(reply.status(), 200);
    // By now the time of the page is over.
    assert_eq!(get(&proxy, "/4", BY_PAGE).await.status(), 200);
    assert_apart(&pages(&[&origin]), 6, RATE);
    assert_eq!(metric(&proxy, FOLLOWED).await, 0.0);
}
