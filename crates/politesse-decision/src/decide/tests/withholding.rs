//! Withholding of responses, decided from the recorded annotation.

use super::*;
use crate::again::{Again, EvidenceCache, decide_again};
use crate::preferences::{PreferenceMode, PreferenceTerms, UnknownPreferences};
use crate::record::{Seen, StoredDenial, StoredRecord};
use crate::withholding::{Withholding, stated_denials};
use politesse_directives::denials::DenialRule::{self, Any, Every};
use politesse_directives::{CrawlPurpose, PurposeSet};

/// Denies `search` for one path; other denials come from the response.
const ROBOTS: &str = "User-agent: *\nAllow: /\nContent-Usage: /found search=n\n";

/// Builds terms from words: purposes, and `report`, `off` or `unknown` to change the
/// default treatment, which refuses and passes unread pages.
fn terms(words: &str, rule: DenialRule) -> PreferenceTerms {
    let mut terms = PreferenceTerms {
        purposes: PurposeSet::default(),
        enforce: PreferenceMode::Refuse,
        rule,
        unknown: UnknownPreferences::Pass,
    };
    let mut purposes = Vec::new();
    for word in words.split_whitespace() {
        match word {
            "report" => terms.enforce = PreferenceMode::Report,
            "off" => terms.enforce = PreferenceMode::Off,
            "unknown" => terms.unknown = UnknownPreferences::Refuse,
            purpose => purposes.push(purpose.parse::<CrawlPurpose>().unwrap()),
        }
    }
    terms.purposes = purposes.into_iter().collect();
    terms
}

fn decided(terms: PreferenceTerms) -> Decision {
    let policy = Policy::new(Unauthorized::Allow).for_purposes(terms);
    decided_by(policy)
}

fn decided_by(policy: Policy) -> Decision {
    let asked = inquiry("Amazonbot/2.1", "http://h.test/a");
    decide(&asked, &file(ROBOTS), &Arc::new(policy), now())
}

/// Returns reason and denials of a withheld response; `None` if it is given.
fn withheld(decision: &Decision, status: u16, annotation: &str) -> Option<String> {
    let stated = stated_denials(decision.evidence(), annotation);
    let withholding = Withholding::of(decision.evidence(), status, stated)?;
    let denials = withholding.denials.iter().map(ToString::to_string);
    let told: Vec<_> = denials.chain(withholding.unread_cause.clone()).collect();
    let mode = if withholding.is_reported {
        "reported "
    } else {
        ""
    };
    Some(format!(
        "{mode}{} {}",
        withholding.reason(),
        told.join("; ")
    ))
}

/// One test per row: `"terms", rule, status, "list;parameters" => result;`
macro_rules! responses {
    ($($name:ident: $terms:literal, $rule:expr, $status:literal, $stated:literal => $expected:expr;)+) => {$(
        #[test]
        fn $name() {
            let annotation = concat!("amazonbot=", $stated);
            let told = withheld(&decided(terms($terms, $rule)), $status, annotation);
            assert_eq!(told.as_deref(), $expected);
        }
    )+};
}

// Ours: docs/preferences.md. The meaning of statements has its own table, in
// `politesse-directives`.
responses! {
    a_page_that_states_nothing_is_given: "train-ai", Every, 200, "();state=complete" => None;
    a_directive_withholds: "train-ai", Every, 200, "(noai;src=m);state=complete" => Some("directive train-ai (noai)");
    a_preference_of_a_field_withholds: "train-ai", Every, 200, "(train-ai;value=n;src=h);state=complete" => Some("preference train-ai (train-ai=n)");
    a_reservation_withholds: "train-ai", Every, 200, "(tdm-reservation;value=1;src=h);state=complete" => Some("preference train-ai (tdm-reservation=1)");
    a_lifted_reservation_does_not_withhold: "train-ai", Every, 200, "(tdm-reservation;value=0;src=m);state=complete" => None;
    a_statement_about_another_purpose_does_not_withhold: "search", Every, 200, "(noai;src=m);state=complete" => None;
    an_allowing_statement_does_not_withhold: "train-ai", Every, 200, "(train-ai;value=y;src=h);state=complete" => None;
    one_of_two_purposes_is_not_enough: "train-ai search", Every, 200, "(noai;src=m);state=complete" => None;
    one_of_two_purposes_is_enough_under_the_rule_any: "train-ai search", Any, 200, "(noai;src=m);state=complete" => Some("directive train-ai (noai)");
    two_statements_deny_two_purposes: "train-ai search", Every, 200, "(noai;src=m noindex;src=x);state=complete" => Some("directive train-ai (noai); search (noindex)");
    robots_txt_and_the_page_together_deny: "train-ai search", Every, 200, "(noai;src=m search;value=n;src=u);state=complete" => Some("preference train-ai (noai); search (search=n)");
    a_statement_with_a_meaning_for_this_agent_withholds: "train-ai", Every, 200, "(noarchive;src=x);state=complete" => Some("directive train-ai (noarchive)");
    an_error_page_is_withheld: "train-ai", Every, 404, "(noai;src=x);state=complete" => Some("directive train-ai (noai)");
    a_page_that_is_not_modified_is_withheld: "train-ai", Every, 304, "(noai;src=x);state=complete" => Some("directive train-ai (noai)");
    a_redirect_is_given: "train-ai", Every, 302, "(noai;src=x);state=complete" => None;
    report_gives_the_page_and_names_the_reason: "train-ai report", Every, 200, "(noai;src=m);state=complete" => Some("reported directive train-ai (noai)");
    off_gives_the_page: "train-ai off", Every, 200, "(noai;src=m);state=complete" => None;
    a_partial_page_is_given: "train-ai", Every, 200, "();state=partial;why=head-limit" => None;
    a_partial_page_is_withheld_if_unknown_refuses: "train-ai unknown", Every, 200, "();state=partial;why=head-limit" => Some("preference head-limit");
    a_partial_page_that_denies_is_withheld: "train-ai", Every, 200, "(noai;src=m);state=partial;why=head-limit" => Some("directive train-ai (noai)");
    a_complete_page_is_given_if_unknown_refuses: "train-ai unknown", Every, 200, "();state=complete" => None;
    a_directive_after_the_head_does_not_withhold: "train-ai", Every, 200, "();state=complete, outside=(noai;src=m)" => None;
    an_internal_failure_counts_as_unknown: "train-ai unknown", Every, 200, "();state=unknown;why=internal" => Some("preference internal");
}

// Ours: HEAD has no content that could hide a statement.
#[test]
fn a_head_request_is_not_withheld_for_unknown_statements() {
    let policy = Policy::new(Unauthorized::Allow).for_purposes(terms("train-ai unknown", Every));
    let asked = Inquiry {
        method: "HEAD".to_owned(),
        ..Inquiry::clone(&inquiry("Amazonbot/2.1", "http://h.test/a"))
    };
    let decision = decide(&Arc::new(asked), &file(ROBOTS), &Arc::new(policy), now());
    for why in ["method", "range", "field-limit"] {
        let stated = format!("amazonbot=();state=partial;why={why}");
        assert_eq!(withheld(&decision, 200, &stated), None);
    }
    let stated = "amazonbot=(noai;src=x);state=partial;why=method";
    assert!(withheld(&decision, 200, stated).is_some());
}

#[test]
fn a_crawler_without_purposes_gets_every_response() {
    let decision = decided_by(Policy::new(Unauthorized::Allow));
    let stated = "amazonbot=(noai;src=m noindex;src=m);state=complete";
    assert_eq!(withheld(&decision, 200, stated), None);
}

// Ours: an override counts before preferences.
#[test]
fn an_override_that_allows_gives_the_page() {
    const ANYTHING: &str = r#"{"origin":"http://h.test","action":"allow","reason":"contract",
        "until":"2100-01-01T00:00:00Z"}"#;
    let policy = Policy::new(Unauthorized::Allow)
        .for_purposes(terms("train-ai", Every))
        .with(|terms| terms.overrides = vec![serde_json::from_str(ANYTHING).unwrap()]);
    let stated = "amazonbot=(noai;src=m);state=complete";
    assert_eq!(withheld(&decided_by(policy), 200, stated), None);
}

#[test]
fn enforcement_in_report_mode_only_reports_withholding() {
    let policy = Policy::new(Unauthorized::Allow)
        .for_purposes(terms("train-ai", Every))
        .with(|terms| terms.mode = EnforcementMode::Report);
    let stated = "amazonbot=(noai;src=m);state=complete";
    let told = withheld(&decided_by(policy), 200, stated);
    assert_eq!(told.as_deref(), Some("reported directive train-ai (noai)"));
}

// Invariant 2 (ARCHITECTURE.md): withholding is verified from the record as well.
#[test]
fn an_ending_that_does_not_follow_from_the_statements_is_detected() {
    let decision = decided(terms("train-ai", Every));
    let again = |stated: &str, error: Option<&str>| {
        let mut record = StoredRecord::unrecorded(decision.evidence());
        record.status = Some(if error.is_some() { 403 } else { 200 });
        let directives = format!("amazonbot={stated};state=complete");
        let found = stated_denials(decision.evidence(), &directives);
        record.directives = Some(Arc::new(Seen {
            directives,
            said: None,
            denials: found.denials.iter().map(StoredDenial::from).collect(),
        }));
        record.error = error.map(Arc::from);
        let body = Some(Bytes::from_static(ROBOTS.as_bytes()));
        decide_again(&record, body, &mut EvidenceCache::default()).unwrap()
    };
    let (denied, open) = ("(noai;src=m)", "()");
    assert_eq!(again(denied, Some(Withholding::ERROR)), Again::Same);
    assert_eq!(again(open, None), Again::Same);
    assert!(matches!(again(denied, None), Again::OtherEnding(_)));
    let changed = again(open, Some(Withholding::ERROR));
    assert!(matches!(changed, Again::OtherEnding(_)), "{changed:?}");
}
