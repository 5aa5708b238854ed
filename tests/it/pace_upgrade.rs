//! An audit log of the version before this one: `tests/fixtures` has one as
//! that version left it, with schema 3 and eleven requests of one crawl. Issue 6,
//! Deliver 5 and 6; README, "For auditors".

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::kit::client::get;
use crate::kit::origin::Script;
use crate::kit::page::Page;
use crate::kit::proxy::{Config, Place, resolve};
use crate::kit::{run, sha256, until};

/// A folder with the old log in it.
fn old(config: &Config) -> Place {
    let place = Place::with(config);
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/audit-schema-3.db");
    let log = place.path("audit.db");
    std::fs::copy(fixture, &log).unwrap();
    // As the version before made it; the fixture has those of the checkout.
    std::fs::set_permissions(log, Permissions::from_mode(0o600)).unwrap();
    place
}

fn version(place: &Place) -> i64 {
    let version = "PRAGMA user_version";
    place
        .database()
        .query_row(version, [], |row| row.get(0))
        .unwrap()
}

async fn assert_verified(place: &Place, sums: &str) {
    let outcome = place.run(&["audit", "verify"]).await;
    assert_eq!(
        (outcome.code, outcome.stdout.trim_end()),
        (Some(0), sums),
        "{outcome:?}"
    );
}

const SUMS: &str = "10 decided again, 1 checked for form, 0 mismatches, 0 missing";

#[test]
fn an_old_log_is_read_and_left_as_it_is() {
    run(async {
        let place = old(&Config::default());
        let before = sha256(&std::fs::read(place.path("audit.db")).unwrap());
        assert_verified(&place, SUMS).await;
        let rows = place.rows().await;
        assert_eq!(rows.len(), 11);
        assert_eq!(
            (&rows[10]["url"], &rows[10]["status"], &rows[10]["wait_ms"]),
            (&"http://o.test/busy".into(), &429.into(), &0.into())
        );
        let events = place.run(&["audit", "events"]).await;
        assert_eq!(
            (events.code, &*events.stdout),
            (Some(0), "0 rows\n"),
            "{events:?}"
        );
        let later = place.run(&["audit", "list", "--verdict", "later"]).await;
        assert_eq!(
            (later.code, &*later.stdout),
            (Some(0), "0 rows\n"),
            "{later:?}"
        );
        let after = sha256(&std::fs::read(place.path("audit.db")).unwrap());
        assert_eq!(before, after);
    });
}

#[test]
fn an_old_log_is_taken_up_with_all_that_is_in_it() {
    run(async {
        let busy = Page::status(429).field("Retry-After", "300");
        let origin = Script::robots("").page("/busy", busy).start().await;
        let config = resolve("new.test", origin.address())
            .set("pace.backoff = { first = \"60s\", longest = \"24h\", forgive = \"30m\" }");
        let place = old(&config);
        assert_eq!(version(&place), 3);
        let before = place.rows().await;
        let proxy = place.start().await;
        assert_eq!(get(&proxy, "http://new.test/busy").await.status(), 429);
        assert_eq!(
            get(&proxy, "http://new.test/1").await.json()["reason"],
            "backoff"
        );
        let events = until("an event", async || {
            let told = proxy.place().run(&["audit", "events", "--json"]).await;
            Some(told.json_lines()).filter(|events| !events.is_empty())
        })
        .await;
        assert_eq!((events.len(), &events[0]["seq"]), (1, &1.into()));
        let place = proxy.stop().await;
        assert_eq!(version(&place), 6);
        let after = place.rows().await;
        assert_eq!((after.len(), &after[..11]), (13, &before[..]));
        let numbers: Vec<_> = after[11..].iter().map(|row| row["seq"].clone()).collect();
        assert_eq!(numbers, [12, 13]);
        let verified = place.run(&["audit", "verify"]).await;
        assert_eq!(verified.code, Some(0), "{verified:?}");
        assert!(
            verified.stdout.starts_with("12 decided again, 1 checked"),
            "{verified:?}"
        );
    });
}

// As the version before says of a log of this one: neither guesses.
#[test]
fn a_log_of_a_later_version_is_refused_by_its_number() {
    run(async {
        let place = old(&Config::default());
        place
            .database()
            .execute_batch("PRAGMA user_version = 7")
            .unwrap();
        for arguments in [&["serve"][..], &["audit", "verify"], &["audit", "list"]] {
            let outcome = place.run(arguments).await;
            assert_eq!(outcome.code, Some(1), "{outcome:?}");
            let told = "has schema 7, this version knows 6";
            assert!(outcome.stderr.contains(told), "{outcome:?}");
        }
        assert_eq!(version(&place), 7);
    });
}
