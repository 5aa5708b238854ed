//! Removal of old entries, by age, by command, and on a full disk.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;

use crate::kit::client::{Crawler, get};
use crate::kit::disk::Disk;
use crate::kit::namespace::{Addresses, inside};
use crate::kit::origin::{Origin, Script};
use crate::kit::program::politesse;
use crate::kit::proxy::{Config, Place, Proxy, resolve};
use crate::kit::{assert_contains, assert_members, run_within, until};

/// Requests whose entries fill more than one part of the record: 8,192 numbers.
pub(crate) const REQUESTS: usize = 4200;

const REMOVED: &str = "entries 1 to 8192 are removed\n";

/// Time limit of a test.
const MINUTES: Duration = Duration::from_secs(180);

fn config(origin: &Origin) -> Config {
    resolve("o.test", origin.address()).set("audit.store = \"sqlite:data/audit.db\"")
}

/// Requests disallowed pages until the record has more than one part, and waits until all
/// its entries are older than a second.
pub(crate) async fn fill_part(proxy: &Proxy) {
    let mut crawler = Crawler::plain(proxy).await;
    for page in 0..REQUESTS {
        let url = format!("http://o.test/no/{page}");
        assert_eq!(crawler.get(&url, "o.test").await.status(), 403);
    }
    // Time under test: the tests remove entries older than one second.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
}

async fn origin() -> Origin {
    let script = Script::robots("User-agent: *\nDisallow: /no\n");
    script.start().await
}

/// Starts an origin and a proxy, and fills a part of the record.
async fn filled() -> (Origin, Proxy) {
    let origin = origin().await;
    let proxy = config(&origin).start().await;
    fill_part(&proxy).await;
    (origin, proxy)
}

/// Has the running proxy remove entries older than `age`; returns the command's output.
async fn prune(proxy: &Proxy, age: &str) -> String {
    let arguments = ["audit", "prune", "--before", age, "--why", "test", "--yes"];
    let outcome = proxy.run_admin(&arguments).await;
    outcome.assert_code(0).stdout
}

/// Reports whether the record has the entry of the first page.
async fn has_first_entry(place: &Place) -> bool {
    let list = place.audit("list --url http://o.test/no/0 --json").await;
    !list.json_lines().is_empty()
}

/// Waits until the entry of the first page is removed.
async fn first_entry_removed(place: &Place) {
    until("removal", async || {
        (!has_first_entry(place).await).then_some(())
    })
    .await;
}

/// Asserts that `verify` has no findings, and returns its report.
async fn verified(place: &Place) -> Value {
    let report = place.audit("verify --json").await.json_lines().remove(0);
    assert_eq!(report["findings"], json!([]));
    report
}

/// Asserts that the entry of the first page and one part at least are removed, and that
/// `verify` has no findings.
async fn assert_removed(place: &Place) {
    assert!(!has_first_entry(place).await);
    let report = verified(place).await;
    assert!(8192 <= report["pruned"].as_u64().unwrap(), "{report}");
}

/// Returns the detail of the event that records the removal.
async fn removal(place: &Place) -> Value {
    let events = place.audit("events --kind pruned --json").await;
    events.json_lines()[0]["detail"].clone()
}

// Ours.
#[test]
fn prune_has_the_running_proxy_remove_entries() {
    run_within(MINUTES, async {
        let (_origin, proxy) = filled().await;
        let place = proxy.place();
        assert_contains(&prune(&proxy, "1d").await, "nothing to remove");
        assert_eq!(prune(&proxy, "1s").await, REMOVED);
        first_entry_removed(place).await;
        let outcome = place.audit_code(1, "show 3").await;
        outcome.assert_stderr(&["entries up to 8192 were removed"]);
        let place = proxy.stop().await;
        assert_removed(&place).await;
        assert_eq!(removal(&place).await["by"], "admin token from 127.0.0.1");
    });
}

// Ours.
#[test]
fn prune_removes_entries_itself_if_no_proxy_runs() {
    run_within(MINUTES, async {
        let (origin, proxy) = filled().await;
        let place = proxy.stop().await;
        let prune = "prune --before 1s --why 'a test'";
        let would = "entries 1 to 8192 would be removed; --yes removes them\n";
        assert_eq!(place.audit(prune).await.stdout, would);
        for (wrong, told) in [
            ("prune --before 2999-01-01 --why x", "a time in the past"),
            ("prune --before 1s", "--why <TEXT>"),
        ] {
            place.audit_code(2, wrong).await.assert_stderr(&[told]);
        }
        place.audit("show 3").await;
        place.configure(&config(&origin).set("audit.retention = \"400d\""));
        let place = place.start().await.stop().await;
        // The second retention is only the command's own; the proxy's longer one applies.
        for retention in ["audit.retention=400d", "audit.retention=1s"] {
            let asked = format!("{prune} --yes --set {retention}");
            let outcome = place.audit_code(1, &asked).await;
            outcome.assert_stderr(&["old, and audit.retention is 400d: --even-younger"]);
        }
        let younger = format!("{prune} --yes --set audit.retention=1s --even-younger");
        assert_eq!(place.audit(&younger).await.stdout, REMOVED);
        assert_removed(&place).await;
        assert_removal_is_recorded(&place).await;
    });
}

/// Asserts that commands show the removal of entries younger than the retention, with its
/// reason and its user.
async fn assert_removal_is_recorded(place: &Place) {
    let detail = removal(place).await;
    assert_members(
        &detail,
        &json!({"why": "a test", "by": "command", "retention_s": 400 * 86_400}),
    );
    assert!(detail["user"]["uid"].is_u64(), "{detail}");
    let [youngest, before] = ["youngest", "before"].map(|name| detail[name].as_str());
    assert!(youngest < before, "{detail}");
    let why = ["audit", "why", "http://o.test/never", "--json"];
    let why = place.run(&why).await;
    let shown = &why.json_lines()[0]["removals"][0];
    assert_eq!(shown["detail"]["why"], "a test", "{why:?}");
    let told = place.audit("verify").await.stdout;
    assert_contains(&told, "entries up to 8192 removed by command, uid ");
    assert_contains(&told, "YOUNGER than audit.retention then");
    assert!(told.ends_with("OK, but removals by order: 1\n"), "{told}");
}

// Ours: `audit.retention`.
#[test]
fn entries_older_than_the_retention_are_removed() {
    run_within(MINUTES, async {
        let (origin, proxy) = filled().await;
        // The proxy first looks for old entries when it starts.
        let place = proxy.stop().await;
        place.configure(&config(&origin).set("audit.retention = \"1s\""));
        let proxy = place.start().await;
        first_entry_removed(proxy.place()).await;
        assert_removed(&proxy.stop().await).await;
    });
}

/// Runs `prune` and kills it after `time`. Returns whether it had ended by itself.
async fn prune_for(place: &Place, time: Duration) -> bool {
    let mut command = politesse(place.folder());
    command.args(["audit", "prune", "--before", "1s", "--why", "test", "--yes"]);
    let mut program = command.stdout(Stdio::null()).spawn().unwrap();
    let ended = timeout(time, program.wait()).await;
    if ended.is_err() {
        program.kill().await.unwrap();
    }
    ended.is_ok()
}

// Ours: the next `prune` completes a removal, at whatever point it was killed.
#[test]
fn a_killed_removal_is_completed_by_the_next_one() {
    run_within(MINUTES, async {
        let (_origin, proxy) = filled().await;
        let place = proxy.stop().await;
        let mut time = Duration::ZERO;
        while !prune_for(&place, time).await {
            verified(&place).await;
            time += Duration::from_millis(20);
        }
        assert_removed(&place).await;
    });
}

// Ours. Runs in a mount namespace, on a file system of 64 MiB.
#[test]
fn a_full_disk_can_be_pruned() {
    let name = "retention::a_full_disk_can_be_pruned";
    inside(name, Addresses::These(&[]), async {
        let origin = origin().await;
        let place = Place::with(&config(&origin));
        let disk = Disk::mount(place.path("data"), 64 << 20);
        let proxy = place.start().await;
        fill_part(&proxy).await;
        assert!(proxy.place().path("data/ballast").exists());
        let answers = async |status: u16| {
            until("the status", async || {
                let reply = get(&proxy, "http://o.test/a").await;
                (reply.status() == status).then_some(())
            })
            .await;
        };
        disk.fill();
        answers(503).await;
        prune(&proxy, "1s").await;
        answers(200).await;
        first_entry_removed(proxy.place()).await;
        assert_removed(proxy.place()).await;
    });
}

// Ours: no entry is lost, and the ballast file gives `prune` the room that it needs.
#[test]
fn prune_says_why_it_cannot_remove_entries() {
    let name = "retention::prune_says_why_it_cannot_remove_entries";
    inside(name, Addresses::These(&[]), async {
        let origin = origin().await;
        let place = Place::with(&config(&origin));
        let disk = Disk::mount(place.path("data"), 64 << 20);
        let proxy = place.start().await;
        fill_part(&proxy).await;
        let place = proxy.stop().await;
        let prune = "prune --before 1s --why test --yes";
        let ballast = place.path("data/ballast");
        std::fs::remove_file(&ballast).unwrap();
        disk.set_access("ro");
        let outcome = place.audit_code(1, prune).await;
        outcome.assert_stderr(&["Read-only file system"]);
        disk.set_access("rw");
        disk.fill();
        let outcome = place.audit_code(1, prune).await;
        outcome.assert_stderr(&["disk is full"]);
        disk.make_room();
        let whole = place.audit("verify").await.stdout;
        assert_contains(&whole, " 0 mismatches, 0 missing");
        // A start creates the ballast file again.
        let place = place.start().await.stop().await;
        assert!(ballast.exists());
        disk.fill();
        assert_eq!(place.audit(prune).await.stdout, REMOVED);
        assert!(!ballast.exists());
        disk.make_room();
        assert_removed(&place).await;
    });
}
