//! What a page costs to scan for metas: time, allocations and peak memory, with
//! heads of 5, 25, 200 and 500 KB, in one chunk and in chunks of 16 KiB.
//!
//! `cargo bench --bench annotate`. Beside it `lol_html` alone, which is asked
//! for every element and every text and does nothing with them.

#![expect(clippy::print_stdout, reason = "its output is its result")]

mod pages;

use std::hint::black_box;
use std::time::Duration;

use allocation_counter::AllocationInfo;
use lol_html::send::{HtmlRewriter, Settings};
use lol_html::{doc_text, element};
use politesse::clock;
use politesse::rules::directives::{MetaScanner, Scan};

const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_millis(20);

/// Decoded octets scanned of a page, as by default.
const LIMIT: usize = 1024 * 1024;

/// Something that goes through a page, which is cut into chunks.
type Scanner = fn(&[&[u8]]);

fn main() {
    println!("| head | chunks | scanner | us a page | allocations | peak memory |");
    println!("|---|---|---|---|---|---|");
    for head_kb in [5, 25, 200, 500] {
        let page = pages::page(head_kb * 1000);
        for (cut, chunk_bytes) in [("one", page.len()), ("16 KiB", 16 * 1024)] {
            let chunks: Vec<&[u8]> = page.as_bytes().chunks(chunk_bytes).collect();
            for (name, scanner) in [("politesse", ours as Scanner), ("lol_html", floor)] {
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
}

fn ours(chunks: &[&[u8]]) {
    let mut scanner = MetaScanner::new(LIMIT, Some("utf-8"));
    let mut chunks = chunks.iter();
    while scanner.outcome() == Scan::More {
        match chunks.next() {
            Some(chunk) => scanner.push(chunk),
            None => scanner.finish(),
        };
    }
    assert_eq!((scanner.outcome(), scanner.metas().len()), (Scan::Done, 1));
}

/// It is stopped where the head ends, as ours is.
fn floor(chunks: &[&[u8]]) {
    let settings = Settings::new_send()
        .append_element_content_handler(element!("*", |element| {
            match element.tag_name().as_str() {
                "body" => Err("the head has ended".into()),
                _ => Ok(()),
            }
        }))
        .append_document_content_handler(doc_text!(|_| Ok(())));
    let mut rewriter = HtmlRewriter::new(settings, |_: &[u8]| {});
    for chunk in chunks {
        if rewriter.write(chunk).is_err() {
            return;
        }
    }
}

/// Microseconds a step takes: the median over the rounds.
fn time(mut step: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let began = clock::instant();
            let mut count = 0_u32;
            while count == 0 || clock::instant().duration_since(began) < ROUND {
                step();
                count += 1;
            }
            clock::instant().duration_since(began).as_secs_f64() * 1e6 / f64::from(count)
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
