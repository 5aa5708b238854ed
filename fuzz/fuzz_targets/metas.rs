//! Checks that, for any page, the scanner does not report the end of the head before a
//! browser sees it, finds every meta that a browser puts into the head, and gives the
//! same result in chunks of any size.
//!
//! The first byte of an input chooses where the page is cut. The rest is the page.

#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};
use politesse_directives::{MetaScanner, MetaScope, ScanOptions};
use politesse_fuzz::html::difference;
use politesse_fuzz::scanned::{restricts, scanned};
use politesse_fuzz::time::within_bound;

const LIMIT: usize = 512 * 1024;

fuzz_target!(|input: &[u8]| -> Corpus {
    let Some((&cut, page)) = input.split_first() else {
        return Corpus::Reject;
    };
    let page = String::from_utf8_lossy(page);
    let ends = (0..=page.len()).filter(|&end| page.is_char_boundary(end));
    let ends: Vec<usize> = ends.collect();
    for end in [ends[usize::from(cut) % ends.len()], page.len()] {
        let beginning = &page[..end];
        let whole = scanned(beginning.as_bytes(), end.max(1));
        let cut = scanned(beginning.as_bytes(), usize::from(cut % 16) + 1);
        assert_eq!(format!("{whole:?}"), format!("{cut:?}"));
        if let Some(difference) = difference(beginning, &whole, restricts) {
            panic!("{beginning:?}: {difference}");
        }
    }
    any_encoding(input);
    Corpus::Keep
});

/// Checks that any bytes are scanned as a page in any encoding and scope, in bounded
/// time.
fn any_encoding(bytes: &[u8]) {
    const LABELS: [Option<&str>; 5] = [
        None,
        Some("utf-16"),
        Some("iso-2022-jp"),
        Some("shift_jis"),
        Some("no-such-charset"),
    ];
    for label in LABELS {
        for scope in [MetaScope::Head, MetaScope::Prefix] {
            let limit = LIMIT;
            let scans = [1, bytes.len().max(1)].map(|chunk_bytes| {
                within_bound(|| {
                    let mut scanner = MetaScanner::new(ScanOptions { limit, scope }, label);
                    for chunk in bytes.chunks(chunk_bytes) {
                        scanner.push(chunk);
                    }
                    scanner.finish();
                    format!("{scanner:?} {}", scanner.is_readable())
                })
            });
            assert_eq!(without_count(&scans[0]), without_count(&scans[1]));
        }
    }
}

/// Returns a scanner's debug output from its status on, without the number of bytes
/// pushed, which depends on the chunks.
fn without_count(scanner: &str) -> &str {
    scanner
        .split_once("status")
        .map_or(scanner, |(_, rest)| rest)
}
