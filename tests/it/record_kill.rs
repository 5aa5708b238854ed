//! SIGKILL under load, again and again on one record: judged by the log of the
//! origin, and by the numbers that crawlers were told.

use std::collections::HashMap;
use std::net::SocketAddr;

use crate::kit::client::Crawler;
use crate::kit::origin::{Origin, Script};
use crate::kit::proxy::{Place, Proxy, resolve};
use crate::kit::run;
use tokio::task::JoinSet;

const KILLS: usize = 20;

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

/// Kills `proxy` under load, sooner or later by `kill`. Returns the refusals.
async fn kill_under_load(proxy: Proxy, origin: &Origin, kill: usize) -> (Place, Vec<Told>) {
    let mut crawlers = JoinSet::new();
    for number in 0..CRAWLERS {
        crawlers.spawn(crawl(proxy.address(), format!("{kill}/{number}")));
    }
    let page = 5 + kill * 7 % 20;
    origin.arrival(&format!("/open/{kill}/3/{page}")).await;
    let place = proxy.kill().await;
    let told = crawlers.join_all().await.into_iter().flatten().collect();
    (place, told)
}

/// Holds that `audit verify` finds nothing. Returns how many numbers were lost.
async fn verified(place: &Place) -> u64 {
    let outcome = place.run(&["audit", "verify"]).await;
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.stdout.contains(" 0 missing"), "{outcome:?}");
    let (before, _) = outcome
        .stdout
        .split_once(" numbers lost")
        .unwrap_or(("0", ""));
    before.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Kills proxies with this durability one after the other. Returns how many
/// requests of the origin's log have no row.
async fn kill_again_and_again(durability: &str) -> usize {
    let robots = "User-agent: *\nDisallow: /private\n";
    let origin = Script::robots(robots).start().await;
    let config = resolve("o.test", origin.address());
    let config = config.set(&format!("audit.durability = \"{durability}\""));
    let mut proxy = config.start().await;
    let mut told = HashMap::new();
    for kill in 0..KILLS {
        let (place, refusals) = kill_under_load(proxy, &origin, kill).await;
        verified(&place).await;
        for refusal in refusals {
            let before = told.insert(refusal.number, refusal.url);
            assert_eq!(before, None, "{} was told twice", refusal.number);
        }
        proxy = place.start().await;
    }
    let place = proxy.stop().await;
    let lost = verified(&place).await;
    let rows = place.rows().await;
    let urls: HashMap<_, _> = rows
        .iter()
        .map(|row| (row["url"].as_str().unwrap(), row["seq"].as_u64().unwrap()))
        .collect();
    assert_eq!(urls.len(), rows.len(), "a decision is there twice");
    // A number stands for the decision that it was told for, or is lost.
    let absent = told
        .iter()
        .filter(|(number, url)| match urls.get(url.as_str()) {
            Some(found) => {
                assert_eq!(found, *number, "{url}");
                false
            }
            None => {
                assert!(!urls.values().any(|found| found == *number), "{number}");
                true
            }
        });
    let absent = absent.count();
    let mut targets = origin.targets();
    targets.retain(|target| target != "/robots.txt");
    let url = |target: &String| format!("http://o.test{target}");
    targets.retain(|target| !urls.contains_key(url(target).as_str()));
    assert!(
        absent + targets.len() <= lost.try_into().unwrap(),
        "{lost} lost"
    );
    assert!(KILLS * CRAWLERS < rows.len());
    targets.len()
}

// Invariant 3: what is sent is on disk before.
#[test]
fn twenty_kills_lose_no_request_and_no_number_with_commit() {
    run(async {
        assert_eq!(kill_again_and_again("commit").await, 0);
    });
}

// Ours: with `queue` the last moments are lost, and noted.
#[test]
fn twenty_kills_lose_last_moments_and_tell_no_number_twice_with_queue() {
    run(async {
        kill_again_and_again("queue").await;
    });
}
