//! A WARC file (version 1.1, ISO 28500) of decisions and of the robots.txt that they
//! are based on.
//!
//! Each robots.txt is a `response` record, with a `metadata` record that describes its
//! fetch; each decision is a `metadata` record that refers to it. The audit record has
//! the status and the file, not the header fields of a response, so the head of each
//! response contains only known facts.
//!
//! Does not know how decisions are selected.

use std::collections::HashSet;
use std::fmt::{self, Write as _};
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use http::StatusCode;
use jiff::Timestamp;
use serde_json::Value;

use politesse_base::clock;
use politesse_base::inert::{append_json, inert};
use politesse_decision::digest::{CanonicalBytes, Digest};
use politesse_decision::record::{RecordedSnapshot, StoredRecord};
use politesse_record::reader::AuditReader;

/// Media type of named fields, line by line (WARC 1.1, section 6.2).
const FIELDS: &str = "application/warc-fields";

/// Media type of a response with its head.
const RESPONSE: &str = "application/http;msgtype=response";

/// Compression of the records of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WarcCompression {
    /// Uncompressed records.
    Plain,
    /// One gzip member per record, so that each can be read alone (WARC 1.1, annex D).
    GzipByRecord,
}

/// WARC file that is being written.
#[derive(Debug)]
pub(super) struct WarcExport<'a, W> {
    out: &'a mut W,
    compression: WarcCompression,
    /// Id of the audit record.
    record: &'a str,
    /// Id of the first record, which describes the file.
    info: WarcRecordId,
    /// Snapshots that already have a record.
    snapshots: HashSet<WarcRecordId>,
}

/// Id of a WARC record. Exporting the same data again gives the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct WarcRecordId([u8; 16]);

impl WarcRecordId {
    /// Makes the id for the data that `digest` covers.
    fn of(digest: Digest) -> Self {
        let mut bytes = [0; 16];
        let (head, _) = digest.as_bytes().split_at(bytes.len());
        bytes.copy_from_slice(head);
        // RFC 9562, section 5.8: version 8 leaves all bits to us, except version and
        // variant.
        bytes[6] = bytes[6] & 0x0f | 0x80;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Self(bytes)
    }
}

impl fmt::Display for WarcRecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<urn:uuid:")?;
        for (at, byte) in self.0.iter().enumerate() {
            let dash = if [4, 6, 8, 10].contains(&at) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        f.write_str(">")
    }
}

/// Header of a WARC record, without the fields about its block.
struct WarcHeader {
    kind: &'static str,
    id: WarcRecordId,
    at: Timestamp,
    content_type: &'static str,
    /// Further fields, one per line.
    fields: String,
}

impl<'a, W: Write> WarcExport<'a, W> {
    /// Begins a file of decisions of the audit record `record`.
    ///
    /// # Errors
    ///
    /// An error of `out`.
    pub(super) fn begin(
        out: &'a mut W,
        compression: WarcCompression,
        record: &'a str,
    ) -> io::Result<Self> {
        let now = clock::now();
        let mut bytes = CanonicalBytes::new();
        bytes.begin(b"warcinfo");
        bytes.text(record);
        bytes.time(now);
        let mut file = Self {
            out,
            compression,
            record,
            info: WarcRecordId::of(Digest::of(bytes.as_bytes())),
            snapshots: HashSet::new(),
        };
        let block = format!(
            "software: politesse/{}\r\nformat: WARC File Format 1.1\r\nconformsTo: \
             http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/\r\n\
             description: decisions of the audit record {record}, and the robots.txt that they \
             rest on\r\nrobots: RFC 9309; what was decided about each request, and whether it was \
             enforced, is in its metadata record\r\n",
            env!("CARGO_PKG_VERSION"),
        );
        let header = WarcHeader {
            kind: "warcinfo",
            id: file.info,
            at: now,
            content_type: FIELDS,
            fields: String::new(),
        };
        file.write(&header, &[block.as_bytes()])?;
        Ok(file)
    }

    /// Writes a decision, whose object is `json`, preceded by its robots.txt if the
    /// file does not have that yet.
    ///
    /// # Errors
    ///
    /// An error of the file, or of reading the robots.txt.
    pub(super) fn decision(
        &mut self,
        reader: &AuditReader,
        decision: &StoredRecord,
        json: &Value,
    ) -> anyhow::Result<()> {
        let mut fields = String::new();
        if let Some(snapshot) = &decision.snapshot {
            let id = self.snapshot(reader, snapshot)?;
            write!(fields, "WARC-Refers-To: {id}\r\n")?;
        }
        let uri = uri(&decision.url);
        write!(fields, "WARC-Target-URI: {uri}\r\n")?;
        let header = WarcHeader {
            kind: "metadata",
            id: self.id_of("decision", |bytes| bytes.number(decision.seq)),
            at: decision.at,
            content_type: "application/json",
            fields,
        };
        let mut block = Vec::new();
        append_json(&mut block, json)?;
        Ok(self.write(&header, &[&block])?)
    }

    /// Writes the records of a snapshot, unless the file has them. Returns the id of
    /// the record that decisions refer to.
    fn snapshot(
        &mut self,
        reader: &AuditReader,
        snapshot: &RecordedSnapshot,
    ) -> anyhow::Result<WarcRecordId> {
        let response = self.snapshot_id("response", snapshot);
        let metadata = self.snapshot_id("snapshot", snapshot);
        // Without a response there is only the proxy's own report.
        let referred = snapshot.status.map_or(metadata, |_| response);
        if !self.snapshots.insert(referred) {
            return Ok(referred);
        }
        let uri = uri(&snapshot.url);
        let mut fields = format!("WARC-Target-URI: {uri}\r\n");
        if let Some(status) = snapshot.status {
            let body = match snapshot.sha256 {
                Some(sha256) => reader.body(sha256)?,
                None => None,
            };
            self.response(status, body.as_deref(), snapshot)?;
            write!(fields, "WARC-Concurrent-To: {response}\r\n")?;
        }
        let header = WarcHeader {
            kind: "metadata",
            id: metadata,
            at: snapshot.fetched_at,
            content_type: FIELDS,
            fields,
        };
        let block = snapshot_fields(snapshot);
        self.write(&header, &[block.as_bytes()])?;
        Ok(referred)
    }

    /// Writes the origin's response to the request for its robots.txt.
    fn response(
        &mut self,
        status: u16,
        body: Option<&[u8]>,
        snapshot: &RecordedSnapshot,
    ) -> anyhow::Result<()> {
        let uri = uri(&snapshot.url);
        let mut fields = format!("WARC-Target-URI: {uri}\r\n");
        match snapshot.sha256 {
            Some(sha256) if body.is_some() => {
                write!(fields, "WARC-Payload-Digest: sha256:{sha256}\r\n")?;
            }
            // Bodies that decide nothing, such as that of a 404, are not on record.
            _ => fields.push_str("WARC-Truncated: unspecified\r\n"),
        }
        let header = WarcHeader {
            kind: "response",
            id: self.snapshot_id("response", snapshot),
            at: snapshot.fetched_at,
            content_type: RESPONSE,
            fields,
        };
        let known = StatusCode::from_u16(status).ok();
        let phrase = known.and_then(|status| status.canonical_reason());
        let body = body.unwrap_or_default();
        let head = format!(
            "HTTP/1.1 {status} {}\r\nContent-Length: {}\r\n\r\n",
            phrase.unwrap_or_default(),
            body.len()
        );
        Ok(self.write(&header, &[head.as_bytes(), body])?)
    }

    /// Makes the id of the record `kind` of a snapshot.
    fn snapshot_id(&self, kind: &str, snapshot: &RecordedSnapshot) -> WarcRecordId {
        self.id_of(kind, |bytes| {
            bytes.text(&snapshot.url);
            bytes.optional(snapshot.token.as_ref(), CanonicalBytes::text);
            bytes.time(snapshot.fetched_at);
            bytes.time(snapshot.expires_at);
            bytes.text(&snapshot.result);
            bytes.optional(snapshot.sha256, CanonicalBytes::digest);
            bytes.text(snapshot.hops.join("\n"));
        })
    }

    fn id_of(&self, kind: &str, append: impl FnOnce(&mut CanonicalBytes)) -> WarcRecordId {
        let mut bytes = CanonicalBytes::new();
        bytes.text(kind);
        bytes.text(self.record);
        append(&mut bytes);
        WarcRecordId::of(Digest::of(bytes.as_bytes()))
    }

    /// Writes a record whose block is the concatenation of `parts`.
    fn write(&mut self, header: &WarcHeader, parts: &[&[u8]]) -> io::Result<()> {
        let block = parts.concat();
        let WarcHeader {
            kind,
            id,
            at,
            content_type,
            fields,
        } = header;
        let info = match *kind {
            "warcinfo" => String::new(),
            _ => format!("WARC-Warcinfo-ID: {}\r\n", self.info),
        };
        let digest = Digest::of(&block);
        let head = format!(
            "WARC/1.1\r\nWARC-Type: {kind}\r\nWARC-Record-ID: {id}\r\nWARC-Date: {at}\r\n{info}\
             {fields}WARC-Block-Digest: sha256:{digest}\r\nContent-Type: {content_type}\r\n\
             Content-Length: {}\r\n\r\n",
            block.len()
        );
        let record = [head.as_bytes(), &block, b"\r\n\r\n"];
        match self.compression {
            WarcCompression::Plain => record.iter().try_for_each(|part| self.out.write_all(part)),
            WarcCompression::GzipByRecord => {
                let mut member = GzEncoder::new(&mut *self.out, Compression::default());
                record.iter().try_for_each(|part| member.write_all(part))?;
                member.finish().map(|_| ())
            }
        }
    }
}

/// Makes the fields that describe how a robots.txt was fetched.
fn snapshot_fields(snapshot: &RecordedSnapshot) -> String {
    // Crawlers mark prerequisites of a host this way.
    let mut text = "hopsFromSeed: P\r\n".to_owned();
    let mut add = |name: &str, value: &str| {
        // Line ends are escaped, so that a value cannot start a second field.
        text.push_str(&format!("{name}: {}\r\n", inert(value)));
    };
    for hop in &snapshot.hops {
        add("via", hop);
    }
    add("robots-result", &snapshot.result);
    if let Some(cause) = &snapshot.cause {
        add("robots-cause", cause);
    }
    if let Some(token) = &snapshot.token {
        add("robots-fetched-as", token);
    }
    add("robots-expires", &snapshot.expires_at.to_string());
    text
}

/// Returns `url` in a form that cannot end a header field: characters that no URI has
/// are percent-encoded.
fn uri(url: &str) -> String {
    let mut uri = String::with_capacity(url.len());
    for byte in url.bytes() {
        match byte {
            // RFC 3986, section 2, does not allow these three either; older versions of
            // the format put the first two around URIs.
            b'<' | b'>' | b'"' => uri.push_str(&format!("%{byte:02X}")),
            b'!'..=b'~' => uri.push(char::from(byte)),
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 9562, section 4: the version and the variant have fixed positions.
    #[test]
    fn an_id_is_a_version_8_uuid() {
        let id = WarcRecordId::of(Digest::of(b"")).to_string();
        assert_eq!(id, "<urn:uuid:e3b0c442-98fc-8c14-9afb-f4c8996fb924>");
    }

    // Ours: a URL cannot start a second field.
    #[test]
    fn line_ends_and_invalid_characters_of_a_uri_are_escaped() {
        let evil = "http://h.test/\r\nWARC-Type: x\u{202e}<\u{1b}>";
        assert_eq!(
            uri(evil),
            "http://h.test/%0D%0AWARC-Type:%20x%E2%80%AE%3C%1B%3E"
        );
        assert_eq!(uri("http://h.test/a?b=%20[c]"), "http://h.test/a?b=%20[c]");
    }
}
