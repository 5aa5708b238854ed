//! Checks lines of `Robots-Tag` and `X-Robots-Tag` made of any bytes. A further line
//! removes no directive. A line cut at a limit gives only directives that the whole
//! line gives, or that its beginning gives as a line by itself. (By itself, the
//! beginning may have another syntax than the whole line.)
//!
//! Each line of an input is a field line, whose first byte chooses the name.

#![no_main]

use std::collections::BTreeSet;

use libfuzzer_sys::fuzz_target;
use politesse_directives::{FieldFormat, DirectiveCollector, DirectiveLimits, AnnotationContext};
use politesse_fuzz::time::within_bound;

/// Limit that no line reaches.
const NO_LIMIT: usize = 1 << 20;

fuzz_target!(|input: &[u8]| {
    let lines: Vec<&[u8]> = input.split(|&byte| byte == b'\n').take(8).collect();
    let mut before = BTreeSet::new();
    for count in 1..=lines.len() {
        let now = within_bound(|| names(&lines[..count], NO_LIMIT));
        assert!(before.is_subset(&now), "{before:?} {now:?}");
        before = now;
    }
    for line in &lines {
        let limit = line.len() / 2;
        // The first byte chooses the name and is not part of the field.
        let beginning = &line[..line.len().min(limit + 1)];
        let mut may_be = names(&[line], NO_LIMIT);
        may_be.extend(names(&[beginning], NO_LIMIT));
        let cut = names(&[line], limit);
        assert!(cut.is_subset(&may_be), "{limit} {cut:?} {may_be:?}");
    }
});

/// Returns the names of the directives that apply to one crawler. Their values are left
/// out, since further lines can make them stricter.
fn names(lines: &[&[u8]], field_limit: usize) -> BTreeSet<String> {
    let reading = AnnotationContext {
        tokens: &["a"],
        now: jiff::Timestamp::UNIX_EPOCH,
        robots: None,
        limits: DirectiveLimits {
            field_limit,
            ..DirectiveLimits::default()
        },
    };
    let mut collector = DirectiveCollector::new(reading);
    for line in lines {
        let (name, value) = match line.split_first() {
            Some((first, value)) if first % 2 == 0 => ("robots-tag", value),
            Some((_, value)) => ("x-robots-tag", value),
            None => continue,
        };
        collector.add_field(name, value);
    }
    let annotation = collector.annotation();
    assert!(annotation.header_value(&FieldFormat::default()).is_ascii());
    let directives = annotation.directives();
    let names = directives
        .iter()
        .map(|it| it.split(':').next().unwrap_or_default());
    names.map(str::to_owned).collect()
}
