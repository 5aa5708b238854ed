//! `audit redact`: removes client and URL everywhere, while all proofs still hold.

use std::fs;

use serde_json::{Value, json};

use crate::kit::client::get;
use crate::kit::origin::{Script, site};
use crate::kit::proxy::Place;
use crate::kit::raw_origin::find;
use crate::kit::{assert_contains, assert_members};

/// Part of a path that occurs in no other request.
const SECRET: &str = "secret-of-somebody";

/// Reports whether any file in the record's folder contains [`SECRET`].
fn has_secret(place: &Place) -> bool {
    let files = fs::read_dir(place.path("data")).unwrap().flatten();
    let mut files = files.filter_map(|file| fs::read(file.path()).ok());
    files.any(|bytes| find(&bytes, SECRET.as_bytes()).is_some())
}

/// Saves the record's key and newest head, against which [`assert_proved`] checks.
async fn save_proof(place: &Place) {
    for (command, file) in [("key", "record.key"), ("head", "head.txt")] {
        let text = place.audit(command).await.stdout;
        fs::write(place.path(file), text).unwrap();
    }
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

/// Asserts that `audit verify` exits with `code`, finds nothing and counts `redacted`
/// redacted decisions. The code is 3 while the newest entries of a record in use have no
/// head.
async fn assert_proved(place: &Place, code: i32, redacted: u64) {
    let verify = "verify --key record.key --head head.txt --json";
    let sums = place.audit_code(code, verify).await.json_lines().remove(0);
    assert_members(&sums, &json!({"findings": [], "redacted": redacted}));
}

// Ours: docs/keeping.md.
#[tokio::test]
async fn redact_works_through_the_running_proxy() {
    let place = recorded().await;
    save_proof(&place).await;
    let proxy = place.start().await;
    let place = proxy.place();
    let url = format!("http://o.test/no/{SECRET}*");
    let admin = proxy.admin();
    let redact = format!("redact --url {url} --why 'asked for' --set admin.listen=\"{admin}\"");
    let counted = place.audit(&redact).await.stdout;
    let wanted = "decisions that would be redacted: 1; --yes redacts them\n";
    assert_eq!(counted, wanted);
    assert!(has_secret(place));
    let redacted = place.audit(&format!("{redact} --yes")).await.stdout;
    assert_eq!(redacted, "decisions redacted: 1\n");
    assert_proved(place, 3, 1).await;
    // The proxy keeps running, and the other URL is still listed.
    assert_eq!(get(&proxy, "http://o.test/no/more").await.status(), 403);
    let place = proxy.stop().await;
    assert_proved(&place, 0, 1).await;
    let listed = place.audit(&format!("list --url {url}")).await.stdout;
    assert!(!listed.contains(SECRET), "{listed}");
    let events = place.audit("events --kind redacted --json").await;
    let detail = &events.json_lines()[0]["detail"];
    let wanted = json!({
        "decisions": 1, "why": "asked for", "by": "admin token from 127.0.0.1",
        "chosen_by": ["url"], "youngest": detail["oldest"],
    });
    assert_members(detail, &wanted);
    assert!(detail["user"]["uid"].is_u64(), "{detail}");
    let text = place.audit("verify").await.stdout;
    assert_contains(&text, "1 redacted");
}

// Ours: without a proxy, chosen by number. No command shows the redacted data.
#[tokio::test]
async fn redacted_data_is_in_no_output_and_no_file() {
    let place = recorded().await;
    save_proof(&place).await;
    let rows = place.rows().await;
    let is_secret = |row: &&Value| row["url"].as_str().unwrap().contains(SECRET);
    let numbers = rows.iter().filter(is_secret).map(|row| &row["seq"]);
    let [first, second] = numbers.collect::<Vec<_>>()[..] else {
        panic!("{rows:?}")
    };
    let redact = format!("redact --seq {first} {second} --why 'asked for' --yes");
    let redacted = place.audit(&redact).await.stdout;
    assert_eq!(redacted, "decisions redacted: 2\n");
    assert_proved(&place, 0, 2).await;
    assert!(!has_secret(&place));
    for (code, words) in [
        (0, "list"),
        (0, "list --json"),
        (0, "list --csv"),
        (0, &format!("show {first}")),
        (0, &format!("show {second} --json")),
        (0, "stats --by host,url,rule"),
        (0, "top hosts"),
        (0, "speed"),
        (3, "replay"),
        (0, "robots o.test --history"),
        (0, "report"),
        (0, "report --for-site o.test"),
        (0, "export --as jsonl"),
        (0, "export --as csv"),
        (0, "export --as warc"),
    ] {
        let outcome = place.audit_code(code, words).await;
        let text = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(!text.contains(SECRET), "{words}: {text}");
        assert!(!text.contains("panicked"), "{words}: {text}");
    }
    let shown = place.audit(&format!("show {first}")).await.stdout;
    let again = "cannot be decided again: its client and URL were redacted";
    assert_contains(&shown, again);
    let sums = place.audit("stats --by url,host --csv").await.stdout;
    assert_contains(&sums, "(redacted),o.test,2,1,");
    for command in ["list", "stats"] {
        let told = place.audit(command).await.stderr;
        assert_contains(&told, "2 decisions redacted by command, uid ");
        assert_contains(&told, "): asked for; the youngest");
    }
    let replayed = place.audit_code(3, "replay").await.stdout;
    assert_contains(&replayed, "2 whose client and URL were redacted");
    // A backup passes the same verification.
    place.audit("backup copy.db").await;
    let copy = "verify --key record.key --head head.txt --set audit.store=sqlite:copy.db";
    place.audit(copy).await;
}

// Ours: a command on one file affects no other file.
#[tokio::test]
async fn redact_and_prune_leave_other_files_beside_a_record_in_use_alone() {
    let script = Script::robots("");
    let (_origin, proxy) = site(script, &["audit.store = \"sqlite:data/audit.db\""]).await;
    assert_eq!(get(&proxy, "http://o.test/a").await.status(), 200);
    let place = proxy.place();
    place.completed(1).await;
    place.audit("backup data/copy.db").await;
    let listen = format!("admin.listen=\"{}\"", proxy.admin());
    for command in [
        "redact --seq 2 --why x --yes",
        "prune --before 1s --why x --yes",
    ] {
        for (file, told) in [
            ("data/copy.db", "lies in the folder of a record in use"),
            ("elsewhere/none.db", "there is no audit log"),
        ] {
            let set = format!("--set {listen} --set audit.store=sqlite:{file}");
            let outcome = place.audit_code(1, &format!("{command} {set}")).await;
            assert!(outcome.stderr.contains(told), "{command}: {outcome:?}");
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
        ("--why x --yes", "--url, --client or --seq"),
        ("--seq 1 --yes", "--why"),
        ("--seq 1 --why ' '", "one line of 1 to 500 bytes"),
        ("--seq 1 --why 'a\nb'", "one line of 1 to 500 bytes"),
        ("--url o.test/a --why x", "--url"),
    ] {
        let outcome = place.audit_code(2, &format!("redact {arguments}")).await;
        assert!(outcome.stderr.contains(said), "{arguments}: {outcome:?}");
    }
}
