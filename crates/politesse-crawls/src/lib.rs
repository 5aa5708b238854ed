//! Requests of past crawls, read from WARC files and from logs.
//!
//! # The parts
//!
//! - [`PlainFile`] and [`GzipMembers`] read the bytes of a file, and know where in it
//!   each record begins.
//! - [`WarcReader`] finds the records of a WARC file (ISO 28500, 1.0 and 1.1),
//!   and goes on after a damaged one.
//! - [`ArchiveReader`] reads the messages of a crawl from these records: requests,
//!   responses, robots.txt files, the crawler's name, and pages if they are asked for.
//! - [`CrawlLogReader`] reads the lines of a log: Common and Combined Log Format,
//!   Scrapy's log and Heritrix's `crawl.log`.
//!
//! # Not here
//!
//! No file is opened, no robots.txt is interpreted, nothing is judged, and no
//! clock is read. Content codings of a body stay as they are.
//!
//! Files may be hostile: every line, header and body has a bound, nothing panics, and
//! the time is linear in the bytes.

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

/// Reads text that a crawl has left. Of a byte that is no UTF-8 the escape of URLs is read
/// (`%E4`, RFC 3986, section 2.1): as such a URL was sent, and rules fit it.
fn text_of(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = str::from_utf8(bytes) {
        return text.into();
    }
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            // A string takes everything.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text.into()
}
