//! Checks that a body of any bytes under a content coding decodes to the same bytes in
//! chunks of any size. The output stays within the limit, and the time is proportional
//! to the bytes that come in and may go out.
//!
//! The first byte of an input chooses the codings, the second the size of the chunks,
//! and the third the limit. The rest is the body.

#![no_main]

use std::ops::ControlFlow;
use std::time::Duration;

use http::header::CONTENT_ENCODING;
use http::{HeaderMap, HeaderValue};
use libfuzzer_sys::{Corpus, fuzz_target};
use politesse_directives::{BodyDecoder, PartialReason};
use politesse_fuzz::time::{BOUND, within};

/// Values of Content-Encoding. The seeds use the first four.
const CODINGS: [&str; 12] = [
    "gzip",
    "deflate",
    "br",
    "zstd",
    "gzip, gzip",
    "br, gzip",
    "zstd, gzip",
    "deflate, br",
    "zstd, br",
    "gzip, zstd",
    "br, zstd",
    "gzip, deflate, br, zstd",
];

/// Largest exponent of 2 for the limit: 512 KiB.
const LIMIT_BITS_MAX: u8 = 19;

/// Nanoseconds for each byte of input. Building tables takes the most: a br block that
/// builds some, in 16 microseconds in this build, has at most nine bytes.
const NANOS_IN: usize = 3000;

/// Nanoseconds for each byte that a stage may output.
const NANOS_OUT: usize = 20;

fuzz_target!(|input: &[u8]| -> Corpus {
    let [codings, chunks, limit, body @ ..] = input else {
        return Corpus::Reject;
    };
    let codings = CODINGS[usize::from(*codings) % CODINGS.len()];
    let limit = 1 << (limit % (LIMIT_BITS_MAX + 1));
    let fields = HeaderMap::from_iter([(CONTENT_ENCODING, HeaderValue::from_static(codings))]);
    let stages = codings.split(',').count();
    let nanos = NANOS_IN * body.len() + NANOS_OUT * stages * limit;
    let bound = BOUND + Duration::from_nanos(nanos.try_into().unwrap_or(u64::MAX));
    let whole = within(bound, || decoded(&fields, limit, body.chunks(usize::MAX)));
    assert!(whole.0.len() <= limit);
    for chunk_bytes in [1, usize::from(*chunks) + 2] {
        let cut = decoded(&fields, limit, body.chunks(chunk_bytes));
        let [one, other] = [&cut, &whole].map(|(bytes, end)| (bytes.len(), end));
        let told = format!("{codings} by {chunk_bytes}: {one:?}, whole: {other:?}");
        assert!(agree(&cut, &whole, codings), "{told}");
    }
    Corpus::Keep
});

/// Decoded bytes of a body, and the end of decoding.
type Outcome = (Vec<u8>, Result<(), PartialReason>);

/// Reports whether the chunks made no difference. If a br stream is broken, smaller
/// chunks may yield more of its bytes.
fn agree(one: &Outcome, other: &Outcome, codings: &str) -> bool {
    let may_differ = codings.contains("br") && one.1.is_err() && other.1.is_err();
    let is_beginning = one.0.starts_with(&other.0) || other.0.starts_with(&one.0);
    one == other || may_differ && is_beginning
}

/// Decodes a body that arrives in chunks.
fn decoded<'a>(
    fields: &HeaderMap,
    limit: usize,
    mut chunks: impl Iterator<Item = &'a [u8]>,
) -> Outcome {
    let decoding = BodyDecoder::for_fields(fields, limit);
    let Ok(Some(mut decoding)) = decoding else {
        panic!("the codings are known: {decoding:?}");
    };
    let mut decoded = Vec::new();
    let mut take = |piece: &[u8]| {
        decoded.extend_from_slice(piece);
        ControlFlow::Continue(())
    };
    let pushed = chunks.try_for_each(|chunk| decoding.push(chunk, &mut take));
    (decoded, pushed.and_then(|()| decoding.finish()))
}
