//! URLs that robots.txt allows, but denies for the purposes of the crawler.

use super::*;
use crate::again::{Again, EvidenceCache, decide_again};
use crate::preferences::{PreferenceMode, PreferenceTerms, UnknownPreferences};
use crate::record::StoredRecord;
use politesse_directives::denials::DenialRule::{self, Any, Every};
use politesse_directives::{CrawlPurpose, PurposeSet};

const ROBOTS: &str = "\
User-agent: *
Allow: /a
Content-Usage: train-ai=n
Content-Usage: /a/open train-ai=y
Content-Signal: search=no
Disallow: /private
";

/// Returns the policy for a crawler with these purposes.
fn policy(words: &str, enforce: PreferenceMode, rule: DenialRule) -> Policy {
    let purposes = words.split_whitespace().map(str::parse::<CrawlPurpose>);
    let purposes = purposes.collect::<Result<PurposeSet, _>>().unwrap();
    let terms = PreferenceTerms {
        purposes,
        enforce,
        rule,
        unknown: UnknownPreferences::Pass,
    };
    Policy::new(Unauthorized::Allow).for_purposes(terms)
}

fn decided_by(policy: Policy, snapshot: &Arc<Snapshot>, path: &str) -> Decision {
    let asked = inquiry("FooBot/2.1", &format!("http://h.test{path}"));
    decide(&asked, snapshot, &Arc::new(policy), now())
}

/// Returns verdict, reason and line, and the denials.
fn told(decision: &Decision) -> (String, Vec<String>) {
    let ruling = decision.ruling();
    let cited = ruling.rule.as_ref().and_then(|rule| rule.line);
    let line = cited.map(|line| format!(" {line}"));
    let (verdict, reason) = said(decision);
    let denials = ruling.denials.iter();
    let shown = denials.map(|denial| format!("{}: {}", denial.purpose, denial.statement));
    (
        format!("{verdict} {reason}{}", line.unwrap_or_default()),
        shown.collect(),
    )
}

/// One test per row: `"purposes", mode, rule, "path" is "verdict reason line",
/// [denials];`
macro_rules! purposes {
    ($($name:ident: $words:literal, $mode:ident, $rule:expr, $path:literal
        is $expected:literal, [$($denial:literal),*];)*) => {$(
        #[test]
        fn $name() {
            let policy = policy($words, PreferenceMode::$mode, $rule);
            let (verdict, denials) = told(&decided_by(policy, &file(ROBOTS), $path));
            assert_eq!(verdict, $expected);
            let expected: &[&str] = &[$($denial),*];
            assert_eq!(denials, expected);
        }
    )*};
}

// draft-ietf-aipref-attach-05, section 3.1; the treatment of a denial is ours.
purposes! {
    a_denied_purpose_is_refused_and_its_line_cited: "train-ai", Refuse, Every, "/a" is "disallow preference 3", ["train-ai: train-ai=n"];
    a_purpose_that_is_not_denied_is_allowed: "ai-input", Refuse, Every, "/a" is "allow rule 2", [];
    the_longest_path_decides: "train-ai", Refuse, Every, "/a/open" is "allow rule 2", [];
    every_purpose_must_be_denied: "train-ai ai-input", Refuse, Every, "/a" is "allow rule 2", ["train-ai: train-ai=n"];
    every_denial_is_listed: "train-ai search", Refuse, Every, "/a" is "disallow preference 5", ["search: search=n", "train-ai: train-ai=n"];
    any_purpose_may_be_enough: "train-ai ai-input", Refuse, Any, "/a" is "disallow preference 3", ["train-ai: train-ai=n"];
    report_also_disallows: "train-ai", Report, Every, "/a" is "disallow preference 3", ["train-ai: train-ai=n"];
    off_only_records: "train-ai", Off, Every, "/a" is "allow rule 2", ["train-ai: train-ai=n"];
    a_crawler_without_purposes_is_never_denied: "", Refuse, Any, "/a" is "allow rule 2", [];
    a_path_without_a_rule_has_preferences: "train-ai", Refuse, Every, "/x" is "disallow preference 3", ["train-ai: train-ai=n"];
    a_disallowed_path_has_no_preferences: "train-ai", Refuse, Every, "/private" is "disallow rule 6", [];
    robots_txt_itself_has_no_preferences: "train-ai", Refuse, Every, "/robots.txt" is "allow robots_txt", [];
    a_denied_reading_refuses: "train-ai", Refuse, Every, "/a/open/../x" is "disallow preference 3", ["train-ai: train-ai=n"];
}

// Ours: an unknown file has no preferences, but its URLs are disallowed all the same.
#[test]
fn without_a_file_there_are_no_preferences() {
    let decided = |result| {
        let policy = policy("train-ai", PreferenceMode::Refuse, Every);
        told(&decided_by(policy, &snapshot(404, result), "/a"))
    };
    let missing = decided(AccessResult::Unavailable);
    assert_eq!(missing, ("allow unavailable".to_owned(), Vec::new()));
    let unknown = decided(AccessResult::Unreachable(Cause::Timeout));
    assert_eq!(unknown, ("disallow unreachable".to_owned(), Vec::new()));
}

// Ours: the line is cited like a rule, with the group that binds.
#[test]
fn a_denial_is_cited_as_a_rule() {
    let refusing = policy("train-ai", PreferenceMode::Refuse, Every);
    let decision = decided_by(refusing, &file(ROBOTS), "/a");
    let ruling = decision.ruling();
    let rule = ruling.rule.as_ref().unwrap();
    assert_eq!(rule.text, "Content-Usage: train-ai=n");
    assert_eq!(
        (ruling.group.as_slice(), ruling.agent_line),
        (&["*".to_owned()][..], None)
    );
    assert_eq!(reported(decision), (false, Effect::Enforced));
}

// Ours: overrides of the operator also come before preferences.
#[test]
fn an_override_sets_a_denial_aside() {
    let refusing = policy("train-ai", PreferenceMode::Refuse, Every)
        .with(|terms| terms.overrides = vec![serde_json::from_str(ANYTHING).unwrap()]);
    let decision = decided_by(refusing, &file(ROBOTS), "/a");
    assert_eq!(told(&decision).0, "allow preference 3");
    assert_eq!(reported(decision), (true, Effect::Overridden));
}

#[test]
fn report_mode_forwards_denied_requests() {
    let reporting = policy("train-ai", PreferenceMode::Refuse, Every)
        .with(|terms| terms.mode = EnforcementMode::Report);
    let own = policy("train-ai", PreferenceMode::Report, Every);
    for policy in [reporting, own] {
        let decision = decided_by(policy, &file(ROBOTS), "/a");
        assert_eq!(reported(decision), (true, Effect::Reported));
    }
}

// Ours: reporting preferences does not stop the enforcement of rules.
#[test]
fn a_rule_refuses_while_preferences_are_only_reported() {
    let own = policy("train-ai", PreferenceMode::Report, Every);
    let decision = decided_by(own, &file(ROBOTS), "/private");
    assert_eq!(reported(decision), (false, Effect::Enforced));
}

// Invariant 2 (ARCHITECTURE.md): the purposes are part of the policy on record.
#[test]
fn a_denial_is_verified_from_its_record() {
    let again = |decision: &Decision, change: fn(&mut StoredRuling)| {
        let mut record = StoredRecord::unrecorded(decision.evidence());
        change(Arc::make_mut(&mut record.ruling));
        let body = Some(Bytes::from_static(ROBOTS.as_bytes()));
        decide_again(&record, body, &mut EvidenceCache::default()).unwrap()
    };
    for enforce in [PreferenceMode::Report, PreferenceMode::Refuse] {
        let decision = decided_by(policy("train-ai search", enforce, Any), &file(ROBOTS), "/a");
        assert_eq!(again(&decision, |_| ()), Again::Same);
        let changed = again(&decision, |ruling| ruling.line = Some(4));
        assert!(matches!(changed, Again::Differs(_)), "{changed:?}");
        let changed = again(&decision, |ruling| ruling.reason = "no_rule".to_owned());
        assert!(matches!(changed, Again::Differs(_)), "{changed:?}");
    }
}

// Ours: a policy without purposes keeps the text and digest of earlier versions.
#[test]
fn a_policy_without_purposes_has_no_preferences_in_its_json() {
    let plain = Policy::new(Unauthorized::Allow);
    assert!(!plain.json().contains("preferences"));
    for (rule, end) in [(Every, ""), (Any, r#","rule":"any""#)] {
        let declared = policy("search train-ai", PreferenceMode::Report, rule);
        let part = format!(
            r#""preferences":{{"purposes":["train-ai","search"],"enforce":"report"{end}}}"#
        );
        assert!(declared.json().contains(&part), "{}", declared.json());
        assert_ne!(declared.digest(), plain.digest());
        let restored = Policy::restore(declared.json()).unwrap();
        assert_eq!(restored.digest(), declared.digest());
    }
}
