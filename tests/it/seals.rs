//! Signed heads of the record: `audit key`, `audit head`, their export, and the checks of
//! `audit verify`.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use crate::kit::client::get;
use crate::kit::fleet::readyz;
use crate::kit::origin::{Script, site};
use crate::kit::paced::until_metric;
use crate::kit::program::politesse;
use crate::kit::proxy::{Place, Proxy, resolve};
use crate::kit::raw_origin::{Bytes, RawOrigin};
use crate::kit::{assert_contains, assert_members, until};

/// Returns the folder of a stopped proxy that refused one request and allowed another.
async fn crawled() -> Place {
    let (_origin, proxy) = site(Script::robots("User-agent: *\nDisallow: /private\n"), &[]).await;
    for path in ["/private", "/open"] {
        get(&proxy, &format!("http://o.test{path}")).await;
    }
    proxy.stop().await
}

/// Writes the key and the newest head to files, as an operator who exports them would.
/// Returns their paths.
async fn exported(place: &Place) -> [String; 2] {
    let files = ["key", "head"].map(|name| place.path(name));
    for (name, file) in ["key", "head"].iter().zip(&files) {
        fs::write(file, place.audit(name).await.stdout).unwrap();
    }
    files.map(|file| file.to_str().unwrap().to_owned())
}

// Ours: docs/decisions/023-seals.md.
#[tokio::test]
async fn an_exported_key_and_head_prove_a_record_and_reveal_a_truncation() {
    let place = crawled().await;
    let [key, head] = exported(&place).await;
    let text = fs::read_to_string(&head).unwrap();
    let name = text.lines().next().unwrap();
    assert!(name.starts_with("politesse/"), "{text}");
    assert!(text.contains(&format!("\n\u{2014} {name} ")), "{text}");
    let vkey = fs::read_to_string(&key).unwrap();
    assert!(vkey.starts_with(&format!("{name}+")), "{vkey}");
    let arguments = ["audit", "verify", "--key", &key, "--head", &head];
    let whole = place.run_ok(&arguments).await;
    let [.., sealed, "OK"] = whole.stdout.lines().collect::<Vec<_>>()[..] else {
        panic!("{whole:?}");
    };
    assert!(sealed.starts_with("sealed: entries 1 to "), "{sealed}");
    let proved = "; signed by a key of --key; 1 of 1 exported heads hold";
    assert!(sealed.ends_with(proved), "{sealed}");
    // The key itself as the argument, and the report as JSON.
    let with_key = ["audit", "verify", "--json", "--key", vkey.trim()];
    let size: u64 = text.lines().nth(1).unwrap().parse().unwrap();
    assert_members(
        &place.run(&with_key).await.json_lines()[0],
        &json!({"sealed": size, "heads": 1, "signer": vkey.trim(), "result": "OK"}),
    );
    // Truncates the record below the head, and removes every trace of the rest.
    let cut = "DELETE FROM event WHERE seq = (SELECT max(seq) FROM event);
               DELETE FROM sequence; DELETE FROM seal";
    place.database().execute_batch(cut).unwrap();
    fs::remove_file(place.path("record")).unwrap();
    let cut = place.run_code(1, &arguments).await;
    assert_eq!(cut.stdout.lines().last(), Some("FAILED"));
    let said = format!("{head} (head of {size} entries): the record ends at");
    assert_contains(&cut.stdout, &said);
}

// Ours: cases/tampering.md. A record stripped of all heads is consistent. With the key,
// `verify` counts the entries that no signature covers.
#[tokio::test]
async fn with_a_key_verify_counts_entries_without_a_checked_signature() {
    let place = crawled().await;
    let [key, _] = exported(&place).await;
    let proxy = place.start().await;
    get(&proxy, "http://o.test/private").await;
    let place = proxy.kill().await;
    let verify = ["audit", "verify", "--key", &key];
    let unsealed = async || {
        let verified = place.run_code(3, &verify).await;
        let last = verified.stdout.lines().last().unwrap();
        let said = "OK, but entries without a checked signature: ";
        let counts = last.strip_prefix(said).unwrap().split(';').next().unwrap();
        let (some, all) = counts.split_once(" of ").unwrap();
        [some, all].map(|count| count.parse::<u64>().unwrap())
    };
    let [tail, all] = unsealed().await;
    assert!(0 < tail && tail < all, "{tail} of {all}");
    let forgotten = "DELETE FROM seal; DELETE FROM subtree";
    place.database().execute_batch(forgotten).unwrap();
    fs::remove_file(place.path("record")).unwrap();
    assert_eq!(unsealed().await, [all, all]);
}

#[tokio::test]
async fn verify_rejects_a_foreign_head_and_wrong_arguments() {
    let (place, other) = (crawled().await, crawled().await);
    let [other_key, other_head] = exported(&other).await;
    let [key, head] = exported(&place).await;
    let unsigned = "is not signed by a key that --key names";
    for (option, value, code, said) in [
        ("--head", &*other_head, 1, "is that of another record"),
        ("--key", &other_key, 1, unsigned),
        ("--head", "/nowhere", 2, "cannot read /nowhere"),
        ("--head", &key, 2, "it is not a signed note"),
        ("--key", "/nowhere", 2, "is not a key"),
        ("--key", &head, 2, "is not a key"),
    ] {
        let verify = ["audit", "verify", option, value];
        let outcome = place.run_code(code, &verify).await;
        assert_contains(&(outcome.stdout + &outcome.stderr), said);
    }
    let narrow = format!("verify --from 1h --head {head}");
    place.audit_code(2, &narrow).await;
    // For a copy of the record without its key file, `audit key` prints the key of the
    // newest head.
    fs::remove_file(place.path("seal.key")).unwrap();
    let printed = place.audit("key").await;
    assert_eq!(printed.stdout, fs::read_to_string(&key).unwrap());
    printed.assert_stderr(&["newest head"]);
    place.database().execute("DELETE FROM seal", []).unwrap();
    assert_eq!(place.audit_code(1, "head").await.stdout, "");
}

// Ours: exported heads are out of reach of a process that can change the record.
#[tokio::test]
async fn heads_are_exported_to_files_commands_and_urls_with_retries() {
    let origin = Script::robots("").start().await;
    let posts = AtomicUsize::new(0);
    let collector = RawOrigin::start(move |_| {
        let answer = match posts.fetch_add(1, Ordering::Relaxed) {
            0 => "503 Service Unavailable",
            _ => "204 No Content",
        };
        Bytes::of(format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n").as_bytes())
    });
    let collector = collector.await;
    let address = collector.address();
    let config = resolve("o.test", origin.address()).set("audit.seal_interval = \"1s\"");
    let place = Place::with(&config);
    let command = place.path("by-command");
    place.configure(&config.set(&format!(
        "audit.seal_to = [\"heads.txt\", \"exec:cat > {}\", \"exec:exit 3\", \
             \"http://{address}/heads?token=secret\"]",
        command.display()
    )));
    let proxy = place.start().await;
    get(&proxy, "http://o.test/a").await;
    let request = until("a second request", async || {
        let request = collector.requests().into_iter().nth(1)?;
        let request = String::from_utf8(request).unwrap();
        Some(request).filter(|request| request.ends_with("=\n"))
    })
    .await;
    let line = "POST /heads?token=secret HTTP/1.1\r\n";
    assert!(request.starts_with(line), "{request}");
    assert_contains(&request, &format!("host: {address}\r\n"));
    assert_contains(&request, "\r\n\r\npolitesse/");
    for result in ["failed", "sent"] {
        let exported = format!("politesse_audit_seals_exported_total{{result=\"{result}\"}}");
        until_metric(&proxy, &exported, |count| 0.0 < count).await;
    }
    assert!(!proxy.log().contains("secret"), "{}", proxy.log());
    let place = proxy.stop().await;
    // The exports include the last head, which was made at the stop.
    let newest = place.audit("head").await.stdout;
    let file = place.path("heads.txt");
    let heads = fs::read_to_string(&file).unwrap();
    assert!(heads.ends_with(&newest), "{heads}");
    assert_eq!(fs::read_to_string(&command).unwrap(), newest);
    // A start and a stop without a new head export it only once.
    let place = place.start().await.stop().await;
    let again = fs::read_to_string(&file).unwrap();
    assert_eq!(again.matches(&newest).count(), 1, "{again}");
    let file = file.to_str().unwrap();
    let verified = place.run_ok(&["audit", "verify", "--head", file]).await;
    assert_contains(&verified.stdout, "exported heads hold");
}

// Ours: a start alone does not accept that heads were removed.
#[tokio::test]
async fn readyz_reports_removed_heads_until_the_operator_accepts_the_loss() {
    let place = crawled().await;
    let lost = "DELETE FROM seal; DELETE FROM subtree";
    place.database().execute_batch(lost).unwrap();
    let proxy = place.start().await;
    let fault = "ready, but the record is not sealed any further: its newest head was of ";
    let (_, ready) = readyz(&proxy).await;
    assert!(ready.starts_with(fault), "{ready}");
    proxy.logged("politesse serve --accept-lost-heads").await;
    let place = proxy.stop().await;
    let mut command = politesse(place.folder());
    command.args(["serve", "--accept-lost-heads"]);
    let place = Proxy::start(place, command).await.stop().await;
    let proxy = place.start().await;
    assert_eq!(readyz(&proxy).await.1, "ready\n");
    let place = proxy.stop().await;
    let events = place.audit("events --kind heads_lost").await;
    assert_contains(&events.stdout, "\"found\":0");
}
