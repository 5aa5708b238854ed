//! Cost of scanning a page for metas: time, allocations and peak memory, for heads of
//! 5, 25, 200 and 500 KB, in one chunk and in chunks of 16 KiB.
//!
//! For comparison, the tokenizer of `html5ever` alone, with its tokens discarded. Then
//! the same pages in content codings, from the fields of the response to the
//! annotation.
//!
//! `cargo bench --bench annotate`; `-- profile 25000` only scans,
//! `-- profile gzip 25000` annotates a page in a coding.

#![expect(clippy::print_stdout, reason = "its output is its result")]

mod pages;

use std::hint::black_box;
use std::io::Write as _;
use std::time::{Duration, Instant};

use allocation_counter::AllocationInfo;
use flate2::Compression;
use flate2::write::GzEncoder;
use html5ever::TokenizerResult;
use html5ever::tendril::StrTendril;
use html5ever::tokenizer::states::RawKind;
use html5ever::tokenizer::{
    BufferQueue, Tag, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts,
};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use jiff::Timestamp;
use politesse_directives::{
    AnnotationContext, DirectiveLimits, FieldFormat, MetaScanner, PageReader, ResponseHead,
    ScanStatus,
};
use ruzstd::encoding::CompressionLevel;

const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_millis(20);

/// Decoded bytes scanned of a page, as by default.
const LIMIT: usize = 512 * 1024;

const CODINGS: [&str; 4] = ["identity", "gzip", "br", "zstd"];

/// Function that scans a page given as chunks.
type Scanner = fn(&[&[u8]]);

/// Reads the clock; the only place in this bench that does.
#[allow(clippy::disallowed_methods)]
fn now() -> Instant {
    Instant::now()
}

fn main() {
    if std::env::args().any(|argument| argument == "profile") {
        return profile();
    }
    println!("| head | chunks | scanner | us a page | allocations | peak memory |");
    println!("|---|---|---|---|---|---|");
    for head_kb in [5, 25, 200, 500] {
        let page = pages::page(head_kb * 1000);
        for (cut, chunk_bytes) in [("one", page.len()), ("16 KiB", 16 * 1024)] {
            let chunks: Vec<&[u8]> = page.as_bytes().chunks(chunk_bytes).collect();
            for (name, scanner) in [("politesse", ours as Scanner), ("html5ever", html5ever)] {
                let time = time(|| scanner(black_box(&chunks)));
                let used = allocation_counter::measure(|| scanner(&chunks));
                let AllocationInfo {
                    count_total,
                    bytes_max,
                    ..
                } = used;
                println!(
                    "| {head_kb} KB | {cut} | {name} | {time:.1} | {count_total} | {bytes_max} B |"
                );
            }
        }
    }
    codings();
}

/// Scans a page many times for a profiler, or annotates it in a content coding
/// (`profile gzip 25000`).
fn profile() {
    let bytes = std::env::args().find_map(|argument| argument.parse().ok());
    let page = pages::page(bytes.unwrap_or(25_000));
    let Some(coding) = std::env::args().find(|it| CODINGS.contains(&it.as_str())) else {
        return (0..50_000).for_each(|_| ours(black_box(&[page.as_bytes()])));
    };
    let (fields, body) = (fields(&coding), coded(&coding, page.as_bytes()));
    (0..200).for_each(|_| annotate(black_box(&fields), black_box(&body)));
}

/// Measures a page in each content coding, from its fields to the value of the
/// annotation.
fn codings() {
    println!("\n| head | coding | bytes | us a page | allocations | peak memory |");
    println!("|---|---|---|---|---|---|");
    for head_kb in [5, 25, 200, 500] {
        let page = pages::page(head_kb * 1000);
        for coding in CODINGS {
            let body = coded(coding, page.as_bytes());
            let fields = fields(coding);
            let time = time(|| annotate(black_box(&fields), black_box(&body)));
            let used = allocation_counter::measure(|| annotate(&fields, &body));
            println!(
                "| {head_kb} KB | {coding} | {} | {time:.1} | {} | {} B |",
                body.len(),
                used.count_total,
                used.bytes_max
            );
        }
    }
}

fn fields(coding: &str) -> HeaderMap {
    let mut fields = HeaderMap::new();
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    fields.insert(CONTENT_TYPE, html);
    let coding = HeaderValue::from_str(coding).expect("a value");
    fields.insert(CONTENT_ENCODING, coding);
    fields
}

fn annotate(fields: &HeaderMap, body: &[u8]) {
    let reading = AnnotationContext {
        tokens: &["ExampleBot"],
        now: Timestamp::UNIX_EPOCH,
        robots: None,
        limits: DirectiveLimits {
            scan_limit: LIMIT,
            ..DirectiveLimits::default()
        },
    };
    let response = ResponseHead {
        method: &Method::GET,
        status: StatusCode::OK,
        fields,
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

fn coded(coding: &str, page: &[u8]) -> Vec<u8> {
    match coding {
        "gzip" => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(page).expect("room");
            encoder.finish().expect("room")
        }
        "br" => {
            let mut coded = Vec::new();
            let mut encoder = brotli::CompressorWriter::new(&mut coded, 4096, 5, 22);
            encoder.write_all(page).expect("room");
            drop(encoder);
            coded
        }
        "zstd" => ruzstd::encoding::compress_to_vec(page, CompressionLevel::Fastest),
        _ => page.to_vec(),
    }
}

fn ours(chunks: &[&[u8]]) {
    let mut scanner = MetaScanner::new(LIMIT, Some("utf-8"));
    let mut chunks = chunks.iter();
    while scanner.status() == ScanStatus::More {
        match chunks.next() {
            Some(chunk) => scanner.push(chunk),
            None => scanner.finish(),
        };
    }
    assert_eq!(
        (scanner.status(), scanner.metas().len()),
        (ScanStatus::Done, 2)
    );
}

/// Runs the tokenizer of `html5ever` alone, and stops where the head ends.
fn html5ever(chunks: &[&[u8]]) {
    let tokenizer = Tokenizer::new(HeadSink, TokenizerOpts::default());
    let input = BufferQueue::default();
    for chunk in chunks {
        let text = str::from_utf8(chunk).expect("the pages are ASCII");
        input.push_back(StrTendril::from(text));
        if !matches!(tokenizer.feed(&input), TokenizerResult::Done) {
            return;
        }
    }
}

/// Discards the tokens up to `<body>`.
struct HeadSink;

impl TokenSink for HeadSink {
    type Handle = ();

    fn process_token(&self, token: Token, _: u64) -> TokenSinkResult<()> {
        let Token::TagToken(Tag {
            kind: TagKind::StartTag,
            name,
            ..
        }) = &token
        else {
            return TokenSinkResult::Continue;
        };
        match &**name {
            "title" => TokenSinkResult::RawData(RawKind::Rcdata),
            "style" | "noscript" => TokenSinkResult::RawData(RawKind::Rawtext),
            "script" => TokenSinkResult::RawData(RawKind::ScriptData),
            // The only result that pauses the tokenizer.
            "body" => TokenSinkResult::Script(()),
            _ => TokenSinkResult::Continue,
        }
    }
}

/// Returns the microseconds that a step takes: the median over the rounds.
fn time(mut step: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let began = now();
            let mut count = 0_u32;
            while count == 0 || now().duration_since(began) < ROUND {
                step();
                count += 1;
            }
            now().duration_since(began).as_secs_f64() * 1e6 / f64::from(count)
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
