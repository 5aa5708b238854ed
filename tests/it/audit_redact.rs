//! `audit redact`: removes client and URL everywhere, while all proofs still hold.

use std::fs;

use serde_json::{Value, json};

use crate::kit::assert_contains;
use crate::kit::client::get;
use crate::kit::origin::{Script, site};
use crate::kit::program::Outcome;
use crate::kit::proxy::Place;

/// Part of a path that occurs in no other request.
const SECRET: &str = "secret-of-somebody";

async fn done(place: &Place, arguments: &[&str]) -> Outcome {
    let outcome = place.run(arguments).await;
    // The newest entries of a record in use have no head yet.
    let is_unsealed = outcome
        .stdout
        .contains("entries without a checked signature");
    let code = if is_unsealed { 3 } else { 0 };
    assert_eq!(outcome.code, Some(code), "{arguments:?}: {outcome:?}");
    outcome
}

/// Reports whether any file in the record's folder contains [`SECRET`].
fn has_secret(place: &Place) -> bool {
    let files = fs::read_dir(place.path("data")).unwrap().flatten();
    let has = |bytes: &[u8]| {
        let mut windows = bytes.windows(SECRET.len());
        windows.any(|window| window == SECRET.as_bytes())
    };
    files
        .filter_map(|file| fs::read(file.path()).ok())
        .any(|bytes| has(&bytes))
}

/// Saves the record's key and newest head. Returns the arguments of `audit verify` that
/// check against both.
async fn with_proof(place: Place) -> (Place, [String; 6]) {
    for (command, file) in [("key", "record.key"), ("head", "head.txt")] {
        let text = done(&place, &["audit", command]).await.stdout;
        fs::write(place.path(file), text).unwrap();
    }
    let arguments = [
        "audit",
        "verify",
        "--key",
        "record.key",
        "--head",
        "head.txt",
    ];
    (place, arguments.map(str::to_owned))
}

/// Returns a record with an allowed and a refused URL that contain [`SECRET`], and two
/// without it.
async fn recorded() -> Place {
    let script = Script::robots("User-agent: *\nDisallow: /no\n");
    let (_origin, proxy) = site(script, &["audit.store = \"sqlite:data/audit.db\""]).await;
    for (path, status) in [
        (format!("/no/{SECRET}?a=1"), 403),
        (format!("/{SECRET}"), 200),
        ("/no/open".to_owned(), 403),
        ("/open".to_owned(), 200),
    ] {
        let url = format!("http://o.test{path}");
        assert_eq!(get(&proxy, &url).await.status(), status);
    }
    proxy.place().completed(4).await;
    proxy.stop().await
}

/// Asserts that the record passes verification, with `redacted` redacted decisions.
async fn assert_proved(place: &Place, proof: &[String], redacted: u64) {
    let arguments: Vec<_> = proof.iter().map(String::as_str).chain(["--json"]).collect();
    let outcome = done(place, &arguments).await;
    let sums: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(sums["findings"], Value::Array(Vec::new()), "{sums}");
    assert_eq!(sums["redacted"], redacted, "{sums}");
}

// Ours: docs/keeping.md.
#[tokio::test]
async fn redact_works_through_the_running_proxy() {
    let (place, proof) = with_proof(recorded().await).await;
    let proxy = place.start().await;
    let place = proxy.place();
    let admin = format!("admin.listen=\"{}\"", proxy.admin());
    let url = format!("http://o.test/no/{SECRET}*");
    let asked = ["audit", "redact", "--url", &url, "--why", "asked for"];
    let asked = [&asked[..], &["--set", &admin]].concat();
    let counted = done(place, &asked).await;
    assert_eq!(
        counted.stdout,
        "decisions that would be redacted: 1; --yes redacts them\n"
    );
    assert!(has_secret(place));
    let redacted = done(place, &[&asked[..], &["--yes"]].concat()).await;
    assert_eq!(redacted.stdout, "decisions redacted: 1\n");
    assert_proved(place, &proof, 1).await;
    // The proxy keeps running, and the other URL is still listed.
    assert_eq!(get(&proxy, "http://o.test/no/more").await.status(), 403);
    let place = proxy.stop().await;
    assert_proved(&place, &proof, 1).await;
    let listed = done(&place, &["audit", "list", "--url", &url]).await;
    assert!(!listed.stdout.contains(SECRET), "{listed:?}");
    let events = done(&place, &["audit", "events", "--kind", "redacted", "--json"]).await;
    let detail = &events.json_lines()[0]["detail"];
    assert_eq!(detail["decisions"], 1);
    assert_eq!(detail["why"], "asked for");
    assert_eq!(detail["by"], "admin token from 127.0.0.1");
    assert!(detail["user"]["uid"].is_u64(), "{detail}");
    assert_eq!(detail["chosen_by"], json!(["url"]));
    assert_eq!(detail["youngest"], detail["oldest"]);
    let text = done(&place, &["audit", "verify"]).await.stdout;
    assert!(text.contains("1 redacted"), "{text}");
}

// Ours: without a proxy, chosen by number. No command shows the redacted data.
#[tokio::test]
async fn redacted_data_is_in_no_output_and_no_file() {
    let (place, proof) = with_proof(recorded().await).await;
    let listed = done(&place, &["audit", "list", "--json"]).await;
    let rows = listed.json_lines();
    let is_secret = |row: &&Value| row["url"].as_str().unwrap().contains(SECRET);
    let numbers: Vec<_> = rows
        .iter()
        .filter(is_secret)
        .map(|row| row["seq"].to_string())
        .collect();
    let [first, second] = &numbers[..] else {
        panic!("{numbers:?}")
    };
    let asked = [
        "audit",
        "redact",
        "--seq",
        first,
        second,
        "--why",
        "asked for",
        "--yes",
    ];
    assert_eq!(done(&place, &asked).await.stdout, "decisions redacted: 2\n");
    assert_proved(&place, &proof, 2).await;
    assert!(!has_secret(&place));
    for arguments in [
        &["audit", "list"][..],
        &["audit", "list", "--json"],
        &["audit", "list", "--csv"],
        &["audit", "show", first],
        &["audit", "show", second, "--json"],
        &["audit", "stats", "--by", "host,url,rule"],
        &["audit", "top", "hosts"],
        &["audit", "speed"],
        &["audit", "replay"],
        &["audit", "robots", "o.test", "--history"],
        &["audit", "report"],
        &["audit", "report", "--for-site", "o.test"],
        &["audit", "export", "--as", "jsonl"],
        &["audit", "export", "--as", "csv"],
        &["audit", "export", "--as", "warc"],
    ] {
        let outcome = place.run(arguments).await;
        let text = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(!text.contains(SECRET), "{arguments:?}: {text}");
        assert!(!text.contains("panicked"), "{arguments:?}: {text}");
    }
    let shown = done(&place, &["audit", "show", first]).await.stdout;
    let again = "cannot be decided again: its client and URL were redacted";
    assert!(shown.contains(again), "{shown}");
    let stats = ["audit", "stats", "--by", "url,host", "--csv"];
    let sums = done(&place, &stats).await.stdout;
    assert!(sums.contains("(redacted),o.test,2,1,"), "{sums}");
    for arguments in [&["audit", "list"][..], &["audit", "stats"]] {
        let told = done(&place, arguments).await.stderr;
        assert_contains(&told, "2 decisions redacted by command, uid ");
        assert!(told.contains("): asked for; the youngest"), "{told}");
    }
    let replayed = place.run(&["audit", "replay"]).await.stdout;
    assert_contains(&replayed, "2 whose client and URL were redacted");
    // A backup passes the same verification.
    done(&place, &["audit", "backup", "copy.db"]).await;
    let copy = [
        &["--set", "audit.store=sqlite:copy.db", "audit", "verify"][..],
        &["--key", "record.key", "--head", "head.txt"],
    ];
    done(&place, &copy.concat()).await;
}

// Ours: a command on one file affects no other file.
#[tokio::test]
async fn redact_and_prune_leave_other_files_beside_a_record_in_use_alone() {
    let script = Script::robots("");
    let (_origin, proxy) = site(script, &["audit.store = \"sqlite:data/audit.db\""]).await;
    assert_eq!(get(&proxy, "http://o.test/a").await.status(), 200);
    let place = proxy.place();
    place.completed(1).await;
    done(place, &["audit", "backup", "data/copy.db"]).await;
    let listen = format!("admin.listen=\"{}\"", proxy.admin());
    let other = "audit.store=\"sqlite:data/copy.db\"";
    let gone = "audit.store=\"sqlite:elsewhere/none.db\"";
    let redact = ["audit", "redact", "--seq", "2", "--why", "x", "--yes"];
    let prune = ["audit", "prune", "--before", "1s", "--why", "x", "--yes"];
    for order in [&redact[..], &prune] {
        for (store, told) in [
            (other, "lies in the folder of a record in use"),
            (gone, "there is no audit log"),
        ] {
            let set = ["--set", &listen, "--set", store];
            let outcome = place.run_code(1, &[&set, order].concat()).await;
            assert!(outcome.stderr.contains(told), "{outcome:?}");
        }
    }
    assert!(!place.path("elsewhere").exists());
    let rows = place.rows().await;
    assert_eq!(rows[0]["url"], "http://o.test/a");
}

// Ours.
#[tokio::test]
async fn a_redaction_requires_a_condition_and_a_reason() {
    let place = recorded().await;
    for (arguments, said) in [
        (&["--why", "x", "--yes"][..], "--url, --client or --seq"),
        (&["--seq", "1", "--yes"], "--why"),
        (&["--seq", "1", "--why", " "], "one line of 1 to 500 bytes"),
        (
            &["--seq", "1", "--why", "a\nb"],
            "one line of 1 to 500 bytes",
        ),
        (&["--url", "o.test/a", "--why", "x"], "--url"),
    ] {
        let outcome = place
            .run_code(2, &[&["audit", "redact"], arguments].concat())
            .await;
        assert!(outcome.stderr.contains(said), "{outcome:?}");
    }
}
