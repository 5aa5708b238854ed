//! Purposes that statements deny: each statement in each of its channels, variants of
//! each that deny nothing, and several together. A row asks for all purposes and
//! names every denial: purpose, statement, letters of the places, and the line of
//! robots.txt.

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use politesse_directives::denials::{self, PurposeDenial};
use politesse_directives::preferences::{Preferences, TdmFile};
use politesse_directives::{
    Annotation, AnnotationContext, DirectiveLimits, FieldFormat, PageReader, PreferenceListing,
    PurposeSet, ResponseHead, RobotsContext,
};
use politesse_robots::RobotsTxt;
use politesse_robots::crawler::Crawler;

/// Statements of a site about one page, as a crawler receives them.
struct Site {
    agent: &'static str,
    robots: String,
    tdm_file: TdmFile,
    fields: HeaderMap,
    head: &'static str,
}

impl Site {
    fn new() -> Self {
        let mut fields = HeaderMap::new();
        fields.insert("content-type", HeaderValue::from_static("text/html"));
        Self {
            agent: "ExampleBot",
            robots: String::new(),
            tdm_file: TdmFile::default(),
            fields,
            head: "",
        }
    }

    fn agent(self, agent: &'static str) -> Self {
        Self { agent, ..self }
    }

    /// Adds a line to the group for all crawlers, which begins on line 1.
    fn group(self, line: &str) -> Self {
        let robots = match self.robots.as_str() {
            "" => format!("User-agent: *\nAllow: /\n{line}\n"),
            lines => format!("{lines}{line}\n"),
        };
        Self { robots, ..self }
    }

    fn robots(self, robots: &str) -> Self {
        let robots = robots.to_owned();
        Self { robots, ..self }
    }

    fn file(self, rules: &str) -> Self {
        let tdm_file = TdmFile::parse(rules.as_bytes());
        Self { tdm_file, ..self }
    }

    fn field(mut self, line: &'static str) -> Self {
        let (name, value) = line.split_once(": ").unwrap();
        let name = HeaderName::try_from(name).unwrap();
        self.fields.append(name, HeaderValue::from_static(value));
        self
    }

    fn head(self, head: &'static str) -> Self {
        Self { head, ..self }
    }

    /// Returns the denials by all statements of the site.
    fn denials(&self) -> Vec<PurposeDenial> {
        let robots = RobotsTxt::parse(self.robots.as_bytes());
        let crawler = Crawler::parse(self.agent);
        let path = "/a/b";
        let context = AnnotationContext {
            tokens: &[self.agent],
            now: "2026-11-20T00:00:00Z".parse().unwrap(),
            robots: Some(RobotsContext {
                text: &robots,
                crawler: &crawler,
                path,
            }),
            limits: DirectiveLimits::default(),
        };
        let response = ResponseHead {
            method: &Method::GET,
            status: StatusCode::OK,
            fields: &self.fields,
            known: None,
        };
        let mut page = PageReader::new(context, response);
        let mut known_before = Preferences::default();
        known_before.add_robots(&robots, &crawler, path);
        if let Some(rule) = self.tdm_file.binding(path) {
            page.add_tdm_rule(rule);
            known_before.add_tdm_rule(rule);
        }
        page.push(self.head.as_bytes());
        page.finish();
        let annotation = page.annotation();
        let denials = annotation.denials(PurposeSet::ALL);
        self.assert_recorded(&annotation, &denials);
        // If the response adds nothing, both ways to get the denials agree.
        if self.head.is_empty() && self.fields.len() == 1 {
            let before = denials::by_preferences(&known_before.settle(), PurposeSet::ALL);
            assert_eq!(before, denials);
        }
        denials
    }

    /// Checks that the recorded annotation gives the same denials, apart from line
    /// numbers.
    fn assert_recorded(&self, annotation: &Annotation, denials: &[PurposeDenial]) {
        let value = annotation.header_value(&FieldFormat {
            preferences: PreferenceListing::Yes,
            ..FieldFormat::default()
        });
        let is_agent = |agent: &str| agent.eq_ignore_ascii_case(self.agent);
        let recorded = denials::by_annotation(&value, PurposeSet::ALL, is_agent);
        let sorted = |denials: &[PurposeDenial]| {
            let without_lines = denials.iter().map(|denial| PurposeDenial {
                line: None,
                ..denial.clone()
            });
            let mut texts: Vec<_> = without_lines.map(|denial| shown(&denial)).collect();
            texts.sort_unstable();
            texts
        };
        assert_eq!(sorted(&recorded.denials), sorted(denials), "{value}");
        assert_eq!(recorded.unread_cause.as_deref(), annotation.why());
    }
}

fn shown(denial: &PurposeDenial) -> String {
    let line = denial.line.map(|line| format!(" line {line}"));
    let (purpose, statement) = (denial.purpose, denial.statement);
    format!(
        "{purpose}: {statement} {}{}",
        denial.sources,
        line.unwrap_or_default()
    )
}

/// One test per row: `channel "statement", … denies [denials];`
macro_rules! denials {
    ($($name:ident: $($channel:ident $text:literal),+ denies [$($denial:literal),*];)+) => {$(
        #[test]
        fn $name() {
            let expected: &[&str] = &[$($denial),*];
            let denials = Site::new()$(.$channel($text))+.denials();
            assert_eq!(denials.iter().map(shown).collect::<Vec<_>>(), expected);
        }
    )+};
}

// draft-ietf-aipref-vocab-08, section 6; draft-ietf-aipref-attach-05, sections 2
// and 3.
denials! {
    usage_training_in_a_group: group "Content-Usage: train-ai=n" denies ["train-ai: train-ai=n u line 3"];
    usage_training_above_the_groups: robots "Content-Usage: train-ai=n\nUser-agent: *\nAllow: /" denies ["train-ai: train-ai=n u line 1"];
    usage_training_in_a_field: field "Content-Usage: train-ai=n" denies ["train-ai: train-ai=n h"];
    usage_search_in_a_group: group "Content-Usage: search=n" denies ["search: search=n u line 3"];
    usage_search_above_the_groups: robots "Content-Usage: search=n\nUser-agent: *\nAllow: /" denies ["search: search=n u line 1"];
    usage_search_in_a_field: field "Content-Usage: search=n" denies ["search: search=n h"];
    usage_of_the_longest_path: group "Content-Usage: search=n", group "Content-Usage: /a train-ai=n", group "Content-Usage: /a/c search=n" denies ["train-ai: train-ai=n u line 4"];
    usage_of_the_group_that_binds: robots "User-agent: *\nAllow: /\nContent-Usage: search=n\nUser-agent: ExampleBot\nContent-Usage: train-ai=n" denies ["train-ai: train-ai=n u line 5"];
}

// Content-Usage that allows, is malformed, or applies elsewhere.
denials! {
    usage_allowed_in_a_group: group "Content-Usage: train-ai=y, search=y" denies [];
    usage_allowed_in_a_field: field "Content-Usage: train-ai=y, search=y" denies [];
    usage_of_unknown_labels: group "Content-Usage: tdm=n, ai=n, genai=n, train-genai=n, bots=n, ai-output=n", field "Content-Usage: ai-input=n, archive=n, images=n" denies [];
    usage_malformed_in_a_group: group "Content-Usage: train-ai = n" denies [];
    usage_malformed_in_a_field: field "Content-Usage: train-ai=n, search=\"n" denies [];
    usage_of_other_values: group "Content-Usage: train-ai=no", field "Content-Usage: train-ai=(n), search=N" denies [];
    usage_of_another_group: robots "User-agent: OtherBot\nAllow: /\nContent-Usage: train-ai=n\nUser-agent: *\nAllow: /" denies [];
    usage_of_another_path: group "Content-Usage: /c train-ai=n, search=n" denies [];
    usage_of_a_longer_path_that_allows: group "Content-Usage: train-ai=n", group "Content-Usage: /a train-ai=y" denies [];
    usage_of_a_longer_path_that_is_malformed: group "Content-Usage: train-ai=n", group "Content-Usage: /a train-ai=?" denies [];
    usage_as_a_meta_is_none: head "<meta name=content-usage content='train-ai=n'><meta http-equiv=content-usage content='train-ai=n'>" denies [];
}

// draft-ietf-aipref-vocab-08, section 5.1: of two statements, `n` wins.
denials! {
    usage_allowed_by_the_field_alone: group "Content-Usage: train-ai=n", field "Content-Usage: train-ai=y" denies ["train-ai: train-ai=n u line 3"];
    usage_allowed_by_robots_txt_alone: group "Content-Usage: train-ai=y", field "Content-Usage: train-ai=n" denies ["train-ai: train-ai=n h"];
    usage_denied_by_both: group "Content-Usage: train-ai=n", field "Content-Usage: train-ai=n" denies ["train-ai: train-ai=n u h line 3"];
    usage_of_equal_paths_that_disagree: group "Content-Usage: /a train-ai=y", group "Content-Usage: /a train-ai=n" denies ["train-ai: train-ai=n u line 4"];
    usage_above_the_groups_wins_over_the_group: robots "Content-Usage: train-ai=n\nUser-agent: *\nContent-Usage: train-ai=y" denies ["train-ai: train-ai=n u line 1"];
    search_of_two_vocabularies_that_disagree: group "Content-Usage: search=y", group "Content-Signal: search=no" denies ["search: search=n u line 4"];
    training_of_two_vocabularies_that_disagree: field "Content-Usage: train-ai=y", field "Content-Signal: ai-train=no" denies ["train-ai: ai-train=n h"];
    training_denied_in_two_vocabularies: field "Content-Usage: train-ai=n", field "Content-Signal: ai-train=no" denies ["train-ai: ai-train=n h", "train-ai: train-ai=n h"];
}

// contentsignals.org; for `use`, Cloudflare, 1 July 2026.
denials! {
    signal_search_in_a_group: group "Content-Signal: search=no" denies ["search: search=n u line 3"];
    signal_search_above_the_groups: robots "Content-Signal: search=no\nUser-agent: *\nAllow: /" denies ["search: search=n u line 1"];
    signal_search_in_a_field: field "Content-Signal: search=no" denies ["search: search=n h"];
    signal_input_in_a_group: group "Content-Signal: ai-input=no" denies ["ai-input: ai-input=n u line 3"];
    signal_input_above_the_groups: robots "Content-Signal: ai-input=no\nUser-agent: *\nAllow: /" denies ["ai-input: ai-input=n u line 1"];
    signal_input_in_a_field: field "Content-Signal: ai-input=no" denies ["ai-input: ai-input=n h"];
    signal_training_in_a_group: group "Content-Signal: ai-train=no" denies ["train-ai: ai-train=n u line 3"];
    signal_training_above_the_groups: robots "Content-Signal: ai-train=no\nUser-agent: *\nAllow: /" denies ["train-ai: ai-train=n u line 1"];
    signal_training_in_a_field: field "Content-Signal: ai-train=no" denies ["train-ai: ai-train=n h"];
    signal_immediate_in_a_group: group "Content-Signal: use=immediate" denies ["train-ai: use=immediate u line 3", "search: use=immediate u line 3", "archive: use=immediate u line 3", "images: use=immediate u line 3"];
    signal_immediate_above_the_groups: robots "Content-Signal: use=immediate\nUser-agent: *\nAllow: /" denies ["train-ai: use=immediate u line 1", "search: use=immediate u line 1", "archive: use=immediate u line 1", "images: use=immediate u line 1"];
    signal_immediate_in_a_field: field "Content-Signal: use=immediate" denies ["train-ai: use=immediate h", "search: use=immediate h", "archive: use=immediate h", "images: use=immediate h"];
    signal_reference_in_a_group: group "Content-Signal: use=reference" denies ["train-ai: use=reference u line 3", "archive: use=reference u line 3"];
    signal_reference_above_the_groups: robots "Content-Signal: use=reference\nUser-agent: *\nAllow: /" denies ["train-ai: use=reference u line 1", "archive: use=reference u line 1"];
    signal_reference_in_a_field: field "Content-Signal: use=reference" denies ["train-ai: use=reference h", "archive: use=reference h"];
    signals_of_a_managed_robots_txt: group "Content-Signal: search=yes,ai-train=no,use=reference" denies ["train-ai: ai-train=n u line 3", "train-ai: use=reference u line 3", "archive: use=reference u line 3"];
}

// Content-Signal that allows, is unknown or applies elsewhere, and values that disagree.
denials! {
    signals_that_allow_in_a_group: group "Content-Signal: search=yes, ai-input=yes, ai-train=yes, use=full" denies [];
    signals_that_allow_in_a_field: field "Content-Signal: search=yes, ai-input=yes, ai-train=yes, use=full" denies [];
    signals_of_unknown_names: group "Content-Signal: train-ai=no, ai=no", field "Content-Signal: archive=no, images=no" denies [];
    signals_of_unknown_values: group "Content-Signal: ai-train=maybe, use=no", field "Content-Signal: search=, ai-input" denies [];
    signals_without_a_name: field "Content-Signal: =no, no" denies [];
    signals_of_another_group: robots "User-agent: OtherBot\nAllow: /\nContent-Signal: ai-train=no\nUser-agent: *\nAllow: /" denies [];
    signals_of_another_path: group "Content-Signal: /c ai-train=no" denies [];
    signals_that_disagree: group "Content-Signal: ai-train=yes", field "Content-Signal: ai-train=no" denies ["train-ai: ai-train=n h"];
    uses_that_disagree: group "Content-Signal: use=full", field "Content-Signal: use=reference" denies ["train-ai: use=reference h", "archive: use=reference h"];
}

// TDMRep (W3C Community Group Final Report of 10 May 2024); the purposes follow
// Directive (EU) 2019/790, article 2(2).
denials! {
    mining_in_the_file: file r#"[{"location": "/", "tdm-reservation": 1}]"# denies ["train-ai: tdm-reservation=1 f", "ai-input: tdm-reservation=1 f"];
    mining_in_a_field: field "tdm-reservation: 1" denies ["train-ai: tdm-reservation=1 h", "ai-input: tdm-reservation=1 h"];
    mining_in_a_meta: head "<meta name=tdm-reservation content=1>" denies ["train-ai: tdm-reservation=1 m", "ai-input: tdm-reservation=1 m"];
    mining_in_all: file r#"[{"location": "/", "tdm-reservation": 1}]"#, field "tdm-reservation: 1", head "<meta name=tdm-reservation content=1>" denies ["train-ai: tdm-reservation=1 f h m", "ai-input: tdm-reservation=1 f h m"];
}

// TDMRep that allows, is malformed or applies elsewhere; of two declarations the later
// supersedes.
denials! {
    mining_allowed_in_the_file: file r#"[{"location": "/", "tdm-reservation": 0}]"# denies [];
    mining_allowed_in_a_field: field "tdm-reservation: 0" denies [];
    mining_allowed_in_a_meta: head "<meta name=tdm-reservation content=0>" denies [];
    mining_malformed_in_the_file: file r#"[{"location": "/", "tdm-reservation": 1}"# denies [];
    mining_malformed_in_a_field: field "tdm-reservation: yes" denies [];
    mining_malformed_in_a_meta: head "<meta name=tdm-reservation content=2>" denies [];
    mining_of_another_path: file r#"[{"location": "/c", "tdm-reservation": 1}]"# denies [];
    mining_policy_alone: field "tdm-policy: https://h.example/p" denies [];
    mining_in_robots_txt_is_none: group "tdm-reservation: 1" denies [];
    mining_outside_the_head: head "<body><p><meta name=tdm-reservation content=1>" denies [];
    field_supersedes_a_file_that_reserves: file r#"[{"location": "/", "tdm-reservation": 1}]"#, field "tdm-reservation: 0" denies [];
    field_supersedes_a_file_that_does_not: file r#"[{"location": "/", "tdm-reservation": 0}]"#, field "tdm-reservation: 1" denies ["train-ai: tdm-reservation=1 h", "ai-input: tdm-reservation=1 h"];
    meta_supersedes_a_field_that_reserves: field "tdm-reservation: 1", head "<meta name=tdm-reservation content=0>" denies [];
    meta_supersedes_a_field_that_does_not: field "tdm-reservation: 0", head "<meta name=tdm-reservation content=1>" denies ["train-ai: tdm-reservation=1 m", "ai-input: tdm-reservation=1 m"];
    malformed_meta_supersedes_nothing: file r#"[{"location": "/", "tdm-reservation": 1}]"#, head "<meta name=tdm-reservation content=no>" denies ["train-ai: tdm-reservation=1 f", "ai-input: tdm-reservation=1 f"];
}

// RSL 1.0: the terms are in the licence, which is not read.
denials! {
    license_in_robots_txt: group "License: https://h.example/l.xml" denies [];
    license_in_a_field: field "Link: </l>; rel=license; type=application/rsl+xml" denies [];
    license_in_a_link: head "<link rel=license type=application/rsl+xml href=/l>" denies [];
}

// draft-illyes-repext-03, section 3: `noindex`; Google's document: `none`.
denials! {
    noindex_in_robots_tag: field "Robots-Tag: *;noindex" denies ["search: noindex r"];
    noindex_in_x_robots_tag: field "X-Robots-Tag: noindex" denies ["search: noindex x"];
    noindex_in_a_meta: head "<meta name=robots content=noindex>" denies ["search: noindex m"];
    none_in_robots_tag: field "Robots-Tag: *;none" denies ["search: noindex r"];
    none_in_x_robots_tag: field "X-Robots-Tag: none" denies ["search: noindex x"];
    none_in_a_meta: head "<meta name=robots content=none>" denies ["search: noindex m"];
    date_that_has_come: field "X-Robots-Tag: unavailable_after: 2026-01-01" denies ["search: noindex x"];
}

// Google's, Bing's and Amazon's documents: `noarchive`.
denials! {
    noarchive_in_robots_tag: field "Robots-Tag: *;noarchive" denies ["archive: noarchive r"];
    noarchive_in_x_robots_tag: field "X-Robots-Tag: noarchive" denies ["archive: noarchive x"];
    noarchive_in_a_meta: head "<meta name=robots content=noarchive>" denies ["archive: noarchive m"];
    noarchive_for_bingbot: agent "bingbot", field "X-Robots-Tag: noarchive" denies ["archive: noarchive x", "train-ai: noarchive x", "ai-input: noarchive x"];
    noarchive_for_msnbot: agent "MSNBot", field "Robots-Tag: *;noarchive" denies ["archive: noarchive r", "train-ai: noarchive r", "ai-input: noarchive r"];
    noarchive_for_amazonbot: agent "Amazonbot", head "<meta name=robots content=noarchive>" denies ["archive: noarchive m", "train-ai: noarchive m"];
    noarchive_for_a_name_like_bingbot: agent "bingbot-news", field "X-Robots-Tag: noarchive" denies ["archive: noarchive x"];
}

// DeviantArt (November 2022): `noai`, `noimageai`; Mojeek (2023): `noml`.
denials! {
    noai_in_robots_tag: field "Robots-Tag: *;noai" denies ["train-ai: noai r", "ai-input: noai r"];
    noai_in_x_robots_tag: field "X-Robots-Tag: noai" denies ["train-ai: noai x", "ai-input: noai x"];
    noai_in_a_meta: head "<meta name=robots content=noai>" denies ["train-ai: noai m", "ai-input: noai m"];
    noimageai_in_robots_tag: field "Robots-Tag: *;noimageai" denies ["train-ai: noimageai r", "ai-input: noimageai r", "images: noimageai r"];
    noimageai_in_x_robots_tag: field "X-Robots-Tag: noimageai" denies ["train-ai: noimageai x", "ai-input: noimageai x", "images: noimageai x"];
    noimageai_in_a_meta: head "<meta name=robots content=noimageai>" denies ["train-ai: noimageai m", "ai-input: noimageai m", "images: noimageai m"];
    noml_in_robots_tag: field "Robots-Tag: *;noml" denies ["train-ai: noml r", "ai-input: noml r"];
    noml_in_x_robots_tag: field "X-Robots-Tag: noml" denies ["train-ai: noml x", "ai-input: noml x"];
    noml_in_a_meta: head "<meta name=robots content=noml>" denies ["train-ai: noml m", "ai-input: noml m"];
}

// draft-canel-robots-ai-control-00; Google's document: `noimageindex`.
denials! {
    disallowaitraining_in_robots_tag: field "Robots-Tag: *;DisallowAITraining" denies ["train-ai: disallowaitraining r"];
    disallowaitraining_in_x_robots_tag: field "X-Robots-Tag: DisallowAITraining" denies ["train-ai: disallowaitraining x"];
    disallowaitraining_in_a_meta: head "<meta name=robots content=DisallowAITraining>" denies ["train-ai: disallowaitraining m"];
    noimageindex_in_robots_tag: field "Robots-Tag: *;noimageindex" denies ["images: noimageindex r"];
    noimageindex_in_x_robots_tag: field "X-Robots-Tag: noimageindex" denies ["images: noimageindex x"];
    noimageindex_in_a_meta: head "<meta name=robots content=noimageindex>" denies ["images: noimageindex m"];
}

// Directives that allow, are unknown or are addressed to another agent, and those that
// still deny.
denials! {
    directives_that_allow: field "X-Robots-Tag: all, index, archive, AllowAITraining" denies [];
    directives_about_something_else: field "X-Robots-Tag: nofollow, nosnippet, nocache, notranslate, max-snippet: 0, max-image-preview: none" denies [];
    directives_that_are_unknown: field "X-Robots-Tag: notrain, noindexfoo, ai=no", head "<meta name=robots content='no-llm'>" denies [];
    directives_in_robots_txt: group "Noindex: /", group "X-Robots-Tag: noai" denies [];
    directives_for_another_agent: field "X-Robots-Tag: otherbot: noindex, noai", field "Robots-Tag: otherbot;noimageindex", head "<meta name=otherbot content=noarchive>" denies [];
    directives_for_the_agent: field "X-Robots-Tag: examplebot: noindex", field "Robots-Tag: examplebot;noimageindex", head "<meta name=examplebot content=noarchive>" denies ["archive: noarchive m", "images: noimageindex r", "search: noindex x"];
    directives_outside_the_head: head "<body><p><meta name=robots content=noindex>" denies [];
    directive_that_is_lifted_elsewhere: field "X-Robots-Tag: noindex", field "X-Robots-Tag: examplebot: index", head "<meta name=robots content='index, all'>" denies ["search: noindex x"];
    date_to_come: field "X-Robots-Tag: unavailable_after: 2027-01-01" denies [];
}

// Ours: preferences come first, then directives.
denials! {
    directive_and_preferences_together: group "Content-Usage: search=n", file r#"[{"location": "/a", "tdm-reservation": 1}]"#, head "<meta name=robots content='noindex, noai'>" denies [
        "search: search=n u line 3",
        "train-ai: tdm-reservation=1 f",
        "ai-input: tdm-reservation=1 f",
        "train-ai: noai m",
        "ai-input: noai m",
        "search: noindex m"
    ];
    directive_denies_what_a_preference_allows: field "Content-Usage: train-ai=y", field "X-Robots-Tag: noai" denies ["train-ai: noai x", "ai-input: noai x"];
    page_without_statements: head "<title>A page</title>" denies [];
}

// Ours: a crawler with several purposes is denied if all of them are, or with `any` if
// one is.
#[test]
fn a_crawler_is_denied_by_the_purposes_that_it_declares() {
    use politesse_directives::CrawlPurpose::{AiInput, Search, TrainAi};
    use politesse_directives::denials::DenialRule::{Any, Every};

    let site = Site::new()
        .field("Content-Usage: train-ai=n")
        .field("X-Robots-Tag: noindex");
    let denials = site.denials();
    for (rule, purposes, is_denied) in [
        (Every, &[][..], false),
        (Any, &[], false),
        (Every, &[TrainAi], true),
        (Any, &[TrainAi], true),
        (Every, &[TrainAi, Search], true),
        (Any, &[TrainAi, Search], true),
        (Every, &[TrainAi, AiInput], false),
        (Any, &[TrainAi, AiInput], true),
        (Every, &[AiInput], false),
        (Any, &[AiInput], false),
    ] {
        let purposes = PurposeSet::of(purposes);
        assert_eq!(
            rule.is_met(purposes, &denials),
            is_denied,
            "{rule:?} {purposes:?}"
        );
        assert!(!rule.is_met(purposes, &[]));
    }
}

// Ours: only the declared purposes are reported.
#[test]
fn only_declared_purposes_are_denied() {
    let preferences = |lines: &str| {
        let robots = RobotsTxt::parse(format!("User-agent: *\n{lines}").as_bytes());
        let mut preferences = Preferences::default();
        preferences.add_robots(&robots, &Crawler::parse("ExampleBot"), "/");
        preferences.settle()
    };
    let settled = preferences("Content-Usage: train-ai=n, search=n\n");
    assert!(denials::by_preferences(&settled, PurposeSet::default()).is_empty());
    let search = PurposeSet::of(&[politesse_directives::CrawlPurpose::Search]);
    let denials = denials::by_preferences(&settled, search);
    assert_eq!(
        denials.iter().map(shown).collect::<Vec<_>>(),
        ["search: search=n u line 2"]
    );
}
