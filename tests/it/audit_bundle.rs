//! `audit bundle`, and its verification on another machine: with `audit verify`, and with
//! docs/verify_bundle.py, which needs no politesse.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

use crate::kit::client::{get, get_as};
use crate::kit::origin::{Origin, Script};
use crate::kit::program::{Outcome, finish, run_in};
use crate::kit::proxy::{Place, Proxy, resolve};

const ROBOTS: &str = "User-agent: *\nDisallow: /private\n";

async fn proxy() -> (Origin, Proxy) {
    let origin = Script::robots(ROBOTS).start().await;
    let config = resolve("o.test", origin.address())
        .resolve("p.test", origin.address())
        .resolve("q.test", "127.0.0.1:1".parse().unwrap());
    (origin, config.start().await)
}

/// Returns a sealed record: a URL allowed and one refused at one host, one allowed at
/// another, and one refused at a third whose robots.txt cannot be fetched.
async fn recorded() -> Place {
    let (_origin, proxy) = proxy().await;
    get_as(&proxy, "FooBot/1", "http://o.test/a?b=1").await;
    get_as(&proxy, "BarBot/1", "http://o.test/private/x").await;
    get(&proxy, "http://p.test/\u{2e}/%C3%A9").await;
    get(&proxy, "http://q.test/a").await;
    proxy.place().completed(4).await;
    proxy.stop().await
}

/// A machine that has a bundle, but not the record.
struct Auditor {
    folder: TempDir,
    /// Key of the record, received separately.
    key: String,
}

impl Auditor {
    /// Makes a bundle with `arguments`, and copies it to the auditor's folder.
    async fn of(place: &Place, arguments: &[&str]) -> Self {
        let all = [&["audit", "bundle", "-o", "b.jsonl.gz"][..], arguments].concat();
        place.run_ok(&all).await;
        let key = place.run(&["audit", "key"]).await.stdout;
        let folder = TempDir::new().unwrap();
        std::fs::copy(place.path("b.jsonl.gz"), folder.path().join("b.jsonl.gz")).unwrap();
        Self {
            folder,
            key: key.trim_end().to_owned(),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("b.jsonl.gz")
    }

    async fn verify(&self, arguments: &[&str]) -> Outcome {
        let all = [&["audit", "verify", "b.jsonl.gz"][..], arguments].concat();
        run_in(self.folder.path(), &all).await
    }

    async fn verify_in_python(&self, key: Option<&str>) -> Outcome {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/verify_bundle.py");
        let mut command = Command::new("python3");
        command.arg(script).arg(self.path()).args(key);
        finish(command, b"").await
    }

    /// Changes the bundle with a Python program, which finds all lines but the last in
    /// `lines`. Afterwards a last line with the correct digest is added.
    async fn change(&self, program: &str) {
        let program = format!(
            "import gzip, hashlib, json\n\
             lines = gzip.open('b.jsonl.gz').read().splitlines(True)[:-1]\n\
             def at(kind):\n    \
                 return next(i for i, line in enumerate(lines) if kind in json.loads(line))\n\
             def sub(old, new):\n    \
                 place = next(i for i, line in enumerate(lines) if old in line)\n    \
                 lines[place] = lines[place].replace(old, new, 1)\n\
             def write(place, content):\n    \
                 line = json.dumps(content, separators=(',', ':'))\n    \
                 lines[place] = line.encode() + b'\\n'\n\
             {program}\n\
             sha256 = hashlib.sha256(b''.join(lines)).hexdigest()\n\
             lines.append(b'{{\"sha256\":\"' + sha256.encode() + b'\"}}\\n')\n\
             gzip.open('b.jsonl.gz', 'w').writelines(lines)\n"
        );
        let mut command = Command::new("python3");
        command
            .args(["-c", &program])
            .current_dir(self.folder.path());
        finish(command, b"").await.assert_code(0);
    }
}

// Ours; exit codes: docs/handing-over.md.
#[tokio::test]
async fn a_bundle_is_verified_without_the_record() {
    let place = recorded().await;
    let auditor = Auditor::of(&place, &[]).await;
    let unknown = auditor.verify(&[]).await.assert_code(3);
    assert!(unknown.stdout.contains("\nOK, but the signer is unknown: "));
    let proved = auditor.verify(&["--key", &auditor.key]).await;
    assert_eq!(proved.code, Some(0), "{proved:?}");
    assert!(
        proved
            .stdout
            .starts_with("4 decisions, 4 decided again, 0 checked")
    );
    assert!(proved.stdout.ends_with("\nsigned by a key of --key\nOK\n"));
    let key = auditor.folder.path().join("key");
    std::fs::write(&key, format!("{}\n", auditor.key)).unwrap();
    let json = auditor.verify(&["--key", "key", "--json"]).await;
    assert_eq!(json.code, Some(0), "{json:?}");
    let sums: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(sums["decided"], 4);
    assert_eq!(sums["findings"], serde_json::json!([]));
    assert_eq!(
        (&sums["signer_known"], &sums["result"]),
        (&true.into(), &"OK".into())
    );
    // A file that is easily given by mistake in place of a bundle.
    let key = auditor.folder.path().join("key.gz");
    std::fs::write(&key, &auditor.key).unwrap();
    let path = key.to_str().unwrap();
    let none = place.run_code(1, &["audit", "verify", path]).await;
    assert!(none.stderr.contains("key.gz is no bundle"), "{none:?}");
    let name = auditor.key.split('+').next().unwrap();
    let other = format!("{name}+00000000+AQ==");
    auditor.verify(&["--key", &other]).await.assert_code(2);
    auditor.verify(&["--host", "o.test"]).await.assert_code(2);
}

// Ours.
#[tokio::test]
async fn a_bundle_of_one_host_has_only_its_decisions() {
    let place = recorded().await;
    let auditor = Auditor::of(&place, &["--host", "o.test", "--from", "1h"]).await;
    let proved = auditor.verify(&["--key", &auditor.key]).await;
    assert!(
        proved.stdout.starts_with("2 decisions, 2 decided"),
        "{proved:?}"
    );
    place
        .run_code(2, &["audit", "bundle", "-o", "b.jsonl.gz"])
        .await;
    let none = ["audit", "bundle", "-o", "c.jsonl.gz", "--host", "r.test"];
    place.run_code(1, &none).await;
    assert!(!place.path("c.jsonl.gz").exists());
}

// Ours: without a signed head a bundle would prove nothing.
#[tokio::test]
async fn without_a_head_no_bundle_is_made() {
    let (_origin, proxy) = proxy().await;
    get(&proxy, "http://o.test/a").await;
    proxy.place().completed(1).await;
    let early = proxy
        .place()
        .run_code(1, &["audit", "bundle", "-o", "b.jsonl.gz"])
        .await;
    assert!(early.stderr.contains("no head yet"), "{early:?}");
}

// Ours: the script shares no code with the program.
#[tokio::test]
async fn the_script_accepts_a_bundle_and_rejects_every_change() {
    let script = include_str!("../../docs/verify_bundle.py");
    assert!(script.lines().count() <= 200);
    let place = recorded().await;
    let auditor = Auditor::of(&place, &[]).await;
    let proved = auditor.verify_in_python(Some(&auditor.key)).await;
    assert_eq!(proved.code, Some(0), "{proved:?}");
    auditor.verify_in_python(None).await.assert_code(3);
    let mut nothing = Command::new("python3");
    nothing.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/verify_bundle.py"));
    let usage = finish(nothing, b"").await.assert_code(2);
    assert!(usage.stderr.starts_with("usage: "), "{usage:?}");
    // The key of another record.
    let other = Auditor::of(&recorded().await, &[]).await.key;
    auditor.verify_in_python(Some(&other)).await.assert_code(1);
    for change in [
        "sub(b'/private/x', b'/private/y')",
        "sub(b'\"disallow\"', b'\"allow\"')",
        "sub(b'127.0.0.1', b'127.0.0.2')",
        "sub(b'\"status\":403', b'\"status\":200')",
        "lines.pop(at('hash') - 1)",
        "lines.pop(at('hash'))",
        "lines.insert(at('head'), b'{\"hash\":\"' + b'0' * 64 + b'\"}\\n')",
        "sub(b'\\\\ntime 2', b'\\\\ntime 3')",
        "sub(b'\"body\":\"VXNl', b'\"body\":\"dXNl')",
        "lines.pop(at('robots'))",
        "lines.insert(at('robots'), lines[at('robots')])",
        "lines.insert(at('robots'), b'{\"note\":\"Nothing was refused.\"}\\n')",
        "lines.pop(at('head'))",
        "lines.pop(at('key'))",
        "lines.append(lines[at('key')])",
        "sub(b'+A', b'+B')",
        "sub(b'{\"version\":', b'{\"note\":1,\"version\":')",
        "sub(b'\"path\":', b'\"verdict\":\"allow\",\"path\":')",
        "sub(b'\"path\":', b'\"path\":\"/x\",\"path\":')",
        "sub(b'\"wait_ms\":0', b'\"wait_ms\":0.0')",
        "sub(b'\"sent\":1', b'\"sent\":true')",
        "sub(b'\"client\":1', b'\"client\":-1')",
        "sub(b'\"reading\":null', b'\"reading\":[]')",
        "lines[at('hash') - 2:at('hash')] = lines[at('hash') - 1:at('hash') - 3:-1]",
        "lines.insert(at('hash'), b'{\"value\":{\"number\":99,\"kind\":\"term\",\"columns\":[\"x\"]}}\\n')",
        "lines.append(b'[' * 100000)",
        // A different encoding of the same data could hide something.
        "i = at('decision'); row = json.loads(lines[i])['decision']; \
             write(i, {'decision': row | {'salt': row['salt'].upper()}})",
        "i = at('decision'); row = json.loads(lines[i])['decision']; \
             write(i, {'decision': {'path': row.pop('path'), **row}})",
        "write(at('hash'), {'hash': json.loads(lines[at('hash')])['hash'].upper()})",
        "i = at('hash'); one, two = (json.loads(line)['hash'] for line in lines[i:i + 2]); \
             write(i, {'hash': one + two[:2]}); write(i + 1, {'hash': two[2:]})",
        "sub(b'{\"decision\":{', b'{\"decision\": {')",
        "write(at('head'), {'head': json.loads(lines[at('head')])['head'] + 'More.\\n'})",
        "write(at('head'), {'head': json.loads(lines[at('head')])['head'][:-1]})",
        "write(at('key'), {'key': json.loads(lines[at('key')])['key'].replace('+', '+0', 1)})",
    ] {
        std::fs::remove_file(place.path("b.jsonl.gz")).unwrap();
        let changed = Auditor::of(&place, &["--host", "o.test"]).await;
        changed.change(change).await;
        for key in [Some(changed.key.as_str()), None] {
            let outcome = changed.verify_in_python(key).await.assert_code(1);
            assert!(outcome.stdout.starts_with("does not fit: "), "{outcome:?}");
        }
        changed.verify(&[]).await.assert_code(1);
    }
    std::fs::remove_file(place.path("b.jsonl.gz")).unwrap();
    let damaged = Auditor::of(&place, &[]).await;
    let whole = std::fs::read(damaged.path()).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    for bytes in [
        [b"PK\x03\x04", &whole[..]].concat(),
        [&whole[..], b"\n"].concat(),
        [&whole[..], &[0; 8]].concat(),
        whole[..whole.len() - 9].to_vec(),
        flipped,
        Vec::new(),
    ] {
        std::fs::write(damaged.path(), bytes).unwrap();
        let outcome = damaged.verify_in_python(None).await.assert_code(1);
        assert!(outcome.stdout.starts_with("does not fit: "), "{outcome:?}");
        assert_eq!(damaged.verify(&[]).await.code, Some(1));
    }
    // A bundle that was only packed again.
    std::fs::remove_file(place.path("b.jsonl.gz")).unwrap();
    let packed = Auditor::of(&place, &[]).await;
    packed.change("pass").await;
    let outcome = packed.verify_in_python(Some(&packed.key)).await;
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    packed.verify(&["--key", &packed.key]).await.assert_code(0);
}

// Ours; docs/decisions/026-redaction.md.
#[tokio::test]
async fn verify_and_script_accept_a_bundle_with_a_redacted_decision() {
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
    assert!(proved.stdout.ends_with("\nOK, but redacted rows: 1\n"));
    let in_python = auditor.verify_in_python(Some(&auditor.key)).await;
    assert_eq!(in_python.code, Some(0), "{in_python:?}");
    // Now no row that rests on this robots.txt is unredacted.
    let asked = asked.map(|word| if word == url { "http://o.test/*" } else { word });
    let redacted = place.run(&asked).await;
    assert_eq!(redacted.stdout, "decisions redacted: 1\n", "{redacted:?}");
    // These changes do not alter the leaf of a redacted row, so other checks must find them.
    for (change, asked) in [
        ("lines.pop(at('robots'))", &["--host", "o.test"][..]),
        (
            "sub(b'\"http://o.test\",\"o.test\"', b'\"http://r.test\",\"r.test\"')",
            &[],
        ),
        (
            "sub(b'\"http://o.test\",\"o.test\"', b'\"http://o.test\",\"r.test\"')",
            &[],
        ),
    ] {
        std::fs::remove_file(place.path("b.jsonl.gz")).unwrap();
        let changed = Auditor::of(&place, asked).await;
        changed.change(change).await;
        let outcome = changed.verify(&["--key", &changed.key]).await;
        assert_eq!(outcome.code, Some(1), "{change}: {outcome:?}");
        let outcome = changed.verify_in_python(Some(&changed.key)).await;
        assert_eq!(outcome.code, Some(1), "{change}: {outcome:?}");
    }
}
