//! Checks that a WARC file of any bytes reads the same in pieces of any size, that
//! reading it from a later member on gives the same messages, and that the time grows
//! in proportion to the bytes.
//!
//! The first byte of an input chooses a plain file, the gzip members that the rest
//! already contains, or members made from the rest by cutting it at each byte 0xff. The
//! second byte is the size of the pieces.

#![no_main]

use std::io::{Cursor, Read, Write as _};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use libfuzzer_sys::{Corpus, fuzz_target};
use politesse_crawls::{
    ArchiveError, ArchiveReader, GzipMembers, PlainFile, RecordSource, find_record_member,
};
use politesse_fuzz::time::{BOUND, within};

/// Longest robots.txt and page that are read, in bytes.
const BODY_BYTES_MAX: usize = 500;
/// Nanoseconds for each byte read, which may inflate up to a thousandfold.
const NANOS: u64 = 20_000;

fuzz_target!(|input: &[u8]| -> Corpus {
    let [form, piece, rest @ ..] = input else {
        return Corpus::Reject;
    };
    let bytes = match form % 3 {
        2 => rest.split(|byte| *byte == 0xff).flat_map(member).collect(),
        _ => rest.to_vec(),
    };
    let read = |place: usize, length: usize| {
        let input = Pieces {
            bytes: Cursor::new(&bytes[place..]),
            length,
        };
        match form % 3 {
            0 => contents(PlainFile::new(input), place),
            _ => contents(GzipMembers::new(input, place as u64), 0),
        }
    };
    let bound = BOUND + Duration::from_nanos(NANOS * bytes.len() as u64);
    let whole = within(bound, || read(0, usize::MAX));
    assert!(whole.len() <= 1000 * bytes.len() + 1);
    assert_eq!(read(0, usize::from(*piece) + 1), whole);
    // Reading from a member on gives what the whole file gives from there.
    let sound = whole.iter().all(|item| !item.is_damage);
    for (number, item) in whole.iter().enumerate().filter(|_| sound && form % 3 != 0) {
        if item.is_first {
            assert_eq!(read(item.place, usize::MAX), whole[number..]);
        }
    }
    let _ = find_record_member(&bytes, bytes.len());
    Corpus::Keep
});

/// Message or damage in an archive.
#[derive(Debug, PartialEq, Eq)]
struct Item {
    place: usize,
    text: String,
    is_damage: bool,
    /// Whether it is the first record of its member.
    is_first: bool,
}

fn contents(source: impl RecordSource, base: usize) -> Vec<Item> {
    let mut reader = ArchiveReader::new(source, BODY_BYTES_MAX).reading_pages(Some(BODY_BYTES_MAX));
    let mut items = Vec::new();
    loop {
        let place = match reader.next_place() {
            Ok(None) => return items,
            Ok(Some(place)) => Some(place),
            Err(error) => {
                items.push(damage(error, base));
                None
            }
        };
        let Some(place) = place else { continue };
        match reader.message() {
            Ok(None) => {}
            Ok(Some(message)) => items.push(Item {
                place: place.byte as usize + base,
                text: format!("{:?} {} {:?}", message.at, message.url, message.side),
                is_damage: false,
                is_first: place.is_first,
            }),
            Err(error) => items.push(damage(error, base)),
        }
    }
}

fn damage(error: ArchiveError, base: usize) -> Item {
    let ArchiveError::Damage(damage) = error else {
        panic!("{error}");
    };
    Item {
        place: damage.place as usize + base,
        text: damage.cause.to_string(),
        is_damage: true,
        is_first: false,
    }
}

fn member(bytes: &[u8]) -> Vec<u8> {
    let mut member = GzEncoder::new(Vec::new(), Compression::fast());
    member.write_all(bytes).unwrap();
    member.finish().unwrap()
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
