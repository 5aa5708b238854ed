//! Messages of a crawl in the records of a WARC file: requests, responses, and the
//! answers to fetches of robots.txt.
//!
//! Does not know which messages belong together, nor what a robots.txt says.

use std::io::{BufRead, Read};

use http::HeaderMap;
use jiff::Timestamp;

use super::http_head::{HttpHead, UnframedBody, status};
use super::input::{RecordPlace, RecordSource};
use super::warc::{ArchiveError, RecordHeader, WarcKind, WarcReader};

/// Longest User-Agent that is stored, in bytes. Product tokens are at its beginning.
const USER_AGENT_BYTES_MAX: usize = 1024;
/// Longest `warcinfo` that is read, in bytes.
const WARCINFO_BYTES_MAX: u64 = 64 * 1024;
/// Longest first line of a response that is read, in bytes.
const STATUS_LINE_BYTES_MAX: u64 = 1024;

/// Message that a crawl sent or received, or the description of its crawler.
#[derive(Debug)]
pub struct ArchivedMessage {
    /// Position of the record in the file, or of the gzip member that holds it.
    pub place: u64,
    /// Time of the capture; `None` if the record has no usable date.
    pub at: Option<Timestamp>,
    /// URL of the message.
    pub url: String,
    /// Identifier of the record.
    pub id: Option<String>,
    /// Identifiers of other records of the same exchange.
    pub concurrent_to: Vec<String>,
    /// Side of the exchange, with its contents.
    pub side: MessageSide,
}

/// Side of an exchange.
#[derive(Debug, PartialEq, Eq)]
pub enum MessageSide {
    /// Request.
    Request {
        /// `User-Agent` field, if there was one.
        user_agent: Option<String>,
    },
    /// Response, or the stored part of it.
    Response {
        /// Status; `None` if only the body is stored.
        status: Option<u16>,
        /// Whole answer, if the URL is one of the wanted ones.
        robots: Option<Box<ArchivedAnswer>>,
        /// Beginning of any other answer, if pages are read.
        page: Option<Box<ArchivedAnswer>>,
    },
    /// `warcinfo` record, which may name the crawler of the records after it. The URL is
    /// empty.
    Crawler {
        /// `User-Agent` of all its requests.
        user_agent: Option<String>,
    },
}

/// Answer with its body, to a fetch of a robots.txt or a page.
#[derive(Debug, PartialEq, Eq)]
pub struct ArchivedAnswer {
    /// Header fields of the response; empty if only the body is stored.
    pub fields: HeaderMap,
    /// Body without its transfer coding, but still with its content coding.
    pub body: Vec<u8>,
    /// How the body ends.
    pub end: BodyEnd,
}

/// End of a body in an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyEnd {
    /// The archive contains the whole body.
    Whole,
    /// The archive contains only the beginning: a limit cut the body.
    Long,
    /// The connection broke before the end of the body.
    Broken,
    /// The body is stored in an earlier record (`revisit`).
    Elsewhere,
}

/// Predicate that selects the URLs whose whole answers are wanted.
pub type MessageWanted<'a> = &'a (dyn Fn(&str) -> bool + Sync);

/// Reader for the messages of a WARC file.
pub struct ArchiveReader<'a, S> {
    records: WarcReader<S>,
    is_wanted: MessageWanted<'a>,
    body_bytes_max: usize,
    page_bytes_max: Option<usize>,
}

fn is_robots_txt(url: &str) -> bool {
    url.ends_with("/robots.txt")
}

impl<'a, S: RecordSource> ArchiveReader<'a, S> {
    /// Reads the messages of `source`, which begins with a record. Of a robots.txt longer
    /// than `body_bytes_max`, only the beginning is read.
    pub fn new(source: S, body_bytes_max: usize) -> Self {
        Self {
            records: WarcReader::new(source),
            is_wanted: &is_robots_txt,
            body_bytes_max,
            page_bytes_max: None,
        }
    }

    /// Sets the URLs whose responses are read whole. The default is all URLs that end in
    /// `/robots.txt`.
    #[must_use]
    pub fn wanting(self, is_wanted: MessageWanted<'a>) -> Self {
        Self { is_wanted, ..self }
    }

    /// Sets approximately how many bytes of every other response are read, in addition to
    /// its framing. By default only its status is read.
    #[must_use]
    pub fn reading_pages(self, page_bytes_max: Option<usize>) -> Self {
        Self {
            page_bytes_max,
            ..self
        }
    }

    /// Returns the position of the next record; `None` at the end.
    ///
    /// # Errors
    ///
    /// As [`next_message`](Self::next_message).
    pub fn next_place(&mut self) -> Result<Option<RecordPlace>, ArchiveError> {
        self.records.next_place()
    }

    /// Reads the next record. `None` if it is not an HTTP message.
    ///
    /// # Errors
    ///
    /// [`ArchiveError::Damage`] if any part of the record is damaged; the next call
    /// continues after it. [`ArchiveError::File`] if the file cannot be read.
    pub fn message(&mut self) -> Result<Option<ArchivedMessage>, ArchiveError> {
        let Some(header) = self.records.next_header()? else {
            return Ok(None);
        };
        let side = self.side(&header)?;
        // Only after this is the whole record known to be intact.
        self.records.skip_body()?;
        Ok(side.map(|side| ArchivedMessage {
            place: header.place,
            at: header.date,
            url: header.target_uri.unwrap_or_default(),
            id: header.record_id,
            concurrent_to: header.concurrent_to,
            side,
        }))
    }

    /// Reads up to the next HTTP message; `None` at the end of the file.
    ///
    /// # Errors
    ///
    /// As [`message`](Self::message).
    pub fn next_message(&mut self) -> Result<Option<ArchivedMessage>, ArchiveError> {
        while self.next_place()?.is_some() {
            if let Some(message) = self.message()? {
                return Ok(Some(message));
            }
        }
        Ok(None)
    }

    fn side(&mut self, header: &RecordHeader) -> Result<Option<MessageSide>, ArchiveError> {
        if header.kind == WarcKind::Warcinfo {
            let user_agent = self.crawler()?;
            return Ok(Some(MessageSide::Crawler { user_agent }));
        }
        let url = header.target_uri.as_deref().unwrap_or_default();
        if !is_http(url) {
            return Ok(None);
        }
        // Of all other responses only the status is read, so a page costs little more
        // than its decompression.
        let is_wanted = (self.is_wanted)(url);
        Ok(match header.kind {
            WarcKind::Request => {
                let head = self.head()?;
                let user_agent = head.user_agent().map(cut_user_agent);
                Some(MessageSide::Request { user_agent })
            }
            WarcKind::Resource | WarcKind::Response | WarcKind::Revisit if is_wanted => {
                let (status, robots) = self.answer(header, self.body_bytes_max)?;
                Some(MessageSide::Response {
                    status,
                    robots: Some(robots),
                    page: None,
                })
            }
            WarcKind::Resource | WarcKind::Response | WarcKind::Revisit
                if let Some(limit) = self.page_bytes_max =>
            {
                let (status, page) = self.answer(header, limit)?;
                Some(MessageSide::Response {
                    status,
                    robots: None,
                    page: Some(page),
                })
            }
            WarcKind::Response | WarcKind::Revisit => Some(MessageSide::Response {
                status: self.status()?,
                robots: None,
                page: None,
            }),
            WarcKind::Resource => Some(MessageSide::Response {
                status: None,
                robots: None,
                page: None,
            }),
            WarcKind::Warcinfo | WarcKind::Other => None,
        })
    }

    /// Reads the name of the crawler from a `warcinfo` record (ISO 28500, section 6.2).
    fn crawler(&mut self) -> Result<Option<String>, ArchiveError> {
        let text = self.read_body(WARCINFO_BYTES_MAX)?;
        let fields = String::from_utf8_lossy(&text);
        let agent = fields.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            let is_agent = name.trim().eq_ignore_ascii_case("http-header-user-agent");
            // An empty value names no crawler.
            (is_agent && !value.trim().is_empty()).then(|| value.trim().to_owned())
        });
        Ok(agent.map(cut_user_agent))
    }

    fn head(&mut self) -> Result<HttpHead, ArchiveError> {
        let head = HttpHead::read(&mut self.records.body());
        head.map_err(|error| self.records.error(error))
    }

    fn status(&mut self) -> Result<Option<u16>, ArchiveError> {
        let mut line = Vec::new();
        let body = self.records.body();
        let read = Read::take(body, STATUS_LINE_BYTES_MAX).read_until(b'\n', &mut line);
        read.map_err(|error| self.records.error(error))?;
        Ok(status(&line))
    }

    /// Reads an answer with about `body_bytes_max` of its body, and its status.
    fn answer(
        &mut self,
        header: &RecordHeader,
        body_bytes_max: usize,
    ) -> Result<(Option<u16>, Box<ArchivedAnswer>), ArchiveError> {
        let has_head = header.kind != WarcKind::Resource;
        let head = if has_head {
            self.head()?
        } else {
            HttpHead::default()
        };
        // Leaves room for chunked framing: half as much again is more than any server
        // adds.
        let limit = (body_bytes_max + body_bytes_max / 2) as u64;
        let framed = self.read_body(limit.saturating_add(1))?;
        let is_long = limit < framed.len() as u64;
        let UnframedBody { bytes, is_whole } = head.unframe(framed);
        let end = if header.kind == WarcKind::Revisit {
            BodyEnd::Elsewhere
        } else {
            match header.truncated.as_deref() {
                Some("length") => BodyEnd::Long,
                None if is_long || header.is_segmented => BodyEnd::Long,
                None if is_whole => BodyEnd::Whole,
                Some(_) | None => BodyEnd::Broken,
            }
        };
        // Crawlers store a body without a head (`resource`) only after a success.
        let status = if has_head { head.status() } else { Some(200) };
        let answer = ArchivedAnswer {
            fields: head.fields,
            body: bytes,
            end,
        };
        Ok((status, Box::new(answer)))
    }

    fn read_body(&mut self, limit: u64) -> Result<Vec<u8>, ArchiveError> {
        let mut bytes = Vec::new();
        let read = Read::take(self.records.body(), limit).read_to_end(&mut bytes);
        match read {
            Ok(_) => Ok(bytes),
            Err(error) => Err(self.records.error(error)),
        }
    }
}

/// Returns whether a URL is an HTTP URL. Archives also hold DNS lookups and notes of the
/// crawler.
fn is_http(url: &str) -> bool {
    let scheme = url.split("://").next().unwrap_or_default();
    scheme.len() < url.len()
        && (scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https"))
}

fn cut_user_agent(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(USER_AGENT_BYTES_MAX));
    text
}
