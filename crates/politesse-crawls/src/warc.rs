//! Records of a WARC file: their headers, and the ends of their bodies.
//!
//! ISO 28500, versions 1.0 and 1.1; the drafts before them have the same format. Does not
//! know the contents of a body.

use std::io::{self, BufRead, Read};
use std::str::FromStr;

use jiff::Timestamp;
use thiserror::Error;

use super::gzip::is_damage;
use super::input::{LINE_BEGINS, RecordPlace, RecordSource, read_buffered};
use crate::text_of;

/// Longest header of a record, in bytes. It has room for a URL of eight times the length
/// that RFC 9110, section 4.1, recommends supporting.
const HEADER_BYTES_MAX: usize = 64 * 1024;
/// Largest number of `WARC-Concurrent-To` fields that are read per record.
const CONCURRENT_MAX: usize = 16;

/// Part of a WARC file that cannot be read as records.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("at byte {place}: {cause}")]
pub struct ArchiveDamage {
    /// Position in the file of the damaged record, or of the gzip member that holds it.
    pub place: u64,
    /// Cause.
    pub cause: DamageCause,
}

/// Reason why a record cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DamageCause {
    /// Something other than a record begins here.
    #[error("no WARC record begins here")]
    NotARecord,
    /// The header exceeds the limit.
    #[error("the header is longer than {HEADER_BYTES_MAX} bytes")]
    HeaderLength,
    /// `Content-Length` is missing or not a number.
    #[error("the record has no usable Content-Length")]
    ContentLength,
    /// The file ends within the record.
    #[error("the file ends within the record")]
    Cut,
    /// The compressed data is damaged.
    #[error("{0}")]
    Compression(String),
}

/// Reason why the next record is not returned.
#[derive(Debug, Error)]
pub enum ArchiveError {
    /// A record is damaged; reading can continue after it.
    #[error(transparent)]
    Damage(#[from] ArchiveDamage),
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] io::Error),
}

/// Type of a record (`WARC-Type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WarcKind {
    /// Description of the records that follow.
    Warcinfo,
    /// Request, as it was sent.
    Request,
    /// Response, as it was received.
    Response,
    /// Body of a response, without its head.
    Resource,
    /// Response whose body is stored elsewhere.
    Revisit,
    /// Any other type: `metadata`, `conversion`, `continuation`, and future ones.
    Other,
}

impl FromStr for WarcKind {
    type Err = std::convert::Infallible;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        let kinds = [
            ("warcinfo", Self::Warcinfo),
            ("request", Self::Request),
            ("response", Self::Response),
            ("resource", Self::Resource),
            ("revisit", Self::Revisit),
        ];
        let found = kinds
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(word));
        Ok(found.map_or(Self::Other, |(_, kind)| *kind))
    }
}

/// Header of a record, limited to the fields that are used here.
#[derive(Debug, Clone)]
pub struct RecordHeader {
    /// Position of the record in the file.
    pub place: u64,
    /// Type.
    pub kind: WarcKind,
    /// Time of the capture (`WARC-Date`), if valid.
    pub date: Option<Timestamp>,
    /// URL (`WARC-Target-URI`), without the `<>` that some writers add.
    pub target_uri: Option<String>,
    /// Identifier of the record.
    pub record_id: Option<String>,
    /// Identifiers of other records of the same exchange.
    pub concurrent_to: Vec<String>,
    /// URL of the record that holds the body of a `revisit`.
    pub refers_to_uri: Option<String>,
    /// Kind of a `revisit`.
    pub profile: Option<String>,
    /// Reason why the body is truncated (`WARC-Truncated`).
    pub truncated: Option<String>,
    /// Whether the body is the first of several segments.
    pub is_segmented: bool,
    /// Media type of the body of the record.
    pub content_type: Option<String>,
    /// Length of the body, in bytes.
    pub content_length: u64,
}

impl RecordHeader {
    /// Parses the header lines after the first; `None` without a length.
    fn parse(place: u64, lines: &str) -> Option<Self> {
        let mut header = Self {
            place,
            kind: WarcKind::Other,
            date: None,
            target_uri: None,
            record_id: None,
            concurrent_to: Vec::new(),
            refers_to_uri: None,
            profile: None,
            truncated: None,
            is_segmented: false,
            content_type: None,
            content_length: 0,
        };
        let mut length = None;
        for line in lines.lines() {
            // Malformed lines are ignored; the others count.
            let Some((name, value)) = line.split_once(':') else {
                continue;
            };
            match (name.trim().to_ascii_lowercase().as_str(), value.trim()) {
                ("content-length", value) => length = value.parse().ok(),
                (name, value) => header.set(name, value),
            }
        }
        header.content_length = length?;
        Some(header)
    }

    fn set(&mut self, name: &str, value: &str) {
        let text = || Some(value.to_owned());
        // By the grammar of version 1.0, URIs in a header are enclosed in `<>`. Most
        // writers omit them around the target.
        let uri = || {
            let inner = value
                .strip_prefix('<')
                .and_then(|uri| uri.strip_suffix('>'));
            Some(inner.unwrap_or(value).to_owned())
        };
        match name {
            "warc-type" => self.kind = value.parse().unwrap_or(WarcKind::Other),
            "warc-date" => self.date = date(value),
            "warc-target-uri" => self.target_uri = uri(),
            "warc-record-id" => self.record_id = uri(),
            "warc-concurrent-to" if self.concurrent_to.len() < CONCURRENT_MAX => {
                self.concurrent_to.extend(uri());
            }
            "warc-refers-to-target-uri" => self.refers_to_uri = uri(),
            "warc-profile" => self.profile = uri(),
            "warc-truncated" => self.truncated = text(),
            "warc-segment-number" => self.is_segmented = true,
            "content-type" => self.content_type = text(),
            _ => {}
        }
    }
}

/// Parses a `WARC-Date`: W3C date and time, in UTC. Version 1.0 has seconds, version 1.1
/// any fraction; some writers omit the `Z`.
fn date(text: &str) -> Option<Timestamp> {
    let parsed = text.parse().ok();
    parsed.or_else(|| format!("{text}Z").parse().ok())
}

/// Reader for the records of a WARC file.
pub struct WarcReader<S> {
    source: S,
    /// Position of the current record.
    place: u64,
    /// Unread bytes of its body.
    body_left: u64,
    is_damaged: bool,
    header: Vec<u8>,
}

impl<S: RecordSource> WarcReader<S> {
    /// Reads the records of `source`, which begins with a record.
    pub fn new(source: S) -> Self {
        Self {
            source,
            place: 0,
            body_left: 0,
            is_damaged: false,
            header: Vec::new(),
        }
    }

    /// Returns the position of the next record; `None` at the end of the file.
    ///
    /// # Errors
    ///
    /// As [`next_header`](Self::next_header).
    pub fn next_place(&mut self) -> Result<Option<RecordPlace>, ArchiveError> {
        self.skip_body()?;
        if self.is_damaged {
            self.is_damaged = false;
            if !self.source.recover()? {
                return Ok(None);
            }
        }
        loop {
            match self.source.fill_buf() {
                Ok([]) => return Ok(None),
                // Two line ends follow each record; some writers add more.
                Ok([b'\r' | b'\n', ..]) => self.source.consume(1),
                Ok(_) => break,
                Err(error) => {
                    self.place = self.source.begin_record().byte;
                    return Err(self.error(error));
                }
            }
        }
        let place = self.source.begin_record();
        self.place = place.byte;
        Ok(Some(place))
    }

    /// Reads the header of the next record; `None` at the end of the file. The rest of
    /// the previous body is skipped.
    ///
    /// # Errors
    ///
    /// [`ArchiveError::Damage`] if the record is damaged; the next call continues with
    /// the next record that can be found. [`ArchiveError::File`] if the file cannot be
    /// read.
    pub fn next_header(&mut self) -> Result<Option<RecordHeader>, ArchiveError> {
        if self.next_place()?.is_none() {
            return Ok(None);
        }
        self.header.clear();
        if !self.append_line()?.starts_with(LINE_BEGINS) {
            return Err(self.damage(DamageCause::NotARecord));
        }
        self.header.clear();
        while !self.append_line()?.trim_ascii().is_empty() {
            if HEADER_BYTES_MAX < self.header.len() {
                return Err(self.damage(DamageCause::HeaderLength));
            }
        }
        // ISO 28500 requires UTF-8, but crawlers copy URLs unchanged.
        let lines = text_of(&self.header);
        let Some(header) = RecordHeader::parse(self.place, &lines) else {
            return Err(self.damage(DamageCause::ContentLength));
        };
        self.body_left = header.content_length;
        Ok(Some(header))
    }

    /// Appends a line to the header and returns it, truncated at the limit of the header.
    /// A continuation line is joined to the previous one.
    fn append_line(&mut self) -> Result<&[u8], ArchiveError> {
        let begin = self.header.len();
        let limit = (HEADER_BYTES_MAX + 1).saturating_sub(begin) as u64;
        let mut line = Read::take(&mut self.source, limit);
        match line.read_until(b'\n', &mut self.header) {
            Ok(0) if limit != 0 => return Err(self.damage(DamageCause::Cut)),
            Ok(_) => {}
            Err(error) => return Err(self.error(error)),
        }
        let continues = matches!(self.header.get(begin), Some(b' ' | b'\t'));
        if continues && 0 < begin && !self.header[begin..].trim_ascii().is_empty() {
            for end in &mut self.header[begin.saturating_sub(2)..begin] {
                if matches!(*end, b'\r' | b'\n') {
                    *end = b' ';
                }
            }
        }
        Ok(&self.header[begin..])
    }

    /// Returns the rest of the record's body.
    pub fn body(&mut self) -> RecordBody<'_, S> {
        RecordBody(self)
    }

    /// Skips the rest of the body. Damage in it is detected here.
    ///
    /// # Errors
    ///
    /// As [`next_header`](Self::next_header).
    pub fn skip_body(&mut self) -> Result<(), ArchiveError> {
        loop {
            let read = self.body().fill_buf().map(<[u8]>::len);
            match read {
                Ok(0) => return Ok(()),
                Ok(bytes) => self.body().consume(bytes),
                Err(error) => return Err(self.error(error)),
            }
        }
    }

    /// Converts an error of reading the body to one of the record.
    pub(crate) fn error(&mut self, error: io::Error) -> ArchiveError {
        if !is_damage(&error) {
            return error.into();
        }
        let is_cut = error.kind() == io::ErrorKind::UnexpectedEof;
        self.damage(if is_cut {
            DamageCause::Cut
        } else {
            DamageCause::Compression(error.to_string())
        })
    }

    fn damage(&mut self, cause: DamageCause) -> ArchiveError {
        self.is_damaged = true;
        self.body_left = 0;
        let place = self.place;
        ArchiveDamage { place, cause }.into()
    }
}

/// Body of a record.
pub struct RecordBody<'a, S>(&'a mut WarcReader<S>);

impl<S: RecordSource> Read for RecordBody<'_, S> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        read_buffered(self, out)
    }
}

impl<S: RecordSource> BufRead for RecordBody<'_, S> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.0.body_left == 0 {
            return Ok(&[]);
        }
        let bytes = self.0.source.fill_buf()?;
        // Without this check, the end of the file would count as the end of the body.
        if bytes.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let left = usize::try_from(self.0.body_left).unwrap_or(usize::MAX);
        Ok(&bytes[..bytes.len().min(left)])
    }

    fn consume(&mut self, bytes: usize) {
        self.0.source.consume(bytes);
        self.0.body_left = self.0.body_left.saturating_sub(bytes as u64);
    }
}
