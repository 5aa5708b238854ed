//! Directives of `cases/directives.jsonl` and `directives-ours.jsonl`: each case whole,
//! byte by byte, in random chunks and in every content coding. A case names its source.

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use politesse_directives::{
    Annotation, AnnotationContext, DirectiveLimits, FieldFormat, PageReader, ResponseHead,
};

use crate::codings::{CODINGS, coded, named};
use crate::directive_case::{Case, all_cases};

/// Cases that fail, by id, with the reason.
const UNMET: [(&str, &str); 0] = [];

#[test]
fn every_case_is_met() {
    let mut random = Random(1);
    let mut missed = Vec::new();
    for case in all_cases() {
        let (fields, body) = (fields(&case), case.body());
        for chunks in [Chunks::Whole, Chunks::Single, Chunks::Random(&mut random)] {
            let annotation = case.annotation(&fields, &chunks.of(&body));
            missed.extend(case.failure(&annotation, "as it is"));
        }
    }
    missed.retain(|(id, ..)| UNMET.iter().all(|(unmet, _)| unmet != id));
    assert!(missed.is_empty(), "{missed:#?}");
}

// Ours: the HTML cases in random chunks, in every coding.
#[test]
fn every_page_is_read_under_every_coding() {
    let mut random = Random(2);
    let mut missed = Vec::new();
    let mut read = 0;
    let pages = all_cases().filter(|case| !case.is_coded() && !case.body().is_empty());
    for case in pages {
        for codings in CODINGS {
            let (mut fields, body) = (fields(&case), coded(codings, case.body()));
            fields.append("content-encoding", named(codings).parse().unwrap());
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

/// Way to cut a body into chunks.
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

/// Random numbers that are the same in every run (splitmix64).
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

fn fields(case: &Case) -> HeaderMap {
    let mut fields = HeaderMap::new();
    for (name, bytes) in case.fields() {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        fields.append(name, HeaderValue::from_bytes(&bytes).unwrap());
    }
    fields
}

impl Case {
    fn annotation(&self, fields: &HeaderMap, body: &[&[u8]]) -> Annotation {
        let method = self.method.as_deref().unwrap_or("GET");
        let response = ResponseHead {
            method: &Method::from_bytes(method.as_bytes()).unwrap(),
            status: StatusCode::from_u16(self.status.unwrap_or(200)).unwrap(),
            fields,
            known: None,
        };
        let limits = DirectiveLimits::default();
        let limits = DirectiveLimits {
            field_limit: self.field_limit.unwrap_or(limits.field_limit),
            scan_limit: self.scan_limit.unwrap_or(limits.scan_limit),
            ..limits
        };
        let now = self.now.as_deref().unwrap_or("2026-11-20T00:00:00Z");
        let reading = AnnotationContext {
            tokens: &[&self.agent],
            now: now.parse().unwrap(),
            robots: None,
            limits,
        };
        let mut page = PageReader::new(reading, response);
        let mut chunks = body.iter();
        while page.wants_more() {
            match chunks.next() {
                Some(chunk) => page.push(chunk),
                None => page.finish(),
            }
        }
        page.annotation()
    }

    /// Returns the id, the result and the reason of a case that fails.
    fn failure(&self, annotation: &Annotation, how: &str) -> Option<(String, String, String)> {
        let value = annotation.header_value(&FieldFormat::default());
        let state = annotation.state().as_str();
        let is_met = annotation.directives() == self.expect
            && self.state.as_deref().is_none_or(|wanted| wanted == state);
        (!is_met).then(|| (self.id.clone(), format!("{how}: {value}"), self.why.clone()))
    }
}
