//! SIGKILL under load, again and again on one record, every second time with a full
//! disk: judged by the log of the origin, and by the numbers that crawlers were told.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use crate::kit::client::Crawler;
use crate::kit::disk::Disk;
use crate::kit::namespace::{Addresses, inside};
use crate::kit::origin::{Origin, Script};
use crate::kit::proxy::{Place, Proxy, resolve};
use tokio::task::JoinSet;

/// Crawlers that ask at the same time, each for one page after the other.
const CRAWLERS: usize = 8;

/// Refusal, as its crawler was told.
struct Told {
    number: u64,
    url: String,
}

/// Asks for pages below `folder` until the proxy is gone, every second time for one
/// that is refused. Returns the refusals.
async fn crawl(proxy: SocketAddr, folder: String) -> Vec<Told> {
    let mut connection = Crawler::to(proxy).await;
    let mut told = Vec::new();
    for page in 0.. {
        let (kind, page) = (["open", "private"][page % 2], page / 2);
        let url = format!("http://o.test/{kind}/{folder}/{page}");
        let request =
            format!("GET {url} HTTP/1.1\r\nHost: o.test\r\nUser-Agent: ExampleBot/1\r\n\r\n");
        let sent = connection.try_send(request.as_bytes()).await;
        let reply = match sent {
            Ok(()) => connection.try_reply_to("GET").await,
            Err(_) => None,
        };
        match reply {
            Some(reply) if reply.status() == 403 => {
                let number = reply.json()["decision"].as_str().unwrap().parse().unwrap();
                told.push(Told { number, url });
            }
            Some(_) => {}
            None => break,
        }
    }
    told
}

/// Kills `proxy` under load, sooner or later by `kill`, and every second time some
/// moments after `disk` was filled. Returns the refusals.
async fn kill_under_load(
    proxy: Proxy,
    origin: &Origin,
    kill: usize,
    disk: &Disk,
) -> (Place, Vec<Told>) {
    let mut crawlers = JoinSet::new();
    for number in 0..CRAWLERS {
        crawlers.spawn(crawl(proxy.address(), format!("{kill}/{number}")));
    }
    let page = 5 + kill * 7 % 20;
    origin.arrival(&format!("/open/{kill}/3/{page}")).await;
    let is_full = kill % 2 == 1;
    if is_full {
        disk.fill();
        tokio::time::sleep(Duration::from_millis(5 * (kill as u64 % 40))).await;
    }
    let place = proxy.kill().await;
    if is_full {
        disk.make_room();
    }
    let told = crawlers.join_all().await.into_iter().flatten().collect();
    (place, told)
}

/// Asserts that neither SQLite nor `audit verify` finds anything, and that no number is
/// lost.
async fn assert_whole(place: &Place) {
    let database = rusqlite::Connection::open(place.path("data/audit.db")).unwrap();
    let checked: String = database
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(checked, "ok");
    drop(database);
    let outcome = place.run(&["audit", "verify"]).await;
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.stdout.contains(" 0 missing"), "{outcome:?}");
    assert!(!outcome.stdout.contains("numbers lost"), "{outcome:?}");
}

/// Kills proxies, and asserts that each request of the origin's log has a row.
async fn kill_again_and_again(count: usize) {
    let robots = "User-agent: *\nDisallow: /private\n";
    let origin = Script::robots(robots).start().await;
    let config = resolve("o.test", origin.address());
    let place = Place::with(&config);
    let disk = Disk::mount(place.path("data"), DISK_BYTES);
    let mut proxy = place.start().await;
    let mut told = HashMap::new();
    for kill in 0..count {
        let (place, refusals) = kill_under_load(proxy, &origin, kill, &disk).await;
        assert_whole(&place).await;
        for refusal in refusals {
            let before = told.insert(refusal.number, refusal.url);
            assert_eq!(before, None, "{} was told twice", refusal.number);
        }
        proxy = place.start().await;
    }
    let place = proxy.stop().await;
    assert_whole(&place).await;
    let rows = place.rows().await;
    let urls: HashMap<_, _> = rows
        .iter()
        .map(|row| (row["url"].as_str().unwrap(), row["seq"].as_u64().unwrap()))
        .collect();
    assert_eq!(urls.len(), rows.len(), "a decision is there twice");
    // A number stands for the decision that it was told for.
    for (number, url) in &told {
        assert_eq!(urls.get(url.as_str()), Some(number), "{url}");
    }
    let mut targets = origin.targets();
    targets.retain(|target| target != "/robots.txt");
    let url = |target: &String| format!("http://o.test{target}");
    targets.retain(|target| !urls.contains_key(url(target).as_str()));
    assert_eq!(targets, Vec::<String>::new(), "requests without a row");
    assert!(count * CRAWLERS < rows.len());
}

/// Size of the disk that is filled: its record does not outgrow it.
const DISK_BYTES: u64 = 64 << 20;

// Invariant 3: what is sent is on disk before.
#[test]
fn twenty_kills_lose_no_request_and_no_number() {
    let name = "record_kill::twenty_kills_lose_no_request_and_no_number";
    inside(name, Addresses::These(&[]), async {
        kill_again_and_again(20).await;
    });
}

// Invariant 3: the same at length.
#[test]
#[ignore = "takes minutes: tests/full.sh"]
fn a_hundred_kills_lose_no_request_and_no_number() {
    let name = "record_kill::a_hundred_kills_lose_no_request_and_no_number";
    inside(name, Addresses::These(&[]), async {
        kill_again_and_again(100).await;
    });
}
