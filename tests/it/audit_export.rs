//! `audit export`: decisions in formats for other programs, safe even with hostile
//! text from crawlers and sites.

use std::collections::HashMap;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;

use flate2::bufread::{GzDecoder, MultiGzDecoder};
use politesse_decision::digest::Digest;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::kit::client::{get, get_as};
use crate::kit::origin::{Origin, Script, site};
use crate::kit::program::finish;
use crate::kit::proxy::Place;
use crate::kit::raw_origin::find;
use crate::kit::{assert_contains, assert_members, warc};

const ROBOTS: &str = "User-agent: *\nDisallow: /private\n";

/// Returns a sealed record of four decisions: allowed and refused at one host, allowed at
/// a second, and refused at a third whose robots.txt cannot be fetched.
pub(crate) async fn recorded() -> (Origin, Place) {
    let unreachable = "upstream.resolve.\"q.test\" = \"127.0.0.1:1\"";
    let script = Script::robots(ROBOTS).names(["o.test", "p.test"]);
    let (origin, proxy) = site(script, &[unreachable]).await;
    get_as(&proxy, "FooBot/1", "http://o.test/a?b=1").await;
    get_as(&proxy, "BarBot/1", "http://o.test/private/x").await;
    get(&proxy, "http://p.test/\u{2e}/%C3%A9").await;
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

/// Returns the export in the format `form`.
async fn export(place: &Place, form: &str) -> String {
    place.audit(&format!("export --as {form}")).await.stdout
}

// Ours; docs/handing-over.md.
#[tokio::test]
async fn exported_json_lines_have_the_members_of_the_list_and_more() {
    let (_origin, place) = recorded().await;
    let listed = place.rows().await;
    let exported = place.audit("export --as jsonl").await.json_lines();
    assert_eq!(exported.len(), listed.len());
    let record = &exported[0]["record"];
    assert_eq!(record.as_str().unwrap().len(), 32);
    for (line, mut row) in exported.iter().zip(listed) {
        assert_eq!((&line["version"], &line["record"]), (&json!(1), record));
        let robots = row.as_object_mut().unwrap().remove("robots").unwrap();
        assert_members(line, &row);
        assert_eq!(line["robots"]["sha256"], robots["sha256"]);
        assert!(line["robots"]["fetched_at"].is_string(), "{line}");
    }
    assert_eq!(exported[3]["robots"]["result"], "unreachable");
    let refused = "export --as jsonl --host o.test --verdict disallow";
    let refused = place.audit(refused).await.json_lines();
    assert_eq!(refused, [exported[1].clone()]);
}

// Ours.
#[tokio::test]
async fn an_exported_file_is_private_and_never_overwritten() {
    let (_origin, place) = recorded().await;
    let file = place.path("rows.csv");
    let made = place.audit("export --as csv -o rows.csv").await;
    assert_eq!(made.stdout, "");
    assert_eq!(made.stderr, "politesse: 4 decisions\n");
    let text = std::fs::read_to_string(&file).unwrap();
    assert_eq!(text, export(&place, "csv").await);
    assert_eq!(text.lines().count(), 5);
    let mode = file.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let no_file = "/dev/full is no file: the name of a new one is wanted";
    for (code, name, said) in [
        (2, "rows.csv", "is there already"),
        (2, "/dev/full", no_file),
        (2, "-", "the name of a new file is wanted, not -"),
        (2, "rows.csv.gz", ""),
        (1, "no/rows.csv", ""),
    ] {
        let failed = format!("export --as csv -o {name}");
        let failed = place.audit_code(code, &failed).await;
        assert!(failed.stderr.contains(said), "{failed:?}");
    }
    assert!(!place.path("rows.csv.gz").exists());
    assert!(!place.path("no").exists());
    let left = std::fs::read_dir(place.folder()).unwrap();
    let mut names = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(!names.any(|name| name.ends_with(".part")));
}

// RFC 4180; ours for formulas and terminals.
#[tokio::test]
async fn hostile_values_are_inert_in_every_form() {
    let (_origin, place) = recorded().await;
    make_hostile(&place);
    let csv = export(&place, "csv").await;
    assert!(is_inert(&csv), "{csv:?}");
    assert_eq!(csv.matches("\r\n").count(), 5, "{csv:?}");
    assert!(!csv.contains(",="), "{csv:?}");
    assert_contains(&csv, ",'=1+1\u{fffd}\\u{1b}[2J\\u{d}\\u{a}\\u{202e},");
    let text = export(&place, "jsonl").await;
    assert!(is_inert(&text), "{text:?}");
    assert_eq!(text.lines().count(), 4);
    // A JSON parser restores the original value.
    let whole = text.lines().all(|line| {
        let row: Value = serde_json::from_str(line).unwrap();
        row["user_agent"] == "=1+1\u{fffd}\u{1b}[2J\r\n\u{202e}"
    });
    assert!(whole, "{text}");
    let warc = export(&place, "warc").await;
    assert!(is_inert(&warc), "{warc:?}");
    let records = parse(warc.as_bytes());
    let decisions = records.iter().filter(|record| record.is_decision());
    assert_eq!(decisions.count(), 4);
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
        let end = find(rest, b"\r\n\r\n").unwrap();
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
    let text = export(&place, "warc").await;
    let records = parse(text.as_bytes());
    let kinds: Vec<_> = records.iter().map(|one| one.field("warc-type")).collect();
    let wanted = "warcinfo response metadata metadata response metadata metadata response \
                  metadata metadata metadata metadata";
    assert_eq!(kinds.join(" "), wanted);
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
    assert_eq!(response.block, warc::ok(ROBOTS).as_bytes());
    let url = response.field("warc-target-uri");
    assert_eq!(url, "http://o.test/robots.txt");
    let payload = format!("sha256:{}", Digest::of(ROBOTS.as_bytes()));
    assert_eq!(response.field("warc-payload-digest"), payload);
    let how = str::from_utf8(&records[2].block).unwrap();
    assert!(how.contains("robots-result: successful\r\n"), "{how}");
    let decisions = records.iter().filter(|record| record.is_decision());
    let exported = place.audit("export --as jsonl").await.json_lines();
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

// WARC 1.1, annex D; warcio checks each digest.
#[tokio::test]
async fn warcio_reads_a_compressed_warc_file_record_by_record() {
    let (_origin, place) = recorded().await;
    for name in ["all.warc", "all.warc.gz"] {
        export(&place, &format!("warc -o {name}")).await;
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
    // This Python has the packages of tests/clients/requirements.txt.
    let python = concat!(env!("CARGO_MANIFEST_DIR"), "/target/venv/bin/python");
    let mut command = Command::new(python);
    command.args(["-c", program]).current_dir(place.folder());
    let seen = finish(command, b"").await.assert_code(0).stdout;
    let lines: Vec<_> = seen.lines().collect();
    let (first, second) = lines.split_at(lines.len() / 2);
    assert_eq!(first, second);
    let robots = format!("response http://o.test/robots.txt 200 {}", ROBOTS.len());
    assert!(first.contains(&robots.as_str()), "{seen}");
    assert_eq!(first.len(), 12, "{seen}");
}
