//! The directives of `tests/cases/directives.jsonl`, each case whole and octet
//! by octet. A case names its source.

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use politesse::rules::directives::{Annotation, Page, Reading, Response};
use serde::Deserialize;

const CASES: &str = include_str!("../cases/directives.jsonl");

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
    let mut missed = Vec::new();
    for line in CASES.lines() {
        let case: Case = serde_json::from_str(line).unwrap();
        for chunk_bytes in [usize::MAX, 1] {
            let annotation = case.annotation(chunk_bytes);
            if !case.is_met_by(&annotation) {
                let value = annotation.header_value();
                missed.push((case.id.clone(), value, case.why.clone()));
            }
        }
    }
    missed.retain(|(id, ..)| UNMET.iter().all(|(unmet, _)| unmet != id));
    assert!(missed.is_empty(), "{missed:#?}");
}

impl Case {
    fn annotation(&self, chunk_bytes: usize) -> Annotation {
        let fields = self.fields();
        let body = self.body();
        let method = self.method.as_deref().unwrap_or("GET");
        let response = Response {
            method: &Method::from_bytes(method.as_bytes()).unwrap(),
            status: StatusCode::from_u16(self.status.unwrap_or(200)).unwrap(),
            fields: &fields,
            scan_limit: self.scan_limit.unwrap_or(512 * 1024),
        };
        let now = self.now.as_deref().unwrap_or("2026-11-20T00:00:00Z");
        let reading = Reading {
            tokens: &[&self.agent],
            now: now.parse().unwrap(),
            field_limit: self.field_limit.unwrap_or(32 * 1024),
        };
        let mut page = Page::new(reading, response);
        let mut chunks = body.chunks(chunk_bytes);
        while page.wants_more() {
            match chunks.next() {
                Some(chunk) => page.push(chunk),
                None => page.finish(),
            }
        }
        page.annotation()
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
            (None, Some(text)) => from_base64(text),
            (None, None) => Vec::new(),
        }
    }

    fn is_met_by(&self, annotation: &Annotation) -> bool {
        if self.is_coded() {
            return annotation.directives().is_empty() && annotation.why() == Some("coding");
        }
        let state = annotation.state().as_str();
        annotation.directives() == self.expect
            && self.state.as_deref().is_none_or(|wanted| wanted == state)
    }

    /// Whether the body has a content coding. Decoding is not the rules'.
    fn is_coded(&self) -> bool {
        let mut headers = self.headers.iter();
        headers.any(|(name, _)| name.eq_ignore_ascii_case("content-encoding"))
    }
}

/// RFC 4648, section 4.
fn from_base64(text: &str) -> Vec<u8> {
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut octets, mut bits, mut held) = (Vec::new(), 0, 0_u32);
    for letter in text.bytes().filter(|&letter| letter != b'=') {
        let digit = alphabet.iter().position(|&it| it == letter).unwrap();
        held = (held << 6 | u32::try_from(digit).unwrap()) & 0xFFFF;
        bits += 6;
        if 8 <= bits {
            bits -= 8;
            octets.push(u8::try_from(held >> bits & 0xFF).unwrap());
        }
    }
    octets
}
