//! `audit bundle`, and its verification on another machine: by `audit verify`, and by
//! docs/verify_bundle.py without politesse.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

use crate::kit::client::{get, get_as};
use crate::kit::origin::{Origin, Script};
use crate::kit::program::{Outcome, finish, run_in};
use crate::kit::proxy::{Place, Proxy, resolve};
use crate::kit::run;

const ROBOTS: &str = "User-agent: *\nDisallow: /private\n";

async fn proxy() -> (Origin, Proxy) {
    let origin = Script::robots(ROBOTS).start().await;
    let config = resolve("o.test", origin.address())
        .resolve("p.test", origin.address())
        .resolve("q.test", "127.0.0.1:1".parse().unwrap());
    (origin, config.start().await)
}

/// Returns a sealed record: allowed and refused at one host, allowed at another,
/// refused at a third whose robots.txt cannot be had.
async fn recorded() -> Place {
    let (_origin, proxy) = proxy().await;
    get_as(&proxy, "FooBot/1", "http://o.test/a?b=1").await;
    get_as(&proxy, "BarBot/1", "http://o.test/private/x").await;
    get(&proxy, "http://p.test/\u{2e}/%C3%A9").await;
    get(&proxy, "http://q.test/a").await;
    proxy.place().completed(4).await;
    proxy.stop().await
}

/// A machine that has the bundle of a record, and nothing else of it.
struct Auditor {
    folder: TempDir,
    /// Key of the record, as it came on another way.
    key: String,
}

impl Auditor {
    /// Makes a bundle with `arguments`, and hands it over.
    async fn of(place: &Place, arguments: &[&str]) -> Self {
        let all = [&["audit", "bundle", "-o", "b.zip"][..], arguments].concat();
        let made = place.run(&all).await;
        assert_eq!(made.code, Some(0), "{made:?}");
        let key = place.run(&["audit", "key"]).await.stdout;
        let folder = TempDir::new().unwrap();
        std::fs::copy(place.path("b.zip"), folder.path().join("b.zip")).unwrap();
        Self {
            folder,
            key: key.trim_end().to_owned(),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("b.zip")
    }

    async fn verify(&self, arguments: &[&str]) -> Outcome {
        let all = [&["audit", "verify", "b.zip"][..], arguments].concat();
        run_in(self.folder.path(), &all).await
    }

    async fn verify_in_python(&self, key: Option<&str>) -> Outcome {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/verify_bundle.py");
        let mut command = Command::new("python3");
        command.arg(script).arg(self.path()).args(key);
        finish(command, b"").await
    }

    /// Changes the bundle by a program in Python, which has the contents of its
    /// files in `files`.
    async fn change(&self, program: &str) {
        let program = format!(
            "import sys, zipfile\n\
             files = {{i: zipfile.ZipFile('b.zip').read(i) for i in zipfile.ZipFile('b.zip').namelist()}}\n\
             def sub(name, old, new):\n    \
                 assert old in files[name], files[name]\n    \
                 files[name] = files[name].replace(old, new, 1)\n\
             {program}\n\
             with zipfile.ZipFile('b.zip', 'w', zipfile.ZIP_DEFLATED) as archive:\n    \
                 [archive.writestr(name, data) for name, data in files.items()]\n"
        );
        let mut command = Command::new("python3");
        command
            .args(["-c", &program])
            .current_dir(self.folder.path());
        let outcome = finish(command, b"").await;
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
    }
}

// Ours; the exit codes of docs/handing-over.md.
#[test]
fn a_bundle_is_verified_where_there_is_no_record() {
    run(async {
        let place = recorded().await;
        let auditor = Auditor::of(&place, &[]).await;
        let unknown = auditor.verify(&[]).await;
        assert_eq!(unknown.code, Some(3), "{unknown:?}");
        assert!(unknown.stdout.contains("consistent, signer unknown"));
        let proved = auditor.verify(&["--key", &auditor.key]).await;
        assert_eq!(proved.code, Some(0), "{proved:?}");
        assert!(
            proved
                .stdout
                .starts_with("4 decisions, 4 decided again, 0 checked")
        );
        assert!(
            proved
                .stdout
                .ends_with("proved: signed by a key of --key\n")
        );
        let key = auditor.folder.path().join("key");
        std::fs::write(&key, format!("{}\n", auditor.key)).unwrap();
        let json = auditor.verify(&["--key", "key", "--json"]).await;
        assert_eq!(json.code, Some(0), "{json:?}");
        let sums: Value = serde_json::from_str(&json.stdout).unwrap();
        assert_eq!(sums["decided"], 4);
        assert_eq!(sums["findings"], serde_json::json!([]));
        assert_eq!(sums["signer_known"], true);
        let name = auditor.key.split('+').next().unwrap();
        let other = format!("{name}+00000000+AQ==");
        let wrong = auditor.verify(&["--key", &other]).await;
        assert_eq!(wrong.code, Some(2), "{wrong:?}");
        let mixed = auditor.verify(&["--host", "o.test"]).await;
        assert_eq!(mixed.code, Some(2), "{mixed:?}");
    });
}

// Ours.
#[test]
fn a_bundle_of_a_host_has_its_decisions_and_a_report_for_people() {
    run(async {
        let place = recorded().await;
        let auditor = Auditor::of(&place, &["--host", "o.test", "--from", "1h"]).await;
        let proved = auditor.verify(&["--key", &auditor.key]).await;
        assert!(
            proved.stdout.starts_with("2 decisions, 2 decided"),
            "{proved:?}"
        );
        let again = place.run(&["audit", "bundle", "-o", "b.zip"]).await;
        assert_eq!(again.code, Some(2), "{again:?}");
        let none = ["audit", "bundle", "-o", "c.zip", "--host", "r.test"];
        let none = place.run(&none).await;
        assert_eq!(none.code, Some(1), "{none:?}");
        assert!(!place.path("c.zip").exists());
        let program =
            "import zipfile; print(zipfile.ZipFile('b.zip').read('report.html').decode())";
        let mut command = Command::new("python3");
        command
            .args(["-c", program])
            .current_dir(auditor.folder.path());
        let report = finish(command, b"").await.stdout;
        for told in [
            "<h1><bdi>Decisions about o.test</bdi></h1>",
            "<b>1</b><span>refused, and not sent</span>",
            "2: <code><bdi>Disallow: /private</bdi></code>",
            "<h2>Requests each hour</h2>",
            "1 request (50 % of all) was refused",
        ] {
            assert!(report.contains(told), "{told}: {report}");
        }
        assert!(report.is_ascii(), "{report}");
    });
}

// Ours: nothing can be proved before there is a head.
#[test]
fn without_a_head_no_bundle_is_made() {
    run(async {
        let (_origin, proxy) = proxy().await;
        get(&proxy, "http://o.test/a").await;
        proxy.place().completed(1).await;
        let early = proxy.place().run(&["audit", "bundle", "-o", "b.zip"]).await;
        assert_eq!(early.code, Some(1), "{early:?}");
        assert!(early.stderr.contains("no head yet"), "{early:?}");
    });
}

// Ours: the script shares no code with the program.
#[test]
fn the_script_proves_a_bundle_and_finds_a_changed_one() {
    run(async {
        let script = include_str!("../../docs/verify_bundle.py");
        assert!(script.lines().count() <= 210);
        let place = recorded().await;
        let auditor = Auditor::of(&place, &[]).await;
        let proved = auditor.verify_in_python(Some(&auditor.key)).await;
        assert_eq!(proved.code, Some(0), "{proved:?}");
        let unknown = auditor.verify_in_python(None).await;
        assert_eq!(unknown.code, Some(3), "{unknown:?}");
        // The key of another record.
        let other = Auditor::of(&recorded().await, &[]).await.key;
        let wrong = auditor.verify_in_python(Some(&other)).await;
        assert_eq!(wrong.code, Some(1), "{wrong:?}");
        for change in [
            "sub('rows.jsonl', b'/private/x', b'/private/y')",
            "sub('rows.jsonl', b'\"disallow\"', b'\"allow\"')",
            "sub('rows.jsonl', b'127.0.0.1', b'127.0.0.2')",
            "sub('rows.jsonl', b'\"status\":403', b'\"status\":200')",
            "files['rows.jsonl'] = b'\\n'.join(files['rows.jsonl'].split(b'\\n')[:-2])",
            "files['proof.txt'] = files['proof.txt'][65:]",
            "files['proof.txt'] += b'00' * 32",
            "sub('head.txt', b'time 2', b'time 3')",
            "[files.update({i: b'x'}) for i in files if i.startswith('robots/')]",
            "[files.pop(i) for i in list(files) if i.startswith('robots/')]",
            "files['robots/' + 64 * '0'] = b''",
            "files['note.html'] = b'<p>Nothing was refused.'",
            "files.pop('report.html')",
            "files.pop('README.txt')",
            "files.pop('key.txt')",
            "sub('key.txt', b'+A', b'+B')",
            "sub('rows.jsonl', b'{\"bundle\":', b'{\"note\":1,\"bundle\":')",
            "sub('rows.jsonl', b'\"path\":', b'\"verdict\":\"allow\",\"path\":')",
            "sub('rows.jsonl', b'\"path\":', b'\"path\":\"/x\",\"path\":')",
            "sub('rows.jsonl', b'\"wait_ms\":0', b'\"wait_ms\":0.0')",
            "sub('rows.jsonl', b'\"sent\":1', b'\"sent\":true')",
            "sub('rows.jsonl', b'\"client\":1', b'\"client\":-1')",
            "sub('rows.jsonl', b'\"reading\":null', b'\"reading\":[]')",
            "lines = files['rows.jsonl'].split(b'\\n'); lines[-3:-1] = lines[-2:-4:-1]; \
             files['rows.jsonl'] = b'\\n'.join(lines)",
            "files['rows.jsonl'] += b'{\"value\":99,\"kind\":\"term\",\"columns\":[\"x\"]}\\n'",
            "files['rows.jsonl'] += b'[' * 100000",
        ] {
            std::fs::remove_file(place.path("b.zip")).unwrap();
            let changed = Auditor::of(&place, &["--host", "o.test"]).await;
            changed.change(change).await;
            for key in [Some(changed.key.as_str()), None] {
                let outcome = changed.verify_in_python(key).await;
                assert_eq!(outcome.code, Some(1), "{change}: {outcome:?}");
                assert!(outcome.stdout.starts_with("does not fit: "), "{outcome:?}");
            }
            let outcome = changed.verify(&[]).await;
            assert_eq!(outcome.code, Some(1), "{change}: {outcome:?}");
        }
        // What lies beside the files is shown by no program, and by some in their place.
        std::fs::remove_file(place.path("b.zip")).unwrap();
        let stuffed = Auditor::of(&place, &[]).await;
        let whole = std::fs::read(stuffed.path()).unwrap();
        let before = [b"PK\x03\x04", &whole[..]].concat();
        let behind = [&whole[..], b"\n"].concat();
        for bytes in [
            before,
            behind,
            whole[..whole.len() - 9].to_vec(),
            Vec::new(),
        ] {
            std::fs::write(stuffed.path(), bytes).unwrap();
            let outcome = stuffed.verify_in_python(None).await;
            assert_eq!(outcome.code, Some(1), "{outcome:?}");
            assert!(outcome.stdout.starts_with("does not fit: "), "{outcome:?}");
            assert_eq!(stuffed.verify(&[]).await.code, Some(1));
        }
        // What the script cannot tell is said: here the report.
        std::fs::remove_file(place.path("b.zip")).unwrap();
        let dressed = Auditor::of(&place, &[]).await;
        dressed
            .change("files['report.html'] = b'<p>Nothing was refused.'")
            .await;
        let outcome = dressed.verify_in_python(None).await;
        assert_eq!(outcome.code, Some(3), "{outcome:?}");
        let text = "not checked: report.html and README.txt";
        assert!(outcome.stdout.contains(text), "{outcome:?}");
        assert_eq!(dressed.verify(&[]).await.code, Some(1));
        // Packed anew without a change: not in the form of a bundle, and proved all
        // the same by who does not mind the form.
        std::fs::remove_file(place.path("b.zip")).unwrap();
        let packed = Auditor::of(&place, &[]).await;
        packed.change("pass").await;
        let outcome = packed.verify_in_python(Some(&packed.key)).await;
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
    });
}

// Ours; docs/decisions/026-redaction.md.
#[test]
fn a_bundle_with_a_redacted_decision_is_proved_by_both() {
    run(async {
        let place = recorded().await;
        let url = "http://o.test/private/*";
        let asked = [
            "audit",
            "redact",
            "--url",
            url,
            "--why",
            "asked for",
            "--yes",
        ];
        let redacted = place.run(&asked).await;
        assert_eq!(redacted.stdout, "decisions redacted: 1\n", "{redacted:?}");
        let auditor = Auditor::of(&place, &[]).await;
        let proved = auditor.verify(&["--key", &auditor.key]).await;
        assert_eq!(proved.code, Some(0), "{proved:?}");
        assert!(
            proved
                .stdout
                .contains("1 not decided again: client and URL were redacted"),
            "{proved:?}"
        );
        let in_python = auditor.verify_in_python(Some(&auditor.key)).await;
        assert_eq!(in_python.code, Some(0), "{in_python:?}");
    });
}
