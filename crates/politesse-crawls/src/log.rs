//! Requests in the logs of web servers, proxies and crawlers, line by line.
//!
//! Apache's Common and Combined Log Format (also of nginx, with a virtual host
//! before them or absolute URLs), Scrapy's log, Heritrix's `crawl.log`. Does not
//! know which site a server's log is of.

use std::io::{self, BufRead, Read};
use std::str::FromStr;

use thiserror::Error;

pub use self::entry::{CrawlLogEntry, LoggedAgent, LoggedRequest, LoggedUrl};

mod crawlers;
mod entry;
mod server;

/// Longest line that is read, in bytes.
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// Form of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrawlLogFormat {
    /// Common or Combined Log Format.
    Server,
    /// Scrapy's log.
    Scrapy,
    /// Heritrix's `crawl.log`.
    Heritrix,
}

/// Word that names no form of a log.
#[derive(Debug, Error)]
#[error("no form of a log is called {0:?}: one of common, combined, scrapy, heritrix")]
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
    const ALL: [Self; 3] = [Self::Heritrix, Self::Server, Self::Scrapy];

    /// Reads a line.
    fn entry(self, line: &str) -> CrawlLogEntry {
        match self {
            Self::Server => server::entry(line),
            Self::Scrapy => crawlers::scrapy(line),
            Self::Heritrix => crawlers::heritrix(line),
        }
    }
}

/// Reader of the lines of a log.
pub struct CrawlLogReader<R> {
    input: R,
    format: Option<CrawlLogFormat>,
    line: Vec<u8>,
    number: u64,
}

impl<R: BufRead> CrawlLogReader<R> {
    /// Reads the lines of `input` by `format`, or by the first form that a line
    /// with a request has.
    pub fn new(input: R, format: Option<CrawlLogFormat>) -> Self {
        Self {
            input,
            format,
            line: Vec::new(),
            number: 0,
        }
    }

    /// Returns the number of the last line, from 1.
    pub fn line_number(&self) -> u64 {
        self.number
    }

    /// Returns the form of the log, if it is known by now.
    pub fn format(&self) -> Option<CrawlLogFormat> {
        self.format
    }

    /// Reads the next line; `None` at the end. Bytes that are no UTF-8 are
    /// replaced.
    ///
    /// # Errors
    ///
    /// Those of `input`.
    pub fn next_entry(&mut self) -> io::Result<Option<CrawlLogEntry>> {
        self.line.clear();
        let mut line = Read::take(&mut self.input, LINE_BYTES_MAX);
        if line.read_until(b'\n', &mut self.line)? == 0 {
            return Ok(None);
        }
        self.number += 1;
        if self.line.last() != Some(&b'\n') {
            let rest = self.input.skip_until(b'\n')?;
            // A line that was cut may have any URL.
            if 0 < rest {
                return Ok(Some(CrawlLogEntry::Malformed));
            }
        }
        let line_text = String::from_utf8_lossy(&self.line);
        let text = line_text.trim_end_matches(['\n', '\r']);
        if text.trim().is_empty() {
            return Ok(Some(CrawlLogEntry::Other));
        }
        if let Some(format) = self.format {
            return Ok(Some(format.entry(text)));
        }
        let entries = CrawlLogFormat::ALL.map(|format| (format, format.entry(text)));
        let known = entries.into_iter().find(|(_, entry)| {
            matches!(entry, CrawlLogEntry::Request(_) | CrawlLogEntry::Crawler(_))
        });
        // A log of Scrapy begins with lines that could be of anything.
        let Some((format, entry)) = known else {
            return Ok(Some(CrawlLogEntry::Other));
        };
        self.format = Some(format);
        Ok(Some(entry))
    }
}
