//! `audit backup` while a proxy writes, and `audit restore` after the record was lost.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rusqlite::Connection;

use crate::kit::assert_contains;
use crate::kit::client::{Crawler, get};
use crate::kit::origin::{Script, site};
use crate::kit::paced::column;
use crate::kit::proxy::{Config, Place, Proxy, resolve};
use tokio::task::JoinSet;

/// Pages that each crawler requests while a backup is made.
const PAGES: usize = 200;

const STORE: &str = "audit.store = \"sqlite:data/audit.db\"";

/// Asserts that `audit` refuses `words`, and that the message contains `told`.
async fn assert_refused(place: &Place, words: &str, told: &str) {
    let outcome = place.audit_code(1, words).await;
    assert_eq!(outcome.stdout, "");
    assert_contains(&outcome.stderr, told);
}

/// Makes a backup while four crawlers request pages.
async fn back_up_under_load(proxy: &Proxy, file: &str) {
    let mut crawlers = JoinSet::new();
    for number in 0..4 {
        let mut crawler = Crawler::plain(proxy).await;
        crawlers.spawn(async move {
            for page in 0..PAGES {
                let url = format!("http://o.test/{number}/{page}");
                assert_eq!(crawler.get(&url, "o.test").await.status(), 200);
            }
        });
    }
    let said = proxy.place().audit(&format!("backup {file}")).await.stdout;
    assert_contains(&said, &format!("{file}: entries 1 to "));
    crawlers.join_all().await;
}

fn lose_record(place: &Place) {
    for suffix in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(place.path(&format!("data/audit.db{suffix}")));
    }
}

// Ours.
#[tokio::test]
async fn a_backup_of_a_running_proxy_passes_verify() {
    let (_origin, proxy) = site(Script::robots(""), &[STORE]).await;
    get(&proxy, "http://o.test/first").await;
    back_up_under_load(&proxy, "copy.db").await;
    let place = proxy.place();
    let mode = fs::metadata(place.path("copy.db")).unwrap().permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    let copy = "--set audit.store=sqlite:copy.db";
    place.audit(&format!("verify {copy}")).await;
    let listed = place.audit(&format!("list --limit 0 {copy}")).await;
    assert_contains(&listed.stdout, "http://o.test/first");
    // An existing file is left unchanged.
    assert_refused(place, "backup copy.db", "cannot create copy.db").await;
    assert!(!place.path("copy.db.part").exists());
    // The marker file beside this backup belongs to the record, which has more entries.
    place.audit("backup data/copy.db").await;
    get(&proxy, "http://o.test/second").await;
    let place = proxy.stop().await;
    let copy = "verify --set audit.store=sqlite:data/copy.db";
    let verified = place.audit(copy).await.stdout;
    assert!(verified.ends_with("OK\n"), "{verified}");
}

// Ours: entries after the backup are noted as lost, and no number is given twice.
#[tokio::test]
async fn a_restored_record_continues_after_all_numbers_given_before() {
    let script = Script::robots("User-agent: *\nDisallow: /no\n");
    let (_origin, proxy) = site(script, &[STORE]).await;
    get(&proxy, "http://o.test/a").await;
    proxy.place().audit("backup copy.db").await;
    let told = get(&proxy, "http://o.test/no").await.json()["decision"].clone();
    let told: u64 = told.as_str().unwrap().parse().unwrap();
    let in_use = "in use by another process";
    assert_refused(proxy.place(), "restore copy.db", in_use).await;
    let place = proxy.stop().await;
    assert_refused(&place, "restore copy.db", "is whole").await;

    lose_record(&place);
    let said = place.audit("restore copy.db").await.stdout;
    assert_contains(&said, "are noted as lost");
    let proxy = place.start().await;
    get(&proxy, "http://o.test/b").await;
    let place = proxy.stop().await;
    let rows = place.rows().await;
    assert_eq!(column(&rows, "url"), ["http://o.test/a", "http://o.test/b"]);
    let newest = rows[1]["seq"].as_u64().unwrap();
    assert!(told < newest, "{told} {newest}");
    let said = place.audit("verify").await.stdout;
    assert_contains(&said, " 0 missing");
    assert_contains(&said, "numbers skipped");
    let said = place.audit("events --kind restored").await.stdout;
    assert_contains(&said, "lost_until");
}

// Ours: a forged highest number does not show which numbers were given.
#[tokio::test]
async fn a_record_with_a_forged_highest_number_is_neither_opened_nor_restored() {
    let (_origin, proxy) = site(Script::robots(""), &[STORE]).await;
    get(&proxy, "http://o.test/a").await;
    proxy.place().completed(1).await;
    proxy.place().audit("backup copy.db").await;
    let place = proxy.stop().await;
    fs::copy(place.path("copy.db"), place.path("changed.db")).unwrap();
    for file in ["data/audit.db", "changed.db"] {
        let database = Connection::open(place.path(file)).unwrap();
        let sql = "UPDATE sequence SET digest = x'00'";
        assert_eq!(database.execute(sql, []).unwrap(), 1);
    }
    let change = "its highest number is not as it was written";
    let outcome = place.run(&["serve"]).await;
    assert_contains(&outcome.stderr, change);
    assert_refused(&place, "restore changed.db", change).await;
    place.audit("restore copy.db").await;
    let proxy = place.start().await;
    get(&proxy, "http://o.test/b").await;
    let place = proxy.stop().await;
    assert_eq!(place.rows().await.len(), 2);
    place.assert_verified().await;
}

// Ours: after a kill, the newest entries are still in the WAL file.
#[tokio::test]
async fn a_file_with_an_unmerged_wal_is_not_restored() {
    let (_origin, proxy) = site(Script::robots(""), &[STORE]).await;
    assert_eq!(get(&proxy, "http://o.test/a").await.status(), 200);
    proxy.place().completed(1).await;
    let killed = proxy.kill().await;
    let place = Place::with(&Config::default().set(STORE));
    for end in ["", "-wal"] {
        let from = killed.path(&format!("data/audit.db{end}"));
        fs::copy(from, place.path(&format!("old.db{end}"))).unwrap();
    }
    assert_refused(&place, "restore old.db", "make a backup of it first").await;
    let old = "--set audit.store=sqlite:old.db";
    place.audit(&format!("backup whole.db {old}")).await;
    place.audit("restore whole.db").await;
    assert_eq!(place.rows().await[0]["url"], "http://o.test/a");
}

// Ours.
#[tokio::test]
async fn only_an_intact_backup_of_the_same_record_is_restored() {
    let (origin, proxy) = site(Script::robots(""), &[STORE]).await;
    get(&proxy, "http://o.test/a").await;
    proxy.place().audit("backup copy.db").await;
    let place = proxy.stop().await;
    // A backup of another record.
    let config = resolve("o.test", origin.address()).set(STORE);
    let empty = Place::with(&config);
    let other = config.start().await.stop().await;
    other.audit("backup other.db").await;
    fs::copy(other.path("other.db"), place.path("other.db")).unwrap();
    lose_record(&place);
    assert_refused(&place, "restore other.db", "it is of the record").await;
    // A damaged backup, and a file that is no database.
    let mut bytes = fs::read(place.path("copy.db")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..].fill(0xA5);
    fs::write(place.path("damaged.db"), bytes).unwrap();
    assert_refused(&place, "restore damaged.db", "it is damaged").await;
    fs::write(place.path("text.db"), "no database").unwrap();
    let text = place.audit_code(1, "restore text.db").await;
    text.assert_output(1, "");
    text.assert_stderr(&["text.db", "not a backup of a record, or is damaged"]);
    assert!(!text.stderr.contains("--new-record"), "{text:?}");
    assert_refused(&place, "restore absent.db", "").await;
    assert!(!place.path("data/audit.db").exists());
    // A machine that never had a record.
    fs::copy(place.path("copy.db"), empty.path("copy.db")).unwrap();
    let said = empty.audit("restore copy.db").await.stdout;
    // The other machine may have given more numbers since the backup.
    assert_contains(&said, "are noted as lost");
    let proxy = empty.start().await;
    get(&proxy, "http://o.test/b").await;
    let moved = proxy.stop().await;
    assert_eq!(moved.rows().await.len(), 2);
    moved.assert_verified().await;
}
