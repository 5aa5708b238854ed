//! Properties of the directive reader, tested on many generated inputs.

use jiff::Timestamp;
use politesse_directives::{
    AnnotationContext, DirectiveCollector, DirectiveLimits, FieldFormat, MetaScanner, ScanStatus,
};
use proptest::collection::vec;
use proptest::prelude::*;

fn scan(page: &[u8], chunk: usize) -> (ScanStatus, usize) {
    let mut scanner = MetaScanner::new(64 * 1024, None);
    for piece in page.chunks(chunk.max(1)) {
        if scanner.push(piece) != ScanStatus::More {
            break;
        }
    }
    (scanner.finish(), scanner.metas().len())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    // Ours: how the network splits a page must not change the findings.
    #[test]
    fn a_page_reads_the_same_in_any_chunks(
        parts in vec(prop::sample::select(vec![
            "<head>", "<meta name=robots content=noindex>", "<META NAME='robots' CONTENT=\"a&#44;none\">",
            "<title>", "</title>", "<script>", "</script>", "<!--", "-->", "<noscript>", "</noscript>",
            "<body>", "text", "<template>", "</template>", "</head>", "\u{e9}", "<", "=",
        ]), 0..12),
        chunk in 1_usize..9,
    ) {
        let page = parts.concat();
        prop_assert_eq!(scan(page.as_bytes(), chunk), scan(page.as_bytes(), page.len()));
    }

    // Ours: no field line from an origin can crash the proxy.
    #[test]
    fn any_field_line_can_be_read(lines in vec(vec(any::<u8>(), 0..200), 0..4)) {
        let tokens = ["FooBot"];
        let reading = AnnotationContext { tokens: &tokens, now: Timestamp::UNIX_EPOCH, robots: None, limits: DirectiveLimits::default() };
        let mut collector = DirectiveCollector::new(reading);
        for line in &lines {
            collector.add_field("x-robots-tag", line);
            collector.add_field("robots-tag", line);
        }
        prop_assert!(collector.annotation().header_value(&FieldFormat::default()).is_ascii());
    }
}
