//! Checks that the engine answers every question as the reference does, in every
//! dialect: whether the path is allowed, which line decides, and whether any group
//! binds.
//!
//! An input that begins with `=` is a question in text form ([`Question::from_text`]).
//! Any other input generates one ([`grammar::question`]).

#![no_main]

use arbitrary::Unstructured;
use libfuzzer_sys::{Corpus, fuzz_target};
use politesse_fuzz::comparison::compare;
use politesse_fuzz::grammar;
use politesse_fuzz::question::Question;
use politesse_fuzz::reference::Dialect;
use politesse_fuzz::stretch::stretched;

/// Bytes for a file of about sixty lines.
const BYTES: usize = 1024;

fuzz_target!(|input: &[u8]| -> Corpus {
    let question = match input {
        [b'=', text @ ..] => Question::from_text(text),
        _ => match grammar::question(&mut Unstructured::new(&stretched(input, BYTES))) {
            Ok(question) => question,
            Err(_) => return Corpus::Reject,
        },
    };
    for dialect in Dialect::ALL {
        compare(dialect, &question);
    }
    Corpus::Keep
});
