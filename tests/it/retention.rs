//! Removal of old entries, by age, by command, and on a full disk.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::timeout;

use crate::kit::client::{Crawler, get};
use crate::kit::disk::Disk;
use crate::kit::namespace::{Addresses, inside};
use crate::kit::origin::{Origin, Script};
use crate::kit::program::politesse;
use crate::kit::proxy::{Config, Place, Proxy, resolve};
use crate::kit::{assert_contains, run_within, until};

/// Requests whose entries fill more than one part of the record: 8,192 numbers.
pub(crate) const REQUESTS: usize = 4200;

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
    Script::robots("User-agent: *\nDisallow: /no\n")
        .start()
        .await
}

/// Has the running proxy remove entries older than `age`; returns the command's output.
async fn prune(proxy: &Proxy, age: &str) -> String {
    let admin = format!("admin.listen=\"{}\"", proxy.admin());
    let arguments = [
        "audit", "prune", "--before", age, "--why", "test", "--yes", "--set", &admin,
    ];
    proxy.place().run_ok(&arguments).await.stdout
}

/// Waits until the entry of the first page is removed.
async fn first_entry_removed(place: &Place) {
    until("removal", async || {
        let arguments = ["audit", "list", "--url", "http://o.test/no/0", "--json"];
        let rows = place.run(&arguments).await.json_lines();
        rows.is_empty().then_some(())
    })
    .await;
}

/// Asserts that `verify` has no findings and reports the removal of one part at least.
async fn verified(place: &Place) {
    let outcome = place.run_ok(&["audit", "verify", "--json"]).await;
    let sums: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(sums["findings"], Value::Array(Vec::new()));
    assert!(sums["pruned"].as_u64().unwrap() >= 8192, "{sums}");
}

// Ours.
#[test]
fn prune_has_the_running_proxy_remove_entries() {
    run_within(MINUTES, async {
        let origin = origin().await;
        let proxy = config(&origin).start().await;
        fill_part(&proxy).await;
        let place = proxy.place();
        let said = prune(&proxy, "1d").await;
        assert!(said.contains("nothing to remove"), "{said}");
        let said = prune(&proxy, "1s").await;
        assert_eq!(said, "entries 1 to 8192 are removed\n");
        first_entry_removed(place).await;
        let outcome = place.run_code(1, &["audit", "show", "3"]).await;
        let text = "entries up to 8192 were removed";
        assert!(outcome.stderr.contains(text), "{outcome:?}");
        let place = proxy.stop().await;
        verified(&place).await;
        let events = place
            .run_ok(&["audit", "events", "--kind", "pruned", "--json"])
            .await;
        let by = &events.json_lines()[0]["detail"]["by"];
        assert_eq!(by, "admin token from 127.0.0.1");
    });
}

// Ours.
#[test]
fn prune_removes_entries_itself_if_no_proxy_runs() {
    run_within(MINUTES, async {
        let origin = origin().await;
        let proxy = config(&origin).start().await;
        fill_part(&proxy).await;
        let place = proxy.stop().await;
        let asked = ["audit", "prune", "--before", "1s", "--why", "a test"];
        let said = place.run_ok(&asked).await.stdout;
        let text = "entries 1 to 8192 would be removed; --yes removes them\n";
        assert_eq!(said, text);
        let outcome = place.run(&["audit", "prune", "--before", "2999-01-01", "--why", "x"]);
        let outcome = outcome.await.assert_code(2);
        assert!(outcome.stderr.contains("a time in the past"), "{outcome:?}");
        let outcome = place.run_code(2, &asked[..4]).await;
        assert!(outcome.stderr.contains("--why <TEXT>"), "{outcome:?}");
        place.run_ok(&["audit", "show", "3"]).await;
        place.configure(&config(&origin).set("audit.retention = \"400d\""));
        let place = place.start().await.stop().await;
        // The second retention is only the command's own; the proxy's longer one applies.
        for retention in ["audit.retention=400d", "audit.retention=1s"] {
            let kept = [&asked[..], &["--yes", "--set", retention]].concat();
            let outcome = place.run_code(1, &kept).await;
            let text = "old, and audit.retention is 400d: --even-younger";
            assert!(outcome.stderr.contains(text), "{outcome:?}");
        }
        let kept = [&asked[..], &["--yes", "--set", "audit.retention=1s"]].concat();
        let said = place
            .run_ok(&[&kept[..], &["--even-younger"]].concat())
            .await;
        assert_eq!(said.stdout, "entries 1 to 8192 are removed\n");
        let events = place
            .run_ok(&["audit", "events", "--kind", "pruned", "--json"])
            .await;
        let detail = &events.json_lines()[0]["detail"];
        assert_eq!(detail["why"], "a test");
        let why = place
            .run(&["audit", "why", "http://o.test/never", "--json"])
            .await;
        let removal = &why.json_lines()[0]["removals"][0];
        assert_eq!(removal["detail"]["why"], "a test", "{why:?}");
        assert_eq!(detail["by"], "command");
        assert!(detail["user"]["uid"].is_u64(), "{detail}");
        assert_eq!(detail["retention_s"], 400 * 86_400);
        assert!(
            detail["youngest"].as_str() < detail["before"].as_str(),
            "{detail}"
        );
        let url = "http://o.test/no/0";
        let listed = place
            .run_ok(&["audit", "list", "--url", url, "--json"])
            .await;
        assert_eq!(listed.stdout, "");
        verified(&place).await;
        let told = place.run_ok(&["audit", "verify"]).await.stdout;
        assert_contains(&told, "entries up to 8192 removed by command, uid ");
        assert!(told.contains("YOUNGER than audit.retention then"), "{told}");
        assert!(told.ends_with("OK, but removals by order: 1\n"), "{told}");
    });
}

// Ours: `audit.retention`.
#[test]
fn entries_older_than_the_retention_are_removed() {
    run_within(MINUTES, async {
        let origin = origin().await;
        let proxy = config(&origin).start().await;
        fill_part(&proxy).await;
        // The proxy first looks for old entries when it starts.
        let place = proxy.stop().await;
        place.configure(&config(&origin).set("audit.retention = \"1s\""));
        let proxy = place.start().await;
        first_entry_removed(proxy.place()).await;
        let place = proxy.stop().await;
        verified(&place).await;
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
        let origin = origin().await;
        let proxy = config(&origin).start().await;
        fill_part(&proxy).await;
        let place = proxy.stop().await;
        let mut time = Duration::ZERO;
        while !prune_for(&place, time).await {
            let outcome = place.run_ok(&["audit", "verify", "--json"]).await;
            let sums: Value = serde_json::from_str(&outcome.stdout).unwrap();
            assert_eq!(sums["findings"], Value::Array(Vec::new()));
            time += Duration::from_millis(20);
        }
        verified(&place).await;
        let url = "http://o.test/no/0";
        let listed = place
            .run_ok(&["audit", "list", "--url", url, "--json"])
            .await;
        assert_eq!(listed.stdout, "");
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
        let proxy = Arc::new(place.start().await);
        fill_part(&proxy).await;
        assert!(proxy.place().path("data/ballast").exists());
        disk.fill();
        until("refusal", async || {
            (get(&proxy, "http://o.test/a").await.status() == 503).then_some(())
        })
        .await;
        prune(&proxy, "1s").await;
        until("room", async || {
            (get(&proxy, "http://o.test/a").await.status() == 200).then_some(())
        })
        .await;
        first_entry_removed(proxy.place()).await;
        verified(proxy.place()).await;
    });
}

// Ours: an error names its cause and loses no entry. The ballast file also gives `prune`
// the room that it needs.
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
        let prune = ["audit", "prune", "--before", "1s", "--why", "test", "--yes"];
        let ballast = place.path("data/ballast");
        std::fs::remove_file(&ballast).unwrap();
        disk.set_access("ro");
        let outcome = place.run_code(1, &prune).await;
        assert_contains(&outcome.stderr, "Read-only file system");
        disk.set_access("rw");
        disk.fill();
        let outcome = place.run_code(1, &prune).await;
        assert!(outcome.stderr.contains("disk is full"), "{outcome:?}");
        disk.make_room();
        let whole = place.run_ok(&["audit", "verify"]).await.stdout;
        assert!(whole.contains(" 0 mismatches, 0 missing"), "{whole}");
        // A start creates the ballast file again.
        let place = place.start().await.stop().await;
        assert!(ballast.exists());
        disk.fill();
        let said = place.run_ok(&prune).await.stdout;
        assert_eq!(said, "entries 1 to 8192 are removed\n");
        assert!(!ballast.exists());
        disk.make_room();
        verified(&place).await;
    });
}
