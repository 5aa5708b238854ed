//! Memory that reading a page takes. `benches/annotate` measures the time.

#[path = "../../benches/annotate/pages.rs"]
mod pages;

use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use politesse_directives::{
    AnnotationContext, DirectiveLimits, FieldFormat, PageReader, ResponseHead,
};

use crate::codings::coded;

/// Maximum number of bytes of memory that a scan takes, for a head of any length.
const SCANNER_BYTES_MAX: u64 = 64 * 1024;

fn looked_at(coding: &str, body: &[u8]) {
    let mut fields = HeaderMap::new();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("text/html"));
    if coding != "identity" {
        fields.insert(CONTENT_ENCODING, HeaderValue::from_str(coding).unwrap());
    }
    let reading = AnnotationContext {
        tokens: &["ExampleBot"],
        now: jiff::Timestamp::UNIX_EPOCH,
        robots: None,
        limits: DirectiveLimits::default(),
    };
    let response = ResponseHead {
        method: &Method::GET,
        status: StatusCode::OK,
        fields: &fields,
        known: None,
    };
    let mut page = PageReader::new(reading, response);
    for chunk in body.chunks(16 * 1024) {
        page.push(chunk);
    }
    let value = page.annotation().header_value(&FieldFormat::default());
    assert_eq!(
        value,
        "examplebot=(noai;src=m noimageai;src=m);state=complete"
    );
}

#[test]
fn a_page_takes_no_more_memory_than_64_kib() {
    for head_kb in [5, 25, 200, 500] {
        let page = pages::page(head_kb * 1000);
        let plain = allocation_counter::measure(|| looked_at("identity", page.as_bytes()));
        assert!(plain.bytes_max <= SCANNER_BYTES_MAX, "{head_kb} {plain:?}");
        let gzip = coded("gzip", page.clone().into_bytes());
        let gzip = allocation_counter::measure(|| looked_at("gzip", &gzip));
        assert!(gzip.bytes_max <= SCANNER_BYTES_MAX, "{head_kb} {gzip:?}");
    }
}
