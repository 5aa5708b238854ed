//! The directives of `tests/cases/directives.jsonl` and `directives-ours.jsonl`,
//! each case whole, octet by octet, in random chunks and under every content
//! coding. A case names its source.

use std::io::Write;

use base64::prelude::{BASE64_STANDARD, Engine};
use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use politesse::rules::directives::{Annotation, Form, Limits, Page, Reading, Response};
use ruzstd::encoding::CompressionLevel;
use serde::Deserialize;

const CASES: [&str; 2] = [
    include_str!("../cases/directives.jsonl"),
    include_str!("../cases/directives-ours.jsonl"),
];

/// Cases that are not met, by id, with the reason.
const UNMET: [(&str, &str); 0] = [];

#[derive(Deserialize)]
struct Case {
    id: String,
    headers: Vec<(String, String)>,
    body: Option<String>,
    body_b64: Option<String>,
    content_type: Option<String>,
    agent: String,
    expect: Vec<String>,
    why: String,
    method: Option<String>,
    status: Option<u16>,
    now: Option<String>,
    field_limit: Option<usize>,
    scan_limit: Option<usize>,
    state: Option<String>,
}

#[test]
fn every_case_is_met() {
    let mut random = Random(1);
    let mut missed = Vec::new();
    for case in cases() {
        let (fields, body) = (case.fields(), case.body());
        for chunks in [Chunks::Whole, Chunks::Single, Chunks::Random(&mut random)] {
            let annotation = case.annotation(&fields, &chunks.of(&body));
            missed.extend(case.failure(&annotation, "as it is"));
        }
    }
    missed.retain(|(id, ..)| UNMET.iter().all(|(unmet, _)| unmet != id));
    assert!(missed.is_empty(), "{missed:#?}");
}

// Issue, Must hold: the HTML ones in random chunks, under every coding.
#[test]
fn every_page_is_read_under_every_coding() {
    let mut random = Random(2);
    let mut missed = Vec::new();
    let mut read = 0;
    let pages = cases().filter(|case| !case.is_coded() && !case.body().is_empty());
    for case in pages {
        for codings in [
            "gzip",
            "x-gzip",
            "deflate",
            "raw",
            "br",
            "zstd",
            "gzip, br",
            "zstd, deflate",
        ] {
            let (mut fields, body) = (case.fields(), coded(codings, case.body()));
            let named = codings.replace("raw", "deflate");
            fields.append("content-encoding", named.parse().unwrap());
            for chunks in [Chunks::Whole, Chunks::Random(&mut random)] {
                let annotation = case.annotation(&fields, &chunks.of(&body));
                missed.extend(case.failure(&annotation, codings));
                read += 1;
            }
        }
    }
    assert!(1000 < read, "{read}");
    missed.retain(|(id, ..)| UNMET.iter().all(|(unmet, _)| unmet != id));
    assert!(missed.is_empty(), "{missed:#?}");
}

fn cases() -> impl Iterator<Item = Case> {
    let lines = CASES.into_iter().flat_map(str::lines);
    lines.map(|line| serde_json::from_str(line).unwrap())
}

/// How a body is cut.
enum Chunks<'a> {
    Whole,
    Single,
    Random(&'a mut Random),
}

impl Chunks<'_> {
    fn of(self, body: &[u8]) -> Vec<&[u8]> {
        let mut rest = body;
        let mut chunks = Vec::new();
        let random = match self {
            Chunks::Whole => return vec![body],
            Chunks::Single => return body.chunks(1).collect(),
            Chunks::Random(random) => random,
        };
        while !rest.is_empty() {
            let length = random.below(40).min(rest.len());
            let (chunk, behind) = rest.split_at(length);
            chunks.push(chunk);
            rest = behind;
        }
        chunks
    }
}

/// A generator that gives the same numbers each time (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((number ^ (number >> 31)) % end).unwrap()
    }
}

/// The body under these codings, the first applied first.
fn coded(codings: &str, body: Vec<u8>) -> Vec<u8> {
    codings.split(", ").fold(body, |body, coding| match coding {
        "gzip" | "x-gzip" => written(GzEncoder::new(Vec::new(), Compression::best()), &body)
            .finish()
            .unwrap(),
        "deflate" => written(ZlibEncoder::new(Vec::new(), Compression::fast()), &body)
            .finish()
            .unwrap(),
        "raw" => written(DeflateEncoder::new(Vec::new(), Compression::best()), &body)
            .finish()
            .unwrap(),
        "br" => {
            let mut coded = Vec::new();
            written(
                brotli::CompressorWriter::new(&mut coded, 4096, 9, 22),
                &body,
            );
            coded
        }
        "zstd" => ruzstd::encoding::compress_to_vec(body.as_slice(), CompressionLevel::Fastest),
        other => panic!("{other}"),
    })
}

fn written<W: Write>(mut encoder: W, body: &[u8]) -> W {
    encoder.write_all(body).unwrap();
    encoder
}

impl Case {
    fn annotation(&self, fields: &HeaderMap, body: &[&[u8]]) -> Annotation {
        let method = self.method.as_deref().unwrap_or("GET");
        let response = Response {
            method: &Method::from_bytes(method.as_bytes()).unwrap(),
            status: StatusCode::from_u16(self.status.unwrap_or(200)).unwrap(),
            fields,
            known: None,
        };
        let limits = Limits::default();
        let limits = Limits {
            field_limit: self.field_limit.unwrap_or(limits.field_limit),
            scan_limit: self.scan_limit.unwrap_or(limits.scan_limit),
            ..limits
        };
        let now = self.now.as_deref().unwrap_or("2026-11-20T00:00:00Z");
        let reading = Reading {
            tokens: &[&self.agent],
            now: now.parse().unwrap(),
            robots: None,
            limits,
        };
        let mut page = Page::new(reading, response);
        let mut chunks = body.iter();
        while page.wants_more() {
            match chunks.next() {
                Some(chunk) => page.push(chunk),
                None => page.finish(),
            }
        }
        page.annotation()
    }

    /// What is said of a case that is not met.
    fn failure(&self, annotation: &Annotation, how: &str) -> Option<(String, String, String)> {
        let value = annotation.header_value(&Form::default());
        let state = annotation.state().as_str();
        let is_met = annotation.directives() == self.expect
            && self.state.as_deref().is_none_or(|wanted| wanted == state);
        (!is_met).then(|| (self.id.clone(), format!("{how}: {value}"), self.why.clone()))
    }

    /// The fields; in the file they are Latin-1 text.
    fn fields(&self) -> HeaderMap {
        let content_type = self.content_type.iter();
        let content_type = content_type.map(|value| ("content-type", value.as_str()));
        let headers = self.headers.iter();
        let headers = headers.map(|(name, value)| (name.as_str(), value.as_str()));
        let mut fields = HeaderMap::new();
        for (name, value) in headers.chain(content_type) {
            let octets = value.chars().map(|letter| u8::try_from(letter).unwrap());
            let octets: Vec<u8> = octets.collect();
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            fields.append(name, HeaderValue::from_bytes(&octets).unwrap());
        }
        fields
    }

    fn body(&self) -> Vec<u8> {
        match (&self.body, &self.body_b64) {
            (Some(text), _) => text.clone().into_bytes(),
            (None, Some(text)) => BASE64_STANDARD.decode(text).unwrap(),
            (None, None) => Vec::new(),
        }
    }

    /// Whether the body has a content coding of its own.
    fn is_coded(&self) -> bool {
        let mut headers = self.headers.iter();
        headers.any(|(name, _)| name.eq_ignore_ascii_case("content-encoding"))
    }
}
