//! `audit bundle`, and its verification on another machine: with `audit verify`, and with
//! docs/verify_bundle.py, which needs no politesse.

use std::path::{Path, PathBuf};

use serde_json::json;
use tempfile::TempDir;
use tokio::process::Command;

use crate::audit_export::recorded;
use crate::kit::client::get;
use crate::kit::origin::{Script, site};
use crate::kit::program::{Outcome, finish, run_in};
use crate::kit::proxy::Place;
use crate::kit::{assert_contains, assert_members};

/// A machine that has a bundle, but not the record.
struct Auditor {
    folder: TempDir,
    /// Key of the record, received separately.
    key: String,
}

impl Auditor {
    /// Makes a bundle of the decisions that `filter` selects, in the auditor's folder.
    async fn of(place: &Place, filter: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("b.jsonl.gz");
        let bundle = format!("bundle -o {} {filter}", file.display());
        place.audit(&bundle).await;
        let key = place.audit("key").await.stdout.trim_end().to_owned();
        Self { folder, key }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("b.jsonl.gz")
    }

    async fn verify(&self, arguments: &[&str]) -> Outcome {
        let all = [&["audit", "verify", "b.jsonl.gz"][..], arguments].concat();
        run_in(self.folder.path(), &all).await
    }

    async fn verify_in_python(&self, key: Option<&str>) -> Outcome {
        let mut script = script();
        script.arg(self.path()).args(key);
        finish(script, b"").await
    }

    /// Asserts that program and script reject the bundle, with the right key and without.
    async fn assert_rejected(&self, why: &str) {
        for key in [Some(self.key.as_str()), None] {
            let outcome = self.verify_in_python(key).await;
            let is_rejected = outcome.stdout.starts_with("does not fit: ");
            assert!(is_rejected && outcome.code == Some(1), "{why}: {outcome:?}");
        }
        for arguments in [&["--key", &*self.key][..], &[]] {
            let outcome = self.verify(arguments).await;
            assert_eq!(outcome.code, Some(1), "{why}: {outcome:?}");
        }
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

/// Returns the command of the script, without arguments.
fn script() -> Command {
    let mut command = Command::new("python3");
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/verify_bundle.py"));
    command
}

// Ours; exit codes: docs/handing-over.md.
#[tokio::test]
async fn a_bundle_is_verified_without_the_record() {
    let (_origin, place) = recorded().await;
    let auditor = Auditor::of(&place, "").await;
    let unknown = auditor.verify(&[]).await.assert_code(3);
    assert_contains(&unknown.stdout, "\nOK, but the signer is unknown: ");
    let proved = auditor.verify(&["--key", &auditor.key]).await;
    let text = proved.assert_code(0).stdout;
    let counts = "4 decisions, 4 decided again, 0 checked";
    assert!(text.starts_with(counts), "{text}");
    let end = "\nsigned by a key of --key\nOK\n";
    assert!(text.ends_with(end), "{text}");
    let key = auditor.folder.path().join("key");
    std::fs::write(&key, format!("{}\n", auditor.key)).unwrap();
    let sums = auditor.verify(&["--key", "key", "--json"]).await;
    let sums = sums.assert_code(0).json_lines().remove(0);
    let wanted = json!({"decided": 4, "findings": [], "signer_known": true, "result": "OK"});
    assert_members(&sums, &wanted);
    // A file that is easily given by mistake in place of a bundle.
    let key = auditor.folder.path().join("key.gz");
    std::fs::write(&key, &auditor.key).unwrap();
    let verify = format!("verify {}", key.display());
    let none = place.audit_code(1, &verify).await;
    assert_contains(&none.stderr, "key.gz is no bundle");
    let name = auditor.key.split('+').next().unwrap();
    let other = format!("{name}+00000000+AQ==");
    auditor.verify(&["--key", &other]).await.assert_code(2);
    auditor.verify(&["--host", "o.test"]).await.assert_code(2);
}

// Ours.
#[tokio::test]
async fn a_bundle_of_one_host_has_only_its_decisions() {
    let (_origin, place) = recorded().await;
    let auditor = Auditor::of(&place, "--host o.test --from 1h").await;
    let proved = auditor.verify(&["--key", &auditor.key]).await.stdout;
    let counts = "2 decisions, 2 decided";
    assert!(proved.starts_with(counts), "{proved}");
    // The file exists already.
    let again = format!("bundle -o {}", auditor.path().display());
    place.audit_code(2, &again).await;
    let none = "bundle -o c.jsonl.gz --host r.test";
    place.audit_code(1, none).await;
    assert!(!place.path("c.jsonl.gz").exists());
}

// Ours: without a signed head a bundle would prove nothing.
#[tokio::test]
async fn without_a_head_no_bundle_is_made() {
    let (_origin, proxy) = site(Script::robots(""), &[]).await;
    get(&proxy, "http://o.test/a").await;
    proxy.place().completed(1).await;
    let early = proxy.place().audit_code(1, "bundle -o b.jsonl.gz").await;
    assert_contains(&early.stderr, "no head yet");
}

// Ours: the script shares no code with the program.
#[tokio::test]
async fn the_script_accepts_a_bundle_and_rejects_every_change() {
    let text = include_str!("../../docs/verify_bundle.py");
    assert!(text.lines().count() <= 200);
    let (_origin, place) = recorded().await;
    let auditor = Auditor::of(&place, "").await;
    let proved = auditor.verify_in_python(Some(&auditor.key)).await;
    proved.assert_code(0);
    auditor.verify_in_python(None).await.assert_code(3);
    let usage = finish(script(), b"").await.assert_code(2);
    assert!(usage.stderr.starts_with("usage: "), "{usage:?}");
    // The key of another record.
    let other = Auditor::of(&recorded().await.1, "").await.key;
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
        let changed = Auditor::of(&place, "--host o.test").await;
        changed.change(change).await;
        changed.assert_rejected(change).await;
    }
    let damaged = Auditor::of(&place, "").await;
    let whole = std::fs::read(damaged.path()).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    for (damage, bytes) in [
        ("before", [b"PK\x03\x04", &whole[..]].concat()),
        ("a line end after", [&whole[..], b"\n"].concat()),
        ("zeros after", [&whole[..], &[0; 8]].concat()),
        ("cut", whole[..whole.len() - 9].to_vec()),
        ("flipped", flipped),
        ("empty", Vec::new()),
    ] {
        std::fs::write(damaged.path(), bytes).unwrap();
        damaged.assert_rejected(damage).await;
    }
    // A bundle that was only packed again.
    let packed = Auditor::of(&place, "").await;
    packed.change("pass").await;
    let outcome = packed.verify_in_python(Some(&packed.key)).await;
    outcome.assert_code(0);
    packed.verify(&["--key", &packed.key]).await.assert_code(0);
}

// Ours; docs/decisions/026-redaction.md.
#[tokio::test]
async fn verify_and_script_accept_a_bundle_with_a_redacted_decision() {
    let (_origin, place) = recorded().await;
    let redact = async |url: &str| {
        let redact = format!("redact --url {url} --why 'asked for' --yes");
        let redacted = place.audit(&redact).await.stdout;
        assert_eq!(redacted, "decisions redacted: 1\n");
    };
    redact("http://o.test/private/*").await;
    let auditor = Auditor::of(&place, "").await;
    let proved = auditor.verify(&["--key", &auditor.key]).await;
    let text = proved.assert_code(0).stdout;
    assert_contains(&text, "1 not decided again: client and URL were redacted");
    assert!(text.ends_with("\nOK, but redacted rows: 1\n"), "{text}");
    let in_python = auditor.verify_in_python(Some(&auditor.key)).await;
    in_python.assert_code(0);
    // Now no row that rests on this robots.txt is unredacted.
    redact("http://o.test/*").await;
    // These changes do not alter the leaf of a redacted row, so other checks must find them.
    let host = "sub(b'\"http://o.test\",\"o.test\"', b'\"http://r.test\",\"r.test\"')";
    let name = "sub(b'\"http://o.test\",\"o.test\"', b'\"http://o.test\",\"r.test\"')";
    for (change, filter) in [
        ("lines.pop(at('robots'))", "--host o.test"),
        (host, ""),
        (name, ""),
    ] {
        let changed = Auditor::of(&place, filter).await;
        changed.change(change).await;
        changed.assert_rejected(change).await;
    }
}
