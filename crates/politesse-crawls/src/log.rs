//! Reader for the requests in logs of web servers, proxies and crawlers.
//!
//! Formats: the Common and Combined Log Format of Apache and nginx, with or without a
//! virtual host before the client; Scrapy's log; Heritrix's `crawl.log`. Does not know
//! the site of a server whose log names no host.

use std::io::{self, BufRead, Read};
use std::str::FromStr;

use thiserror::Error;

use crate::text_of;

pub use self::entry::{CrawlLogEntry, LoggedAgent, LoggedRequest, LoggedUrl};

mod crawlers;
mod entry;
mod server;

/// Longest line that is read, in bytes.
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// Format of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrawlLogFormat {
    /// Common or Combined Log Format (`common`, `combined`).
    Server,
    /// Scrapy's log.
    Scrapy,
    /// Heritrix's `crawl.log`.
    Heritrix,
}

/// Name of a log format that does not exist.
#[derive(Debug, Error)]
#[error("unknown log format {0:?}: expected common, combined, scrapy or heritrix")]
pub struct UnknownCrawlLogFormat(String);

impl FromStr for CrawlLogFormat {
    type Err = UnknownCrawlLogFormat;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        match word {
            "common" | "combined" => Ok(Self::Server),
            "scrapy" => Ok(Self::Scrapy),
            "heritrix" => Ok(Self::Heritrix),
            _ => Err(UnknownCrawlLogFormat(word.to_owned())),
        }
    }
}

impl CrawlLogFormat {
    /// All formats, the strictest first: Scrapy's log may contain any text.
    const ALL: [Self; 3] = [Self::Heritrix, Self::Server, Self::Scrapy];

    /// Parses a line.
    fn entry(self, line: &str) -> CrawlLogEntry {
        match self {
            Self::Server => server::entry(line),
            Self::Scrapy => crawlers::scrapy(line),
            Self::Heritrix => crawlers::heritrix(line),
        }
    }
}

/// Largest number of unread line numbers that are remembered.
const UNREAD_PLACES_MAX: usize = 20;

/// Unread lines before the first one with a recognised format.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnreadBefore {
    /// Number of lines that the format cannot parse.
    pub count: u64,
    /// Numbers of the first of these lines.
    pub places: Vec<u64>,
}

impl UnreadBefore {
    fn add(&mut self, place: u64) {
        self.count += 1;
        if self.places.len() < UNREAD_PLACES_MAX {
            self.places.push(place);
        }
    }
}

/// Reader for the lines of a log.
pub struct CrawlLogReader<R> {
    input: R,
    /// Format as given or detected; `None` until it is detected.
    format: Option<CrawlLogFormat>,
    /// Buffer for one line.
    line: Vec<u8>,
    number: u64,
    /// Lines so far that each of [`CrawlLogFormat::ALL`] cannot parse.
    unread: [UnreadBefore; CrawlLogFormat::ALL.len()],
}

impl<R: BufRead> CrawlLogReader<R> {
    /// Creates a reader for a log in `format`. Without one, the format is detected from
    /// the first line with a request.
    pub fn new(input: R, format: Option<CrawlLogFormat>) -> Self {
        Self {
            input,
            format,
            line: Vec::new(),
            number: 0,
            unread: Default::default(),
        }
    }

    /// Returns the number of the latest line that was read; the first line is 1.
    pub fn line_number(&self) -> u64 {
        self.number
    }

    /// Returns the format if it was given or has been detected.
    pub fn format(&self) -> Option<CrawlLogFormat> {
        self.format
    }

    /// Takes the lines before the format was detected that it cannot parse. `None` if the
    /// format is unknown so far, or could parse all lines.
    pub fn take_unread_before(&mut self) -> Option<UnreadBefore> {
        let detected = CrawlLogFormat::ALL
            .iter()
            .position(|format| Some(*format) == self.format)?;
        let unread = std::mem::take(&mut self.unread[detected]);
        (0 < unread.count).then_some(unread)
    }

    /// Reads the next line; `None` at the end of the log.
    ///
    /// Bytes that are not UTF-8 are read as URL escapes. A line longer than 64 KiB is
    /// [`CrawlLogEntry::Malformed`], an empty one [`CrawlLogEntry::Other`].
    ///
    /// # Errors
    ///
    /// Any error of reading `input`.
    pub fn next_entry(&mut self) -> io::Result<Option<CrawlLogEntry>> {
        self.line.clear();
        let mut line = Read::take(&mut self.input, LINE_BYTES_MAX);
        if line.read_until(b'\n', &mut self.line)? == 0 {
            return Ok(None);
        }
        self.number += 1;
        if self.line.last() != Some(&b'\n') {
            let rest = self.input.skip_until(b'\n')?;
            // The line is truncated, and so may be its URL: a truncated URL was never
            // requested.
            if 0 < rest {
                return Ok(Some(CrawlLogEntry::Malformed));
            }
        }
        let line_text = text_of(&self.line);
        let text = line_text.trim_end_matches(['\n', '\r']);
        if text.trim().is_empty() {
            return Ok(Some(CrawlLogEntry::Other));
        }
        if let Some(format) = self.format {
            return Ok(Some(format.entry(text)));
        }
        let entries = CrawlLogFormat::ALL.map(|format| (format, format.entry(text)));
        for ((_, entry), unread) in entries.iter().zip(&mut self.unread) {
            if matches!(entry, CrawlLogEntry::Malformed) {
                unread.add(self.number);
            }
        }
        let known = entries.into_iter().find(|(_, entry)| {
            matches!(entry, CrawlLogEntry::Request(_) | CrawlLogEntry::Crawler(_))
        });
        // Scrapy's log begins with lines that do not identify its format.
        let Some((format, entry)) = known else {
            return Ok(Some(CrawlLogEntry::Other));
        };
        self.format = Some(format);
        Ok(Some(entry))
    }
}
