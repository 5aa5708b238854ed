//! The table of dialects: where the specifications of robots.txt disagree. A row is a
//! file, a path, and the answer of each dialect for FooBot; each cell is a test,
//! named after its row and column.
//!
//! The columns are side by side, so that a row shows how a dialect differs from the
//! others. `crates/politesse-robots/cases/dialects.jsonl` has more such cases.

use politesse_decision::decide::{Reason, Ruling, Verdict};
use politesse_decision::snapshot::AccessResult;
use politesse_robots::Dialect;

use crate::checklist::Said::{Allow, Disallow, NoGroup, NoRule, RobotsItself};
use crate::checklist::{ruling, said};

/// Generates a module per row and a test per column: RFC 9309, the drafts of 2019 and
/// 1996, the consensus of 1994, Conner's standard, google/robotstxt.
macro_rules! rows {
    ($($row:ident: $file:literal $path:literal
        => $rfc9309:expr, $draft_2019:expr, $draft_1996:expr, $consensus_1994:expr, $conner:expr, $google:expr;)*) => {$(
        mod $row {
            use super::*;

            rows! {@cells $file, $path =>
                rfc9309: Rfc9309 $rfc9309;
                draft_2019: Draft2019 $draft_2019;
                draft_1996: Draft1996 $draft_1996;
                consensus_1994: Consensus1994 $consensus_1994;
                conner: Conner $conner;
                google: Google $google;
            }
        }
    )*};
    (@cells $file:literal, $path:literal => $($column:ident: $dialect:ident $expected:expr;)*) => {$(
        #[test]
        fn $column() {
            let answer = said(Dialect::$dialect, $file.as_bytes(), "FooBot", $path);
            assert_eq!(answer, $expected);
        }
    )*};
}

// Ours: the agent line applies if it equals the token (RFC 9309, section 2.2.1;
// 1996, section 3.2.1), or is part of the name (1994, Conner). All dialects
// ignore case in names; google/robotstxt reads a name up to the first byte that
// RFC 9309 does not allow in one.
rows! {
    agent_line_that_equals_the_name_binds: "User-agent: FOOBOT\nDisallow: /a" "/a"
        => Disallow(2), Disallow(2), Disallow(2), Disallow(2), Disallow(2), Disallow(2);
    agent_line_that_is_part_of_the_name_binds: "User-agent: oBo\nDisallow: /a" "/a"
        => NoGroup, NoGroup, NoGroup, Disallow(2), Disallow(2), NoGroup;
    agent_line_that_contains_the_name_binds: "User-agent: FooBot-News\nDisallow: /a" "/a"
        => NoGroup, NoGroup, NoGroup, NoGroup, NoGroup, NoGroup;
    agent_line_with_a_trailing_digit_binds: "User-agent: FooBot2\nDisallow: /a" "/a"
        => Disallow(2), Disallow(2), Disallow(2), NoGroup, NoGroup, Disallow(2);
}

// Ours: groups (RFC 9309, sections 2.1 and 2.2.1; draft of 2019, section 2.2.1:
// only the first group of `*`; 1994, 1996: a blank line ends a record, and the
// first matching record counts).
rows! {
    own_groups_are_merged: "User-agent: FooBot\nDisallow: /a\n\nUser-agent: FooBot\nDisallow: /b" "/b"
        => Disallow(5), Disallow(5), NoRule, NoRule, NoRule, Disallow(5);
    groups_of_everyone_are_merged: "User-agent: *\nDisallow: /a\n\nUser-agent: *\nDisallow: /b" "/b"
        => Disallow(5), NoRule, NoRule, NoRule, NoRule, Disallow(5);
    first_record_that_matches_counts: "User-agent: Foo\nDisallow: /a\n\nUser-agent: FooBot\nDisallow: /b" "/b"
        => Disallow(5), Disallow(5), Disallow(5), NoRule, NoRule, Disallow(5);
    blank_line_ends_a_record: "User-agent: FooBot\n\nDisallow: /a" "/a"
        => Disallow(3), Disallow(3), NoRule, NoRule, NoRule, Disallow(3);
    comment_ends_no_record: "User-agent: FooBot\n# x\nDisallow: /a" "/a"
        => Disallow(3), Disallow(3), Disallow(3), Disallow(3), Disallow(3), Disallow(3);
}

// Ours: the rule that counts (RFC 9309, section 2.2.2: the longest; 1996,
// section 3.2.2: the first; 1994: any Disallow; Conner: rules without globs,
// an allow first, then globs in file order).
rows! {
    longest_rule_counts: "User-agent: *\nAllow: /a\nDisallow: /a/b" "/a/b"
        => Disallow(3), Disallow(3), Allow(2), Disallow(3), Disallow(3), Disallow(3);
    allow_counts_on_a_tie: "User-agent: *\nDisallow: /a\nAllow: /a" "/a"
        => Allow(3), Allow(3), Disallow(2), Disallow(2), Allow(3), Allow(3);
    explicit_allow_counts_before_longer_globs: "User-agent: *\nDisallow: /a*\nAllow: /a" "/a"
        => Disallow(2), Disallow(2), Allow(3), NoRule, Allow(3), Disallow(2);
    explicit_disallow_counts_before_globs: "User-agent: *\nAllow: /a*\nDisallow: /ab" "/ab"
        => Allow(2), Allow(2), Disallow(3), Disallow(3), Disallow(3), Allow(2);
    globs_count_in_file_order: "User-agent: *\nDisallow: /a*\nAllow: /ab*" "/abc"
        => Allow(3), Allow(3), NoRule, NoRule, Disallow(2), Allow(3);
}

// Ours: `Allow` lines, which the consensus of 1994 does not have.
rows! {
    allow_lines_are_honoured: "User-agent: *\nAllow: /a\nDisallow: /*\nDisallow: /" "/a"
        => Allow(2), Allow(2), Allow(2), Disallow(4), Allow(2), Allow(2);
}

// Ours: `*` and `$` (RFC 9309, section 2.2.3; plain bytes in 1994 and 1996;
// Conner: the globs of a shell, over the whole path).
rows! {
    star_is_a_pattern: "User-agent: *\nDisallow: /a*c" "/abc"
        => Disallow(2), Disallow(2), NoRule, NoRule, Disallow(2), Disallow(2);
    star_is_a_byte: "User-agent: *\nDisallow: /a*\nAllow: /ab" "/a*"
        => Disallow(2), Disallow(2), Disallow(2), Disallow(2), Disallow(2), Disallow(2);
    dollar_ends_a_pattern: "User-agent: *\nDisallow: /a$" "/a"
        => Disallow(2), Disallow(2), NoRule, NoRule, NoRule, Disallow(2);
    dollar_is_a_byte: "User-agent: *\nDisallow: /a$" "/a$"
        => NoRule, NoRule, Disallow(2), Disallow(2), Disallow(2), NoRule;
    rule_is_a_beginning: "User-agent: *\nDisallow: /a" "/ab"
        => Disallow(2), Disallow(2), Disallow(2), Disallow(2), NoRule, Disallow(2);
    question_mark_is_a_glob: "User-agent: *\nDisallow: /a?" "/ab"
        => NoRule, NoRule, NoRule, NoRule, Disallow(2), NoRule;
    set_is_a_glob: "User-agent: *\nDisallow: /[a-c]" "/b"
        => NoRule, NoRule, NoRule, NoRule, Disallow(2), NoRule;
    backslash_quotes_in_a_glob: "User-agent: *\nDisallow: /a\\*" "/a*"
        => NoRule, NoRule, NoRule, NoRule, Disallow(2), NoRule;
}

// Ours: escapes (RFC 9309, section 2.2.2: the canonical form; 1996, section
// 3.2.2: all but %2F decoded; google/robotstxt decodes nothing).
rows! {
    unreserved_escape_is_decoded: "User-agent: *\nDisallow: /%61" "/a"
        => Disallow(2), Disallow(2), Disallow(2), Disallow(2), Disallow(2), NoRule;
    // Case C45.
    reserved_escape_is_decoded: "User-agent: *\nDisallow: /a%3Db" "/a=b"
        => NoRule, NoRule, Disallow(2), Disallow(2), Disallow(2), NoRule;
    escaped_slash_is_decoded: "User-agent: *\nDisallow: /a%2Fb" "/a/b"
        => NoRule, NoRule, NoRule, NoRule, NoRule, NoRule;
    escaped_star_is_a_wildcard: "User-agent: *\nDisallow: /a%2Ab" "/axb"
        => NoRule, NoRule, NoRule, NoRule, NoRule, NoRule;
    escaped_star_is_the_byte: "User-agent: *\nDisallow: /a%2Ab" "/a*b"
        => Disallow(2), Disallow(2), Disallow(2), Disallow(2), Disallow(2), NoRule;
}

// Ours: cases C27 and C28: a query matches in escaped and in plain form in dialects
// that otherwise keep these escapes distinct.
rows! {
    query_of_a_rule_matches_once_escaped: "User-agent: *\nDisallow: /r?u=https://x.y" "/r?u=https%3A%2F%2Fx.y"
        => Disallow(2), Disallow(2), NoRule, NoRule, NoRule, NoRule;
    escaped_query_of_a_rule_matches: "User-agent: *\nDisallow: /r?u=https%3A%2F%2Fx.y" "/r?u=https://x.y"
        => Disallow(2), Disallow(2), NoRule, NoRule, NoRule, NoRule;
    query_of_an_allow_matches_once_escaped: "User-agent: *\nDisallow: /r\nAllow: /r?u=//" "/r?u=%2F%2F"
        => Disallow(2), Disallow(2), Disallow(2), Disallow(2), NoRule, Disallow(2);
}

// Ours: /robots.txt itself (RFC 9309, section 2.2.2).
rows! {
    robots_txt_itself_is_exempt: "User-agent: *\nDisallow: /robots.txt" "/robots.txt"
        => RobotsItself, RobotsItself, RobotsItself, RobotsItself, RobotsItself, Disallow(2);
}

// Ours: rules common to all dialects.
rows! {
    empty_path_decides_nothing: "User-agent: *\nAllow:\nDisallow:" "/a"
        => NoRule, NoRule, NoRule, NoRule, NoRule, NoRule;
    path_and_query_are_matched: "User-agent: *\nDisallow: /a?b" "/a?b"
        => Disallow(2), Disallow(2), Disallow(2), Disallow(2), Disallow(2), Disallow(2);
}

// Ours: further differences of google/robotstxt (robots.cc, 22b355f).
rows! {
    name_of_a_record_is_compared_by_its_beginning: "User-agent: *\nDisallow-AI: /a" "/a"
        => NoRule, NoRule, NoRule, NoRule, NoRule, Disallow(2);
    allowed_index_page_allows_its_folder: "User-agent: *\nDisallow: /a/\nAllow: /a/index.html" "/a/"
        => Disallow(2), Disallow(2), Disallow(2), Disallow(2), Disallow(2), Allow(3);
}

/// Returns the ruling on a page of a site that answers robots.txt with `status`.
fn ruling_without_file(dialect: Dialect, status: u16) -> Ruling {
    ruling((dialect, status, AccessResult::Unavailable), "FooBot", "/a")
}

/// Generates a test per column: the ruling after a 401 or 403 for robots.txt.
macro_rules! unauthorized {
    ($($column:ident: $dialect:ident $verdict:ident $reason:ident;)*) => {$(
        #[test]
        fn $column() {
            for (status, expected) in [
                (401, (Verdict::$verdict, Reason::$reason)),
                (403, (Verdict::$verdict, Reason::$reason)),
                (404, (Verdict::Allow, Reason::Unavailable)),
            ] {
                let ruling = ruling_without_file(Dialect::$dialect, status);
                assert_eq!((ruling.verdict, ruling.reason), expected, "{status}");
            }
        }
    )*};
}

/// Ours: 401 and 403 (RFC 9309, section 2.3.1.3; 1996, section 3.1).
mod a_forbidden_robots_txt_forbids_everything {
    use super::*;

    unauthorized! {
        rfc9309: Rfc9309 Allow Unavailable;
        draft_2019: Draft2019 Allow Unavailable;
        draft_1996: Draft1996 Disallow Restricted;
        consensus_1994: Consensus1994 Disallow Restricted;
        conner: Conner Disallow Restricted;
        google: Google Allow Unavailable;
    }
}
