//! Files that a page embeds: with `requisites = "follow"` they are fetched in the turn of
//! their page. `crates/politesse-pace/src/tests` tests which requests count as such.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::kit::client::{Crawler, Reply, ask};
use crate::kit::origin::{Origin, Script};
use crate::kit::paced::{assert_apart, delaying, metric, ms, pages, span, standard, verified};
use crate::kit::page::Page;
use crate::kit::proxy::{Config, Proxy};

pub(crate) const FOLLOW: &str = "crawler = [{ token = \"ExampleBot\", requisites = \"follow\" }]";
/// Shortest gap between arrivals at a rate of one a second: the proxy counts from start to
/// start, so arrivals may be a little closer.
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

/// Requests the page `/`, then all of `paths` at once, half of them with `Referer` and half
/// with `Sec-Fetch-Dest`. Returns their statuses in ascending order.
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
    (0..count).map(|n| format!("{folder}/{n}")).collect()
}

// Ours: robots.txt also applies to embedded files, and `pace.requisites.files` limits them.
#[tokio::test]
async fn embedded_files_follow_their_page_unless_robots_txt_disallows_them() {
    let script = Script::robots("User-agent: *\nDisallow: /private\n");
    let origin = script.start().await;
    let config = one_a_second(&origin).set(FOLLOW);
    let config = config.set("pace.requisites = { files = 29 }");
    let proxy = Arc::new(config.start().await);
    let paths = [files("/private", 2), files("/files", 30)].concat();
    let statuses = load(&proxy, paths).await;
    assert_eq!(statuses, [[200; 30].as_slice(), &[403; 2]].concat());
    let seen = pages(&[&origin]);
    assert_eq!(seen.len(), 31);
    // One file takes its own turn.
    assert!((RATE..ms(20_000)).contains(&span(&seen)), "{seen:?}");
    assert!(!seen.iter().any(|seen| seen.target.starts_with("/private")));
    assert_eq!(metric(&proxy, FOLLOWED).await, 29.0);
    // Each file is decided and recorded.
    verified(proxy, 33).await;
}

// Ours: a site's `Crawl-delay` applies to every request.
#[tokio::test]
async fn with_a_crawl_delay_each_file_takes_its_own_turn() {
    let origin = delaying("1").start().await;
    let proxy = Arc::new(one_a_second(&origin).set(FOLLOW).start().await);
    assert_eq!(load(&proxy, files("/files", 3)).await, [200; 3]);
    assert_apart(&pages(&[&origin]), 4, ms(1000));
    assert_eq!(metric(&proxy, FOLLOWED).await, 0.0);
}

#[tokio::test]
async fn only_files_of_a_page_just_served_to_the_client_follow_it() {
    let script = Script::robots("").page("/gone", Page::status(404));
    let origin = script.start().await;
    let config = one_a_second(&origin).set(FOLLOW);
    let config = config.set("pace.requisites = { time = \"700ms\" }");
    let proxy = config.start().await;
    for (path, field, status) in [
        // A file whose page was never served.
        ("/1", IMAGE, 200),
        ("/gone", "Accept: text/html", 404),
        ("/2", "Referer: http://o.test/gone", 200),
        ("/", "Accept: text/html", 200),
    ] {
        assert_eq!(get(&proxy, path, field).await.status(), status, "{path}");
    }
    // A file requested by another client.
    let mut other = Crawler::from(&proxy, 7).await;
    let line = "GET http://o.test/3 HTTP/1.1";
    let reply = other
        .ask(&[line, "Host: o.test", AGENT, BY_PAGE, IMAGE])
        .await;
    assert_eq!(reply.status(), 200);
    // A file requested after `pace.requisites.time`.
    assert_eq!(get(&proxy, "/4", BY_PAGE).await.status(), 200);
    assert_apart(&pages(&[&origin]), 6, RATE);
    assert_eq!(metric(&proxy, FOLLOWED).await, 0.0);
}

// Ours: `requisites = "turn"`, the default.
#[tokio::test]
async fn without_requisites_each_file_takes_its_own_turn() {
    let origin = Script::robots("").start().await;
    let proxy = Arc::new(one_a_second(&origin).start().await);
    assert_eq!(load(&proxy, files("/files", 3)).await, [200; 3]);
    assert_apart(&pages(&[&origin]), 4, RATE);
}
