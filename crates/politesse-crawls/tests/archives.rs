//! WARC files as written, damaged, and read: the messages found, where they begin, and
//! the reports about the rest.
#![expect(clippy::unwrap_used, reason = "a test that meets an error has failed")]

use std::io::{Cursor, Read, Write as _};

use flate2::Compression;
use flate2::write::GzEncoder;
use politesse_crawls::{
    ArchiveDamage, ArchiveError, ArchiveReader, ArchivedMessage, BodyEnd, DamageCause, GzipMembers,
    MEMBER_BYTES_SEEN, MessageSide, PlainFile, RecordSource, find_record_member,
};
use proptest::prelude::*;

/// Longest robots.txt that is read.
const BODY_BYTES_MAX: usize = 1000;

/// Contents read from an archive: messages and damage, in order.
#[derive(Debug, Default)]
struct Contents {
    messages: Vec<ArchivedMessage>,
    damages: Vec<ArchiveDamage>,
}

impl Contents {
    fn urls(&self) -> Vec<&str> {
        let urls = self.messages.iter().map(|message| &*message.url);
        urls.collect()
    }

    fn causes(&self) -> Vec<&DamageCause> {
        self.damages.iter().map(|damage| &damage.cause).collect()
    }

    /// Returns the contents as text.
    fn shown(&self) -> String {
        format!("{:?} {:?}", self.messages, self.damages)
    }
}

fn read_from(source: impl RecordSource) -> Contents {
    let mut reader = ArchiveReader::new(source, BODY_BYTES_MAX);
    let mut contents = Contents::default();
    loop {
        match reader.next_message() {
            Ok(None) => return contents,
            Ok(Some(message)) => contents.messages.push(message),
            Err(ArchiveError::Damage(damage)) => contents.damages.push(damage),
            Err(ArchiveError::File(error)) => panic!("{error}"),
        }
    }
}

fn plain(bytes: &[u8]) -> Contents {
    read_from(PlainFile::new(bytes))
}

fn gzip(bytes: &[u8]) -> Contents {
    read_from(GzipMembers::new(bytes, 0))
}

/// Returns a gzip member with these bytes.
fn member(bytes: &[u8]) -> Vec<u8> {
    let mut member = GzEncoder::new(Vec::new(), Compression::fast());
    member.write_all(bytes).unwrap();
    member.finish().unwrap()
}

/// Returns a request for `url`.
fn request(url: &str) -> Vec<u8> {
    let head = "GET / HTTP/1.1\r\nUser-Agent: Foo\r\n\r\n";
    record(
        &format!("WARC-Type: request\r\nWARC-Target-URI: {url}"),
        head,
    )
}

fn record(fields: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("WARC/1.1\r\n{fields}\r\nContent-Length: {length}\r\n\r\n{body}\r\n\r\n").into()
}

/// Returns three requests.
fn three() -> Vec<Vec<u8>> {
    ["http://h/1", "http://h/2", "http://h/3"]
        .map(request)
        .into()
}

/// Reader that returns at most `length` bytes at a time.
struct Pieces<'a> {
    bytes: Cursor<&'a [u8]>,
    length: usize,
}

impl Read for Pieces<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let length = self.length.min(out.len());
        self.bytes.read(&mut out[..length])
    }
}

// ISO 28500, sections 4 and 5: names in any case, folded values. Ours: line ends and
// `<>`, on which writers disagree.
#[test]
fn headers_are_read_in_all_forms_that_writers_use() {
    for fields in [
        "WARC-Type: request\r\nWARC-Target-URI: http://h/a\r\nWARC-Date: 2026-01-02T03:04:05Z",
        "warc-type:request\r\nwarc-target-uri:http://h/a\r\nwarc-date:2026-01-02T03:04:05Z",
        "WARC-Type: request\r\nWARC-Target-URI: <http://h/a>\r\nWARC-Date: 2026-01-02T03:04:05",
        "WARC-Type: request\r\nWARC-Target-URI:\r\n http://h/a\r\nWARC-Date:\r\n\t2026-01-02T03:04:05.000Z",
        "no field\r\nWARC-Type: request\r\nWARC-Target-URI: http://h/a\r\nWARC-Date: 2026-01-02T03:04:05Z",
    ] {
        let crlf = record(fields, "GET / HTTP/1.1\r\nuser-agent: Foo\r\n\r\n");
        let lf = String::from_utf8(record(fields, "GET / HTTP/1.1\nuser-agent: Foo\n\n"));
        for bytes in [crlf, lf.unwrap().replace("\r\n", "\n").into_bytes()] {
            let contents = plain(&bytes);
            assert_eq!(contents.causes(), Vec::<&DamageCause>::new(), "{fields}");
            assert_eq!(contents.urls(), ["http://h/a"], "{fields}");
            let message = &contents.messages[0];
            assert_eq!(message.at, Some("2026-01-02T03:04:05Z".parse().unwrap()));
            let user_agent = Some("Foo".to_owned());
            assert_eq!(message.side, MessageSide::Request { user_agent });
        }
    }
}

// Ours: only HTTP exchanges are requests of the crawl.
#[test]
fn only_http_messages_are_returned() {
    for (fields, is_message) in [
        ("WARC-Type: request\r\nWARC-Target-URI: https://h/", true),
        ("WARC-Type: request\r\nWARC-Target-URI: HTTP://h/", true),
        ("WARC-Type: response\r\nWARC-Target-URI: dns:h", false),
        ("WARC-Type: response\r\nWARC-Target-URI: ftp://h/", false),
        ("WARC-Type: metadata\r\nWARC-Target-URI: http://h/", false),
        ("WARC-Type: conversion\r\nWARC-Target-URI: http://h/", false),
        ("WARC-Type: request", false),
        (
            "WARC-Type: resource\r\nWARC-Target-URI: urn:view:http://h/",
            false,
        ),
        ("WARC-Type: resource\r\nWARC-Target-URI: http://h/", true),
    ] {
        let contents = plain(&record(fields, ""));
        assert_eq!(contents.messages.len(), usize::from(is_message), "{fields}");
    }
}

// RFC 1952: members of any form, and zeros between them.
#[test]
fn members_are_read_with_their_positions() {
    let three = three();
    let mut with_fields = member(&three[1]);
    // Name, comment, and a field of two bytes.
    with_fields[3] = 4 | 8 | 16;
    with_fields.splice(10..10, *b"\x02\0ab\x6e\0\x63\0");
    let bytes = [
        member(&three[0]),
        with_fields,
        vec![0; 100],
        member(b""),
        member(&three[2]),
    ];
    let place = |part: usize| bytes[..part].concat().len() as u64;
    let contents = gzip(&bytes.concat());
    assert_eq!(contents.urls(), ["http://h/1", "http://h/2", "http://h/3"]);
    let places: Vec<_> = contents
        .messages
        .iter()
        .map(|message| message.place)
        .collect();
    assert_eq!(places, [0, place(1), place(4)]);
    assert_eq!(contents.damages, []);
}

/// One test per row: the result for three requests of which the second is damaged, in a
/// plain file and in gzip members.
macro_rules! damages {
    ($($name:ident: $from:expr, $to:expr => $cause:path;)*) => {$(
        #[test]
        fn $name() {
            let mut three = three();
            three[1] = replaced(&three[1], $from, $to);
            let place = three[0].len() as u64;
            let contents = plain(&three.concat());
            assert_eq!(contents.urls(), ["http://h/1", "http://h/3"]);
            assert_eq!(contents.causes(), [&$cause]);
            assert_eq!(contents.damages[0].place, place);

            let members: Vec<_> = three.iter().map(|record| member(record)).collect();
            let contents = gzip(&members.concat());
            assert_eq!(contents.urls(), ["http://h/1", "http://h/3"]);
            assert_eq!(contents.causes(), [&$cause]);
            assert_eq!(contents.damages[0].place, members[0].len() as u64);

            // All in one member.
            let contents = gzip(&member(&three.concat()));
            assert_eq!(contents.urls(), ["http://h/1", "http://h/3"]);
        }
    )*};
}

fn replaced(record: &[u8], from: &str, to: &str) -> Vec<u8> {
    String::from_utf8(record.to_vec())
        .unwrap()
        .replace(from, to)
        .into()
}

// Ours: each damage costs only its own record.
damages! {
    a_record_begins_with_its_version: "WARC/1.1", "XARC/1.1" => DamageCause::NotARecord;
    a_record_needs_a_length: "Content-Length", "Content-Size" => DamageCause::ContentLength;
    a_length_is_a_number: "Content-Length: ", "Content-Length: -" => DamageCause::ContentLength;
    a_header_has_a_size_limit: "\r\nContent", &format!("\r\n{}Content", "x: y\r\n".repeat(20_000))
        => DamageCause::HeaderLength;
    a_line_has_a_size_limit: "\r\nContent", &format!("\r\nx: {}\r\nContent", "y".repeat(70_000))
        => DamageCause::HeaderLength;
}

// Ours: the end of a killed crawl.
#[test]
fn a_file_that_ends_within_a_record_is_reported_as_cut() {
    let bytes = three().concat();
    for cut in [5, 60] {
        let contents = plain(&bytes[..bytes.len() - cut]);
        assert_eq!(contents.urls(), ["http://h/1", "http://h/2"]);
        assert_eq!(contents.causes(), [&DamageCause::Cut]);
    }
    let members = three()
        .iter()
        .map(|record| member(record))
        .collect::<Vec<_>>()
        .concat();
    let contents = gzip(&members[..members.len() - 5]);
    assert_eq!(contents.urls(), ["http://h/1", "http://h/2"]);
    assert_eq!(contents.causes(), [&DamageCause::Cut]);
}

// RFC 1952, section 2.3.1: data with a wrong checksum is rejected.
#[test]
fn a_member_with_a_wrong_checksum_is_not_read() {
    let mut members: Vec<_> = three().iter().map(|record| member(record)).collect();
    let end = members[1].len();
    members[1][end - 6] ^= 1;
    let contents = gzip(&members.concat());
    assert_eq!(contents.urls(), ["http://h/1", "http://h/3"]);
    assert_eq!(contents.damages.len(), 1, "{:?}", contents.damages);
    assert_eq!(contents.damages[0].place, members[0].len() as u64);
}

// Ours: a range begins where a member begins with a record.
#[test]
fn members_with_records_are_found_in_the_middle_of_a_file() {
    let noise = [0x1f, 0x8b, 8, 0, 1, 2, 3].repeat(10);
    let page = member(b"<html>no record");
    let bytes = [noise, page, member(&request("http://h/1"))].concat();
    let wanted = bytes.len() - member(&request("http://h/1")).len();
    assert_eq!(find_record_member(&bytes, bytes.len()), Some(wanted));
    assert_eq!(find_record_member(&bytes, wanted), None);
    assert!(bytes.len() < MEMBER_BYTES_SEEN);
}

// Ours: a long robots.txt is read up to the limit and reported as long.
#[test]
fn a_long_body_is_read_up_to_the_limit() {
    for (length, end) in [(1000, BodyEnd::Whole), (5000, BodyEnd::Long)] {
        let fields = "WARC-Type: response\r\nWARC-Target-URI: http://h/robots.txt";
        let body = format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(length));
        let contents = plain(&[record(fields, &body), request("http://h/1")].concat());
        assert_eq!(contents.urls(), ["http://h/robots.txt", "http://h/1"]);
        let MessageSide::Response {
            robots: Some(robots),
            status: Some(200),
            page: None,
        } = &contents.messages[0].side
        else {
            panic!("{contents:?}");
        };
        assert_eq!(robots.end, end, "{length}");
        assert!(robots.body.len() <= 1501, "{length}");
    }
}

proptest! {
    // Ours: the size of reads does not change the result, and nothing panics.
    #[test]
    fn a_file_read_in_pieces_gives_the_same_contents(
        flips in prop::collection::vec((0..2000_usize, any::<u8>()), 0..4),
        length in 1..300_usize,
    ) {
        let members = three().iter().map(|record| member(record)).collect::<Vec<_>>();
        for (bytes, is_gzip) in [(three().concat(), false), (members.concat(), true)] {
            let mut bytes = bytes;
            for (at, byte) in &flips {
                let at = at % bytes.len();
                bytes[at] = *byte;
            }
            let pieces = || Pieces { bytes: Cursor::new(&bytes), length };
            let (whole, cut) = if is_gzip {
                (gzip(&bytes), read_from(GzipMembers::new(pieces(), 0)))
            } else {
                (plain(&bytes), read_from(PlainFile::new(pieces())))
            };
            prop_assert_eq!(whole.shown(), cut.shown());
        }
    }
}
