//! Result of the meta scanner for a page, in the form that `html.rs` compares with
//! `html5ever`.
#![allow(unreachable_pub, reason = "shared by path with the fuzz targets")]

use jiff::Timestamp;
use politesse_directives::{
    AnnotationContext, DirectiveCollector, DirectiveLimits, Meta, MetaScanner, ScanStatus,
};

use super::html::Scanned;

const LIMIT: usize = 512 * 1024;

/// Returns the scanner's result for the beginning of a page.
pub fn scanned(beginning: &[u8], chunk_bytes: usize) -> Scanned {
    let mut scanner = MetaScanner::new(LIMIT, Some("utf-8"));
    for chunk in beginning.chunks(chunk_bytes) {
        scanner.push(chunk);
    }
    let claims_end = scanner.status() == ScanStatus::Done;
    let is_doubtful = scanner.finish() != ScanStatus::Done;
    let metas = scanner.metas().iter();
    // Metas without a restriction are only evidence.
    let metas = metas.filter(|meta| !restricts(&meta.content).is_empty());
    let metas = metas.map(|meta| (meta.name.clone(), meta.content.clone()));
    Scanned {
        claims_end,
        is_doubtful,
        metas: metas.collect(),
    }
}

/// Returns the restrictions in the content of a meta.
pub fn restricts(content: &str) -> Vec<String> {
    let reading = AnnotationContext {
        tokens: &[],
        now: Timestamp::UNIX_EPOCH,
        robots: None,
        limits: DirectiveLimits::default(),
    };
    let mut collector = DirectiveCollector::new(reading);
    let (name, content) = ("robots".into(), content.to_owned());
    collector.add_meta(&Meta { name, content });
    collector.annotation().directives()
}
