//! Faults of the record: files deleted, replaced, truncated or damaged, other programs
//! that hold a transaction, and a full disk. The origin's log shows that no request goes
//! out unrecorded.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::path::Path;

use tokio::task::JoinSet;

use crate::kit::client::{Crawler, get};
use crate::kit::disk::Disk;
use crate::kit::fleet::readyz;
use crate::kit::namespace::{Addresses, inside};
use crate::kit::origin::{Origin, Script, site};
use crate::kit::paced::metric;
use crate::kit::program::politesse;
use crate::kit::proxy::{Place, Proxy, resolve};
use crate::kit::{assert_contains, soon, until};

/// Concurrent crawlers, each of which requests one page after the other.
const CRAWLERS: usize = 8;

/// Refusals after which a crawler stops.
const REFUSALS: usize = 20;

const STORE: &str = "audit.store = \"sqlite:data/audit.db\"";

/// Starts an origin, and a proxy whose record is in the folder `data`.
async fn start() -> (Origin, Proxy) {
    site(Script::robots(""), &[STORE]).await
}

/// Requests pages until [`REFUSALS`] of them were refused; returns the number answered.
async fn crawl(mut crawler: Crawler, number: usize) -> usize {
    let (mut answered, mut refused) = (0, 0);
    while refused < REFUSALS {
        let page = answered + refused;
        let url = format!("http://o.test/{number}/{page}");
        match crawler.get(&url, "o.test").await.status() {
            200 => answered += 1,
            503 => refused += 1,
            status => panic!("{status}"),
        }
    }
    answered
}

/// Starts crawlers, which end when each was refused [`REFUSALS`] times.
async fn start_crawlers(proxy: &Proxy) -> JoinSet<usize> {
    let mut crawlers = JoinSet::new();
    for number in 0..CRAWLERS {
        crawlers.spawn(crawl(Crawler::plain(proxy).await, number));
    }
    crawlers
}

/// Starts crawlers, applies `act` to the record's folder, and waits until all crawlers
/// are refused. Asserts that after the fault only requests recorded before it reach the
/// origin: at most one per crawler.
async fn assert_fault_stops_the_crawl(proxy: &Proxy, origin: &Origin, act: fn(&Path)) {
    let crawlers = start_crawlers(proxy).await;
    for number in 0..CRAWLERS {
        origin.arrival(&format!("/{number}/5")).await;
    }
    act(&proxy.place().path("data"));
    let before = origin.targets().len();
    soon("refusals", crawlers.join_all()).await;
    let after = origin.targets().len();
    assert!(after <= before + CRAWLERS, "{before} and then {after}");
}

/// Asserts that `/readyz` is 503, with `why` in its text.
async fn assert_not_ready(proxy: &Proxy, why: &str) {
    let (status, text) = readyz(proxy).await;
    assert_eq!(status, 503);
    assert_contains(&text, why);
}

async fn refused_start(place: &Place) -> String {
    let outcome = place.run_code(1, &["serve"]).await;
    assert_eq!(outcome.stdout, "");
    outcome.stderr
}

async fn start_anew(place: Place) -> Proxy {
    let mut command = politesse(place.folder());
    command.args(["serve", "--new-record"]);
    Proxy::start(place, command).await
}

fn remove_all(data: &Path) {
    for name in ["audit.db", "audit.db-wal", "audit.db-shm"] {
        fs::remove_file(data.join(name)).unwrap();
    }
}

fn replace_by_copy(data: &Path) {
    fs::copy(data.join("audit.db"), data.join("x")).unwrap();
    fs::rename(data.join("x"), data.join("audit.db")).unwrap();
}

fn cut(data: &Path) {
    let file = fs::OpenOptions::new()
        .write(true)
        .open(data.join("audit.db"));
    file.unwrap().set_len(4096).unwrap();
}

fn move_away(data: &Path) {
    fs::rename(data, data.with_file_name("moved")).unwrap();
}

// Ours.
#[tokio::test]
async fn a_deleted_record_stops_the_crawl_and_the_next_start() {
    let (origin, proxy) = start().await;
    assert_fault_stops_the_crawl(&proxy, &origin, remove_all).await;
    assert_not_ready(&proxy, "audit.db was deleted or moved").await;
    proxy.logged("put the same file back, or restart").await;
    let seen = origin.targets().len() - origin.robots_fetches();
    let place = proxy.stop().await;
    let said = refused_start(&place).await;
    assert_contains(&said, "there is no audit.db");
    // The message counts decisions and their endings.
    let (_, rest) = said.split_once("at least ").unwrap();
    let missing: usize = rest.split(' ').next().unwrap().parse().unwrap();
    assert!(
        2 * seen <= missing + 3 * CRAWLERS,
        "{seen} were sent: {said}"
    );
    let proxy = start_anew(place).await;
    assert_eq!(get(&proxy, "http://o.test/new").await.status(), 200);
    let place = proxy.stop().await;
    assert_contains(&place.audit("events").await.stdout, "record_begun");
    place.assert_verified().await;
}

// Ours: a copy in place of the database loses no entry, because the WAL has the rest.
#[tokio::test]
async fn a_database_replaced_by_its_copy_stops_the_crawl_until_a_restart() {
    let (origin, proxy) = start().await;
    assert_fault_stops_the_crawl(&proxy, &origin, replace_by_copy).await;
    let reply = get(&proxy, "http://o.test/a").await;
    assert_eq!(reply.status(), 503);
    assert_contains(&reply.text(), "audit.db was replaced");
    assert_eq!(reply.json()["type"], "urn:politesse:audit");
    let seen = origin.targets().len() - origin.robots_fetches();
    let proxy = proxy.stop().await.start().await;
    assert_eq!(get(&proxy, "http://o.test/b").await.status(), 200);
    assert!(seen <= proxy.place().rows().await.len());
    proxy.place().assert_verified().await;
}

// Ours.
#[tokio::test]
async fn a_truncated_database_stops_the_crawl_and_the_next_start() {
    let (origin, proxy) = start().await;
    assert_fault_stops_the_crawl(&proxy, &origin, cut).await;
    assert_not_ready(&proxy, "audit.db was cut to 4096").await;
    // A service manager may also restart the proxy without a clean stop.
    let place = proxy.kill().await;
    assert_contains(&refused_start(&place).await, "it is damaged");
    start_anew(place).await;
}

// Ours.
#[tokio::test]
async fn a_moved_folder_stops_the_crawl_until_it_is_back() {
    let (origin, proxy) = start().await;
    assert_fault_stops_the_crawl(&proxy, &origin, move_away).await;
    assert_eq!(readyz(&proxy).await.0, 503);
    let seen = origin.targets().len() - origin.robots_fetches();
    let [moved, data] = ["moved", "data"].map(|name| proxy.place().path(name));
    fs::rename(moved, data).unwrap();
    assert_eq!(get(&proxy, "http://o.test/back").await.status(), 200);
    assert_eq!(readyz(&proxy).await, (200, "ready\n".to_owned()));
    let place = proxy.stop().await;
    assert!(seen < place.rows().await.len());
    place.assert_verified().await;
}

/// Opens a connection to the database with a read transaction that stays open.
fn open_reader(place: &Place) -> rusqlite::Connection {
    let reader = rusqlite::Connection::open(place.path("data/audit.db")).unwrap();
    reader.execute_batch("BEGIN").unwrap();
    let count = reader.query_row("SELECT count(*) FROM decision", [], |row| row.get(0));
    let _: i64 = count.unwrap();
    reader
}

/// Returns the size of the WAL by the proxy's metric, in MiB.
async fn wal_mib(proxy: &Proxy) -> f64 {
    metric(proxy, "politesse_audit_wal_bytes").await / f64::from(1 << 20)
}

// Ours: `audit.wal_max`.
#[tokio::test]
async fn an_open_read_transaction_stops_the_crawl_at_wal_max_until_it_ends() {
    let lines = [STORE, "audit.wal_max = \"16MiB\""];
    let (origin, proxy) = site(Script::robots(""), &lines).await;
    get(&proxy, "http://o.test/a").await;
    let reader = open_reader(proxy.place());
    start_crawlers(&proxy).await.join_all().await;
    assert_not_ready(&proxy, "audit.wal_max is reached: a reader").await;
    let wal = wal_mib(&proxy).await;
    assert!((16.0..17.0).contains(&wal), "{wal}");
    drop(reader);
    assert_eq!(get(&proxy, "http://o.test/b").await.status(), 200);
    assert!(wal_mib(&proxy).await < 1.0);
    let seen = origin.targets().len() - origin.robots_fetches();
    let place = proxy.stop().await;
    assert!(seen <= place.rows().await.len());
    place.assert_verified().await;
}

// Ours. Runs in a mount namespace, on a file system of 20 MiB.
#[test]
fn a_full_disk_stops_the_crawl_until_there_is_room() {
    let name = "record_faults::a_full_disk_stops_the_crawl_until_there_is_room";
    inside(name, Addresses::These(&[]), async {
        let origin = Script::robots("").start().await;
        let config = resolve("o.test", origin.address()).set(STORE);
        let place = Place::with(&config.set("audit.wal_max = \"16MiB\""));
        let disk = Disk::mount(place.path("data"), 20 << 20);
        let proxy = place.start().await;
        get(&proxy, "http://o.test/a").await;

        disk.fill();
        start_crawlers(&proxy).await.join_all().await;
        let sent = origin.targets().len();
        assert_not_ready(&proxy, "once there is room").await;
        assert_eq!(origin.targets().len(), sent);
        disk.make_room();
        assert_eq!(get(&proxy, "http://o.test/b").await.status(), 200);

        // This time the checkpoint needs the room.
        let reader = open_reader(proxy.place());
        start_crawlers(&proxy).await.join_all().await;
        disk.fill();
        drop(reader);
        assert_not_ready(&proxy, "cannot be moved to the database").await;
        disk.resize(80 << 20);
        until("room", async || {
            (get(&proxy, "http://o.test/c").await.status() == 200).then_some(())
        })
        .await;
        assert!(wal_mib(&proxy).await < 1.0);
        proxy.place().assert_verified().await;
    });
}

/// Returns the database file, the size of its pages, and the place of the root page of
/// `table`, both in bytes.
fn root_page(data: &Path, table: &str) -> (fs::File, u64, u64) {
    let path = data.join("audit.db");
    let database = rusqlite::Connection::open(&path).unwrap();
    let integer = |sql: &str| -> u64 {
        let found = database.query_row(sql, [], |row| row.get::<_, i64>(0));
        found.unwrap().try_into().unwrap()
    };
    let bytes = integer("PRAGMA page_size");
    let root = format!("SELECT rootpage FROM sqlite_schema WHERE name = '{table}'");
    let start = (integer(&root) - 1) * bytes;
    let options = fs::OpenOptions::new().read(true).write(true).open(path);
    (options.unwrap(), bytes, start)
}

// Ours.
#[tokio::test]
async fn a_locked_database_stops_the_crawl_until_it_is_unlocked() {
    let (origin, proxy) = start().await;
    get(&proxy, "http://o.test/a").await;
    let program = rusqlite::Connection::open(proxy.place().path("data/audit.db")).unwrap();
    program.execute_batch("BEGIN IMMEDIATE").unwrap();
    let reply = get(&proxy, "http://o.test/b").await;
    assert_eq!(reply.status(), 503);
    assert_contains(&reply.text(), "another program has locked");
    assert_contains(&readyz(&proxy).await.1, "another program has locked");
    drop(program);
    assert_eq!(get(&proxy, "http://o.test/c").await.status(), 200);
    assert!(!origin.targets().contains(&"/b".to_owned()));
    proxy.stop().await.assert_verified().await;
}

/// Overwrites the root page of `table`.
fn damage(data: &Path, table: &str) {
    let (file, bytes, start) = root_page(data, table);
    let junk = vec![0xA5; usize::try_from(bytes).unwrap()];
    file.write_all_at(&junk, start).unwrap();
}

/// Halves the row count in the first leaf of the table `decision`, which hides the other
/// half of its rows.
fn halve_leaf(data: &Path) {
    let (file, bytes, start) = root_page(data, "decision");
    let number = |at: u64, length: usize| {
        let mut found = [0; 4];
        file.read_exact_at(&mut found[4 - length..], at).unwrap();
        u64::from(u32::from_be_bytes(found))
    };
    // SQLite's file format, section 1.6: an interior page has a header of 12 bytes, then
    // the offsets of its cells; each cell begins with the number of a child page.
    let child = number(start + number(start + 12, 2), 4);
    let leaf = (child - 1) * bytes;
    let half = u16::try_from(number(leaf + 3, 2) / 2).unwrap();
    assert!(1 < half);
    file.write_all_at(&half.to_be_bytes(), leaf + 3).unwrap();
}

// Ours: cases/tampering.md. No command takes a part of the record for the whole.
#[tokio::test]
async fn every_command_that_reads_all_rows_notices_a_page_that_hides_some() {
    let (_origin, proxy) = start().await;
    let mut crawler = Crawler::plain(&proxy).await;
    for page in 0..200 {
        let url = format!("http://o.test/{page}");
        crawler.get(&url, "o.test").await;
    }
    let place = proxy.stop().await;
    halve_leaf(&place.path("data"));
    for words in [
        "list --limit 0",
        "export --as jsonl",
        "stats --by host",
        "top rules",
        "backup copy.db",
    ] {
        let outcome = place.audit_code(1, words).await;
        assert!(outcome.stderr.contains("audit.db"), "{words}: {outcome:?}");
    }
    assert!(!place.path("copy.db").exists());
}

// Ours: the proxy writes no more to a damaged database.
#[tokio::test]
async fn a_damaged_page_stops_the_crawl_until_a_new_record_is_begun() {
    let (origin, proxy) = start().await;
    get(&proxy, "http://o.test/a").await;
    let place = proxy.stop().await;
    damage(&place.path("data"), "clock_step");
    let proxy = place.start().await;
    let before = origin.targets();
    for page in ["b", "c"] {
        let reply = get(&proxy, &format!("http://o.test/{page}")).await;
        assert_eq!(reply.status(), 503);
        assert_contains(&reply.text(), "audit.db is damaged");
    }
    assert_eq!(origin.targets(), before);
    assert_not_ready(&proxy, "restore the file from a backup").await;
    let line = "every request is refused";
    assert_eq!(proxy.logged(line).await.matches(line).count(), 1);
    let proxy = start_anew(proxy.stop().await).await;
    let reply = get(&proxy, "http://o.test/d").await;
    assert_eq!(reply.status(), 200, "{} {}", reply.text(), proxy.log());
    let place = proxy.stop().await;
    place.assert_verified().await;
    // Damage in a page that the start reads makes the start fail.
    damage(&place.path("data"), "decision");
    let said = refused_start(&place).await;
    assert_contains(&said, "damaged");
    assert_contains(&said, "--new-record");
}

// Ours.
#[tokio::test]
async fn a_start_fails_if_others_may_write_the_record_and_warns_if_they_may_read_it() {
    let (_origin, proxy) = start().await;
    let place = proxy.stop().await;
    let chmod = |name: &str, mode| {
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(place.path(name), permissions).unwrap();
    };
    for name in ["data", "data/audit.db"] {
        chmod(name, 0o777);
        assert_contains(&refused_start(&place).await, "chmod go-w");
        chmod(name, 0o700);
    }
    chmod("data", 0o755);
    chmod("data/audit.db", 0o644);
    let proxy = place.start().await;
    proxy.logged("chmod 0700").await;
    proxy.logged("chmod 0600").await;
}

// Ours: entries may be missing, or another user could change the record.
#[tokio::test]
async fn a_start_warns_of_a_missing_marker_and_of_another_owner() {
    let (_origin, proxy) = start().await;
    assert!(!proxy.log().contains("is gone"), "{}", proxy.log());
    let place = proxy.stop().await;
    fs::remove_file(place.path("data/record")).unwrap();
    // Only root may change the owner of a file.
    let is_given = chown(place.path("data/audit.db"), Some(1234), None).is_ok();
    let proxy = place.start().await;
    proxy.logged("data/record is gone: what").await;
    let line = "data/audit.db belongs to another user (1234)";
    let log = proxy.logged_times(line, usize::from(is_given)).await;
    assert_eq!(log.contains(line), is_given, "{log}");
}
