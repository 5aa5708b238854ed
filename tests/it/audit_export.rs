//! `audit export`: decisions in formats for other programs, safe even with hostile
//! text from crawlers and sites.

use std::collections::HashMap;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use flate2::bufread::{GzDecoder, MultiGzDecoder};
use politesse_decision::digest::Digest;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::kit::client::{get, get_as};
use crate::kit::origin::{Origin, Script};
use crate::kit::program::finish;
use crate::kit::proxy::{Place, Proxy, resolve};

const ROBOTS: &str = "User-agent: *\nDisallow: /private\n";

/// Returns a record of four decisions: allowed and refused at one host, allowed at a
/// second, and refused at a third whose robots.txt cannot be fetched.
async fn recorded() -> (Origin, Place) {
    let origin = Script::robots(ROBOTS).start().await;
    let config = resolve("o.test", origin.address())
        .resolve("p.test", origin.address())
        .resolve("q.test", "127.0.0.1:1".parse().unwrap());
    let proxy: Proxy = config.start().await;
    get_as(&proxy, "FooBot/1", "http://o.test/a?b=1").await;
    get_as(&proxy, "BarBot/1", "http://o.test/private/x").await;
    get(&proxy, "http://p.test/a").await;
    get(&proxy, "http://q.test/a").await;
    proxy.place().completed(4).await;
    (origin, proxy.stop().await)
}

/// Puts hostile values into the record: a formula, an escape sequence, a line end, a
/// change of text direction, and bytes that are not UTF-8.
fn make_hostile(place: &Place) {
    let evil = "CAST(x'3d312b31ff1b5b324a0d0ae280ae' AS TEXT)";
    let sql = format!(
        "UPDATE crawler SET user_agent = {evil}; UPDATE decision SET path = '/' || {evil};
         UPDATE ruling SET rule = {evil} WHERE line IS NOT NULL; UPDATE snapshot SET cause = {evil};
         UPDATE origin SET origin = {evil} WHERE host = 'p.test';"
    );
    place.database().execute_batch(&sql).unwrap();
}

fn is_inert(text: &str) -> bool {
    let is_evil = |c: char| (c.is_control() && !"\r\n".contains(c)) || c == '\u{202e}';
    !text.contains(is_evil)
}

async fn export(place: &Place, arguments: &[&str]) -> String {
    let outcome = place
        .run_ok(&[&["audit", "export"][..], arguments].concat())
        .await;
    outcome.stdout
}

async fn lines(place: &Place, arguments: &[&str]) -> Vec<Value> {
    let text = export(place, arguments).await;
    let lines = text.lines().map(serde_json::from_str);
    lines.collect::<Result<_, _>>().unwrap()
}

// Ours; docs/handing-over.md.
#[tokio::test]
async fn exported_json_lines_have_the_members_of_the_list_and_more() {
    let (_origin, place) = recorded().await;
    let listed = place.rows().await;
    let exported = lines(&place, &["--as", "jsonl"]).await;
    assert_eq!(exported.len(), listed.len());
    let record = &exported[0]["record"];
    assert_eq!(record.as_str().unwrap().len(), 32);
    for (line, row) in exported.iter().zip(&listed) {
        assert_eq!((&line["version"], &line["record"]), (&json!(1), record));
        for (name, value) in row.as_object().unwrap() {
            if name != "robots" {
                assert_eq!(&line[name], value, "{name}");
            }
        }
        assert_eq!(line["robots"]["sha256"], row["robots"]["sha256"]);
        assert!(line["robots"]["fetched_at"].is_string(), "{line}");
    }
    assert_eq!(exported[3]["robots"]["result"], "unreachable");
    let refused = ["--as", "jsonl", "--host", "o.test", "--verdict", "disallow"];
    assert_eq!(lines(&place, &refused).await, [exported[1].clone()]);
}

// Ours.
#[tokio::test]
async fn an_exported_file_is_private_and_never_overwritten() {
    let (_origin, place) = recorded().await;
    let file = place.path("rows.csv");
    let arguments = ["audit", "export", "--as", "csv", "-o", "rows.csv"];
    let made = place.run(&arguments).await;
    assert_eq!((made.code, made.stdout.as_str()), (Some(0), ""), "{made:?}");
    assert_eq!(made.stderr, "politesse: 4 decisions\n");
    let text = std::fs::read_to_string(&file).unwrap();
    assert_eq!(text, export(&place, &["--as", "csv"]).await);
    assert_eq!(text.lines().count(), 5);
    let mode = file.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let again = place.run_code(2, &arguments).await;
    assert!(again.stderr.contains("is there already"), "{again:?}");
    for (name, said) in [
        (
            "/dev/full",
            "/dev/full is no file: the name of a new one is wanted",
        ),
        ("-", "the name of a new file is wanted, not -"),
    ] {
        let failed = place
            .run_code(2, &["audit", "export", "--as", "csv", "-o", name])
            .await;
        assert!(failed.stderr.contains(said), "{failed:?}");
    }
    for (name, code) in [("rows.csv.gz", Some(2)), ("no/rows.csv", Some(1))] {
        let failed = place
            .run(&["audit", "export", "--as", "csv", "-o", name])
            .await;
        assert_eq!(failed.code, code, "{failed:?}");
        assert!(!place.path(name).exists());
    }
    let left = std::fs::read_dir(place.folder()).unwrap();
    let mut names = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(!names.any(|name| name.ends_with(".part")));
}

// RFC 4180; ours for formulas and terminals.
#[tokio::test]
async fn hostile_values_are_inert_in_every_form() {
    let (_origin, place) = recorded().await;
    make_hostile(&place);
    let csv = export(&place, &["--as", "csv"]).await;
    assert!(is_inert(&csv), "{csv:?}");
    assert_eq!(csv.matches("\r\n").count(), 5, "{csv:?}");
    assert!(!csv.contains(",="), "{csv:?}");
    assert!(csv.contains(",'=1+1\u{fffd}\\u{1b}[2J\\u{d}\\u{a}\\u{202e},"));
    let text = export(&place, &["--as", "jsonl"]).await;
    assert!(is_inert(&text), "{text:?}");
    assert_eq!(text.lines().count(), 4);
    // A JSON parser restores the original value.
    let whole = text.lines().all(|line| {
        let row: Value = serde_json::from_str(line).unwrap();
        row["user_agent"] == "=1+1\u{fffd}\u{1b}[2J\r\n\u{202e}"
    });
    assert!(whole, "{text}");
    let warc = export(&place, &["--as", "warc"]).await;
    assert!(is_inert(&warc), "{warc:?}");
    let records = parse(warc.as_bytes());
    assert_eq!(
        records.iter().filter(|record| record.is_decision()).count(),
        4
    );
}

/// A record of a WARC file.
#[derive(Debug)]
struct WarcRecord {
    fields: HashMap<String, String>,
    block: Vec<u8>,
}

impl WarcRecord {
    fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }

    fn is_decision(&self) -> bool {
        self.field("content-type") == "application/json"
    }
}

/// Parses a WARC file strictly by the grammar of WARC 1.1 (section 4).
fn parse(mut rest: &[u8]) -> Vec<WarcRecord> {
    let mut records = Vec::new();
    while !rest.is_empty() {
        let end = rest
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .unwrap();
        let (head, behind) = rest.split_at(end);
        let head = str::from_utf8(head).unwrap();
        let mut head_lines = head.split("\r\n");
        assert_eq!(head_lines.next(), Some("WARC/1.1"));
        let mut fields = HashMap::new();
        for line in head_lines {
            let (name, value) = line.split_once(": ").unwrap();
            assert!(!value.contains(['\r', '\n']), "{line:?}");
            let known = fields.insert(name.to_ascii_lowercase(), value.to_owned());
            assert_eq!(known, None, "{name} occurs twice");
        }
        let length: usize = fields["content-length"].parse().unwrap();
        let (block, behind) = behind[4..].split_at(length);
        rest = behind.strip_prefix(b"\r\n\r\n").unwrap();
        records.push(WarcRecord {
            fields,
            block: block.to_vec(),
        });
    }
    records
}

// WARC 1.1 (ISO 28500), sections 4 to 6.
#[tokio::test]
async fn a_warc_file_contains_each_robots_txt_and_each_decision() {
    let (_origin, place) = recorded().await;
    let text = export(&place, &["--as", "warc"]).await;
    let records = parse(text.as_bytes());
    let kinds: Vec<_> = records.iter().map(|one| one.field("warc-type")).collect();
    assert_eq!(
        kinds,
        [
            "warcinfo", "response", "metadata", "metadata", "response", "metadata", "metadata",
            "response", "metadata", "metadata", "metadata", "metadata"
        ]
    );
    let info = str::from_utf8(&records[0].block).unwrap();
    assert!(info.contains("\r\nrobots: RFC 9309"), "{info}");
    let mut ids: HashMap<&str, &WarcRecord> = HashMap::new();
    for record in &records {
        let digest = format!("sha256:{}", Digest::of(&record.block));
        assert_eq!(record.field("warc-block-digest"), digest);
        for name in ["warc-refers-to", "warc-concurrent-to", "warc-warcinfo-id"] {
            let id = record.field(name);
            assert!(id.is_empty() || ids.contains_key(id), "{record:?}");
        }
        let known = ids.insert(record.field("warc-record-id"), record);
        assert!(known.is_none(), "an id occurs twice");
    }
    let response = &records[1];
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
        ROBOTS.len()
    );
    assert_eq!(
        response.block,
        [head.as_bytes(), ROBOTS.as_bytes()].concat()
    );
    assert_eq!(
        response.field("warc-target-uri"),
        "http://o.test/robots.txt"
    );
    let payload = format!("sha256:{}", Digest::of(ROBOTS.as_bytes()));
    assert_eq!(response.field("warc-payload-digest"), payload);
    let how = str::from_utf8(&records[2].block).unwrap();
    assert!(how.contains("robots-result: successful\r\n"), "{how}");
    let decisions = records.iter().filter(|record| record.is_decision());
    let exported = lines(&place, &["--as", "jsonl"]).await;
    for (record, line) in decisions.zip(&exported) {
        let block: Value = serde_json::from_slice(&record.block).unwrap();
        assert_eq!(&block, line);
        assert_eq!(record.field("warc-target-uri"), line["url"]);
        assert_eq!(record.field("warc-date"), line["time"]);
        let robots = ids[record.field("warc-refers-to")];
        assert_eq!(robots.field("warc-target-uri"), line["robots"]["url"]);
        assert_eq!(robots.field("warc-date"), line["robots"]["fetched_at"]);
    }
}

/// Runs `program` with the Python that has the packages in
/// tests/clients/requirements.txt.
async fn python(place: &Place, program: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let interpreter = root.join("target/venv/bin/python");
    assert!(
        interpreter.exists(),
        "run tests/run: it makes {interpreter:?}"
    );
    let mut command = Command::new(interpreter);
    command.args(["-c", program]).current_dir(place.folder());
    let outcome = finish(command, b"").await.assert_code(0);
    outcome.stdout
}

// WARC 1.1, annex D; warcio checks each digest.
#[tokio::test]
async fn warcio_reads_a_compressed_warc_file_record_by_record() {
    let (_origin, place) = recorded().await;
    for name in ["all.warc", "all.warc.gz"] {
        export(&place, &["--as", "warc", "-o", name]).await;
    }
    let plain = std::fs::read(place.path("all.warc")).unwrap();
    let packed = std::fs::read(place.path("all.warc.gz")).unwrap();
    let mut unpacked = Vec::new();
    let mut members = MultiGzDecoder::new(&packed[..]);
    members.read_to_end(&mut unpacked).unwrap();
    assert_eq!(parse(&unpacked).len(), parse(&plain).len());
    // Each gzip member contains exactly one record.
    let mut rest = &packed[..];
    while !rest.is_empty() {
        let mut record = Vec::new();
        let mut member = GzDecoder::new(rest);
        member.read_to_end(&mut record).unwrap();
        assert_eq!(parse(&record).len(), 1);
        rest = member.into_inner();
    }
    let program = "
from warcio.archiveiterator import ArchiveIterator
for name in 'all.warc', 'all.warc.gz':
    for record in ArchiveIterator(open(name, 'rb'), check_digests='raise'):
        uri = record.rec_headers.get_header('WARC-Target-URI')
        status = record.http_headers and record.http_headers.get_statuscode()
        print(record.rec_type, uri, status, len(record.content_stream().read()))
";
    let seen = python(&place, program).await;
    let lines: Vec<_> = seen.lines().collect();
    let (first, second) = lines.split_at(lines.len() / 2);
    assert_eq!(first, second);
    let robots = format!("response http://o.test/robots.txt 200 {}", ROBOTS.len());
    assert!(first.contains(&robots.as_str()), "{seen}");
    assert_eq!(first.len(), 12, "{seen}");
}
