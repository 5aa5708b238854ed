//! Dialects: the ruling after a 401 or 403 for robots.txt, which only the older
//! specifications take for a refusal.
//!
//! `crates/politesse-robots/cases/dialects.jsonl` has the rules that the dialects read
//! differently.

use politesse_decision::decide::{Reason, Verdict};
use politesse_decision::snapshot::AccessResult;
use politesse_robots::Dialect;

use crate::checklist::ruling;

// Ours: 401 and 403 (RFC 9309, section 2.3.1.3; 1996, section 3.1).
#[test]
fn a_forbidden_robots_txt_forbids_everything_in_the_older_dialects() {
    let allow = (Verdict::Allow, Reason::Unavailable);
    let refuse = (Verdict::Disallow, Reason::Restricted);
    for (dialect, expected) in [
        (Dialect::Rfc9309, allow),
        (Dialect::Draft2019, allow),
        (Dialect::Draft1996, refuse),
        (Dialect::Consensus1994, refuse),
        (Dialect::Conner, refuse),
        (Dialect::Google, allow),
    ] {
        for (status, expected) in [(401, expected), (403, expected), (404, allow)] {
            let answer = (dialect, status, AccessResult::Unavailable);
            let ruling = ruling(answer, "FooBot", "/a");
            let found = (ruling.verdict, ruling.reason);
            assert_eq!(found, expected, "{dialect} {status}");
        }
    }
}
