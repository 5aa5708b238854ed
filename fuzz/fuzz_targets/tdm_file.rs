//! Checks that any bytes can be read as a TDM file, that the rule that binds a path is
//! one of the file, and that the record keeps every file with rules.
//!
//! The first line of an input is the path, the rest is the file.

#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};
use politesse_decision::tdm::TdmResult;
use politesse_directives::preferences::TdmFile;
use politesse_fuzz::time::within_bound;

fuzz_target!(|input: &[u8]| -> Corpus {
    let Some(end) = input.iter().position(|&byte| byte == b'\n') else {
        return Corpus::Reject;
    };
    let (path, body) = (String::from_utf8_lossy(&input[..end]), &input[end + 1..]);
    let file = within_bound(|| TdmFile::parse(body));
    let rule = within_bound(|| file.binding(&path));
    assert!(rule.is_none_or(|rule| (1..=TdmFile::RULES_MAX).contains(&rule.number)));
    // A web page served in place of the file has no rules, and is not kept.
    assert_eq!(TdmResult::read(body).binding(&path), rule);
    Corpus::Keep
});
