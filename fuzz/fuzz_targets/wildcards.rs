//! Checks that the engine answers as the reference does for files with hundreds of
//! wildcard rules. The engine chooses the rules to try by the bytes they share with the
//! path; the reference tries them all.

#![no_main]

use arbitrary::Unstructured;
use libfuzzer_sys::{Corpus, fuzz_target};
use politesse_fuzz::comparison::compare;
use politesse_fuzz::stretch::stretched;
use politesse_fuzz::wildcards;

/// Bytes for a file of several hundred rules.
const BYTES: usize = 8192;

fuzz_target!(|input: &[u8]| -> Corpus {
    let bytes = stretched(input, BYTES);
    let Ok((dialect, question)) = wildcards::question(&mut Unstructured::new(&bytes)) else {
        return Corpus::Reject;
    };
    compare(dialect, &question);
    Corpus::Keep
});
