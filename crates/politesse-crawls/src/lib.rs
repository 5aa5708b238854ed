//! Requests of past crawls, read from WARC files and from logs.
//!
//! # The parts
//!
//! - [`PlainFile`] and [`GzipMembers`] read the bytes of a file and track where each
//!   record begins.
//! - [`WarcReader`] finds the records of a WARC file (ISO 28500, 1.0 and 1.1) and
//!   continues after a damaged one.
//! - [`ArchiveReader`] reads the messages of a crawl from these records: requests,
//!   responses, robots.txt files, the crawler's name, and optionally pages.
//! - [`CrawlLogReader`] reads the lines of a log: Common and Combined Log Format,
//!   Scrapy's log, and Heritrix's `crawl.log`.
//!
//! # Not here
//!
//! This crate opens no file, interprets no robots.txt, judges nothing, and reads no
//! clock. It does not decode the content codings of a body.
//!
//! Files may be hostile: every line, header and body has a size limit, nothing panics,
//! and the time is linear in the number of bytes.

use std::borrow::Cow;
use std::fmt::Write as _;

mod archive;
mod gzip;
mod http_head;
mod input;
mod log;
mod warc;

pub use archive::{
    ArchiveReader, ArchivedAnswer, ArchivedMessage, BodyEnd, MessageSide, MessageWanted,
};
pub use gzip::{GzipMembers, MEMBER_BYTES_SEEN, find_record_member};
pub use input::{PlainFile, RecordPlace, RecordSource};
pub use log::{
    CrawlLogEntry, CrawlLogFormat, CrawlLogReader, LoggedAgent, LoggedRequest, LoggedUrl,
    UnknownCrawlLogFormat, UnreadBefore,
};
pub use warc::{
    ArchiveDamage, ArchiveError, DamageCause, RecordBody, RecordHeader, WarcKind, WarcReader,
};

/// Converts text from a crawl to UTF-8. Bytes that are not UTF-8 become URL escapes
/// (`%E4`, RFC 3986, section 2.1): such a URL was sent in that form, and rules match it.
fn text_of(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = str::from_utf8(bytes) {
        return text.into();
    }
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            // Writing to a string cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text.into()
}
