//! SIGKILL under load, repeated on one record: every second time with a full disk, and
//! ten of a hundred times followed by damage to a block of the write-ahead log. The
//! origin's log and the numbers in the refusals show whether an entry is lost.

use std::collections::{HashMap, HashSet};
use std::fs::OpenOptions;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use rusqlite::OpenFlags;

use crate::kit::client::Crawler;
use crate::kit::disk::Disk;
use crate::kit::namespace::{Addresses, inside};
use crate::kit::origin::{Origin, Script};
use crate::kit::program::Outcome;
use crate::kit::proxy::{Place, Proxy, resolve};
use crate::kit::until;
use tokio::task::JoinSet;

/// Concurrent crawlers, each of which requests one page after the other.
const CRAWLERS: usize = 8;

/// Size of the disk; the record alone does not fill it.
const DISK_BYTES: u64 = 128 << 20;

/// Size of a damaged block, in bytes.
const BLOCK: usize = 512;

/// Requests pages below `folder` until the proxy is gone; every second page is
/// disallowed. Returns the number of the decision and the URL of each refusal.
async fn crawl(proxy: SocketAddr, folder: String) -> Vec<(u64, String)> {
    let mut connection = Crawler::to(proxy).await;
    let mut refusals = Vec::new();
    for page in 0.. {
        let (kind, page) = (["open", "private"][page % 2], page / 2);
        let url = format!("http://o.test/{kind}/{folder}/{page}");
        let head = format!("GET {url} HTTP/1.1\r\nHost: o.test\r\nUser-Agent: ExampleBot/1");
        let request = format!("{head}\r\n\r\n");
        if connection.try_send(request.as_bytes()).await.is_err() {
            break;
        }
        let Some(reply) = connection.try_reply_to("GET").await else {
            break;
        };
        if reply.status() == 403 {
            let number = reply.json()["decision"].as_str().unwrap().parse().unwrap();
            refusals.push((number, url));
        }
    }
    refusals
}

/// A record that several proxies write in turn, and the facts about it from outside.
struct KilledRecord {
    origin: Origin,
    disk: Disk,
    /// URL of each refusal by its decision's number.
    refusals: HashMap<u64, String>,
    /// Numbers of the lost entries that a start reported, by the kill before it.
    losses: HashMap<usize, RangeInclusive<u64>>,
    /// Number of killed proxies that had met the full disk.
    full: usize,
}

impl KilledRecord {
    /// Starts the first proxy.
    async fn begin() -> (Self, Proxy) {
        let robots = "User-agent: *\nDisallow: /private\n";
        let origin = Script::robots(robots).start().await;
        let config = resolve("o.test", origin.address());
        let place = Place::with(&config.set("audit.store = \"sqlite:data/audit.db\""));
        let disk = Disk::mount(place.path("data"), DISK_BYTES);
        let record = Self {
            origin,
            disk,
            refusals: HashMap::new(),
            losses: HashMap::new(),
            full: 0,
        };
        (record, place.start().await)
    }

    /// Kills `proxy` under load, at a moment that depends on the number `kill`; every
    /// second time shortly after the disk was filled.
    async fn kill(&mut self, proxy: Proxy, kill: usize) -> Place {
        let mut crawlers = JoinSet::new();
        for number in 0..CRAWLERS {
            crawlers.spawn(crawl(proxy.address(), format!("{kill}/{number}")));
        }
        let page = 5 + kill * 7 % 20;
        self.origin.arrival(&format!("/open/{kill}/3/{page}")).await;
        let is_full = kill % 2 == 1;
        if is_full {
            self.disk.fill();
            // Scripted fault: the time between the full disk and the kill varies.
            tokio::time::sleep(Duration::from_millis(5 * (kill as u64 % 40))).await;
        }
        self.full += usize::from(proxy.log().contains("disk is full"));
        let place = proxy.kill().await;
        if is_full {
            self.disk.make_room();
        }
        for (number, url) in crawlers.join_all().await.into_iter().flatten() {
            let before = self.refusals.insert(number, url);
            assert_eq!(before, None, "two refusals have number {number}");
        }
        place
    }

    /// Damages the write-ahead log left by `kill` and starts a proxy. Keeps the loss that
    /// the start reports.
    async fn start_damaged(&mut self, place: Place, kill: usize) -> Proxy {
        damage_log(&place.path("data/audit.db-wal"), kill);
        let before = place.run(&["audit", "verify"]).await;
        let proxy = place.start().await;
        let sql = "SELECT count(*) FROM lost_range";
        let database = read_only(proxy.place());
        let losses: u32 = database.query_row(sql, [], |row| row.get(0)).unwrap();
        if losses as usize == self.losses.len() {
            return proxy;
        }
        proxy.logged("entries of the record are missing").await;
        let events = ["audit", "events", "--kind", "entries_lost", "--json"];
        let event = until("event of a loss", async || {
            let mut events = proxy.place().run(&events).await.json_lines();
            (events.len() == losses as usize).then(|| events.swap_remove(0))
        });
        let detail = &event.await["detail"];
        let number = |name: &str| detail[name].as_u64().unwrap();
        let (found, committed) = (number("found"), number("committed"));
        assert!(committed <= number("lost_until"), "{detail}");
        // Without a power failure the marker knows the last number.
        if found < committed {
            assert_eq!(before.code, Some(1), "{before:?}");
            assert!(!before.stdout.contains(" 0 missing"), "{before:?}");
        }
        self.losses.insert(kill, found + 1..=committed);
        proxy
    }

    /// Asserts that every refusal has its row under its number and every request in the
    /// origin's log has a row that allows it, unless a start reported the loss.
    async fn assert_complete(&self, place: &Place) {
        let rows = place.rows().await;
        let urls: HashMap<_, _> = rows
            .iter()
            .map(|row| (row["url"].as_str().unwrap(), row["seq"].as_u64().unwrap()))
            .collect();
        assert_eq!(urls.len(), rows.len(), "two rows have one URL");
        let mut absent = HashMap::<usize, usize>::new();
        for (number, url) in &self.refusals {
            match urls.get(url.as_str()) {
                Some(found) => assert_eq!(found, number, "{url}"),
                None => {
                    let lost = &self.losses[&kill_of(url)];
                    assert!(lost.contains(number), "{number}: {url}");
                    *absent.entry(kill_of(url)).or_default() += 1;
                }
            }
        }
        let allowed = rows.iter().filter(|row| row["verdict"] == "allow");
        let allowed: HashSet<_> = allowed.map(|row| row["url"].as_str().unwrap()).collect();
        for target in self.origin.targets() {
            assert!(target.starts_with("/open/"), "{target}");
            let url = format!("http://o.test{target}");
            if !allowed.contains(url.as_str()) {
                *absent.entry(kill_of(&url)).or_default() += 1;
            }
        }
        for (kill, count) in &absent {
            let lost = self.losses.get(kill).map_or(0, |lost| lost.clone().count());
            assert!(*count <= lost, "kill {kill}: {count} absent, {lost} lost");
        }
    }
}

/// Returns the number of the kill that followed the request for `url`.
fn kill_of(url: &str) -> usize {
    let mut segments = url.trim_start_matches("http://o.test/").split('/');
    segments.nth(1).unwrap().parse().unwrap()
}

/// Inverts one block of the current frames of a write-ahead log, a different one for each
/// `kill`.
fn damage_log(path: &Path, kill: usize) {
    let log = std::fs::read(path).unwrap();
    // SQLite's file format, sections 4.1 and 4.2: current frames have the log's salts.
    let frames = log[32..].chunks_exact(24 + 4096);
    let live = frames.take_while(|frame| frame[8..16] == log[16..24]);
    let blocks = (32 + live.count() * (24 + 4096)) / BLOCK;
    let at = kill * 37 % blocks * BLOCK;
    let block: Vec<u8> = log[at..at + BLOCK].iter().map(|byte| !byte).collect();
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&block, at as u64).unwrap();
}

/// Opens the record read-only, so that its log is not checkpointed.
fn read_only(place: &Place) -> rusqlite::Connection {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
    rusqlite::Connection::open_with_flags(place.path("data/audit.db"), flags).unwrap()
}

/// Asserts that neither SQLite nor `audit verify` finds a fault. Does not change the log.
async fn assert_whole(place: &Place) -> Outcome {
    let checked: String = read_only(place)
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(checked, "ok");
    let outcome = place.audit("verify").await;
    assert!(outcome.stdout.contains(" 0 missing"), "{outcome:?}");
    outcome
}

/// Kills `count` proxies, and asserts that every request in the origin's log has a row,
/// or that a start and `verify` report how many do not. The log is damaged only after the
/// kills in `damaged`, because a start may refuse a record whose damaged log was partly
/// checkpointed.
async fn kill_again_and_again(count: usize, damaged: &[usize]) {
    let (mut record, mut proxy) = KilledRecord::begin().await;
    for kill in 0..count {
        let place = record.kill(proxy, kill).await;
        assert_whole(&place).await;
        proxy = match damaged.contains(&kill) {
            true => record.start_damaged(place, kill).await,
            false => place.start().await,
        };
    }
    let place = proxy.stop().await;
    let outcome = assert_whole(&place).await;
    let is_reported = outcome.stdout.contains(" numbers skipped");
    assert_eq!(is_reported, !record.losses.is_empty(), "{outcome:?}");
    record.assert_complete(&place).await;
    assert_eq!(
        is_reported,
        !damaged.is_empty(),
        "only damage loses entries"
    );
    assert!(0 < record.full, "the disk was never full");
}

// Invariant 3 (ARCHITECTURE.md): a decision is on disk before its request is sent.
#[test]
fn twenty_kills_lose_no_entry_that_the_next_start_does_not_report() {
    let name = "record_kill::twenty_kills_lose_no_entry_that_the_next_start_does_not_report";
    inside(name, Addresses::These(&[]), async {
        kill_again_and_again(20, &[]).await;
    });
}

// Invariant 3 (ARCHITECTURE.md), at length.
#[test]
#[ignore = "takes minutes: tests/full.sh"]
fn a_hundred_kills_lose_no_entry_that_the_next_start_does_not_report() {
    let name = "record_kill::a_hundred_kills_lose_no_entry_that_the_next_start_does_not_report";
    inside(name, Addresses::These(&[]), async {
        // Ten kills, alternating between a full disk and one with room.
        let damaged: Vec<_> = (0..10).map(|ten| 10 * ten + 4 + ten % 2).collect();
        kill_again_and_again(100, &damaged).await;
    });
}
