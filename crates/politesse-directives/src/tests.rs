use super::preferences::{TdmFile, TdmRule};
use super::*;

fn reading<'a>(tokens: &'a [&'a str]) -> AnnotationContext<'a> {
    AnnotationContext {
        tokens,
        now: "2026-11-20T00:00:00Z".parse().unwrap(),
        robots: None,
        limits: DirectiveLimits::default(),
    }
}

fn collector<'a>(tokens: &'a [&'a str]) -> DirectiveCollector<'a> {
    DirectiveCollector::new(reading(tokens))
}

fn fields(fields: &[(&'static str, &'static str)]) -> http::HeaderMap {
    let fields = fields.iter().map(|&(name, value)| {
        let name = http::HeaderName::from_static(name);
        (name, http::HeaderValue::from_static(value))
    });
    fields.collect()
}

fn annotation(lines: &[&str]) -> Annotation {
    let mut collector = collector(&["ExampleBot"]);
    for line in lines {
        collector.add_field("x-robots-tag", line.as_bytes());
    }
    collector.annotation()
}

// draft-illyes-repext-03, section 3.1: all statements are in force together.
#[test]
fn a_directive_for_a_name_never_lifts_a_general_one() {
    let said = annotation(&["noindex", "examplebot: all", "examplebot: nofollow"]);
    assert_eq!(said.directives(), ["nofollow", "noindex"]);
}

// Ours, following Google's document.
#[test]
fn the_strictest_value_counts_with_its_sources_alone() {
    let mut collector = collector(&[]);
    collector.add_field("Robots-Tag", b"*;max-snippet=50");
    collector.add_field("X-Robots-Tag", b"max-snippet:20");
    let annotation = collector.annotation();
    let directive = annotation.known.directives.own.iter().next().unwrap();
    assert_eq!(directive.to_string(), "max-snippet:20");
    assert!(directive.sources().eq([DirectiveSource::XRobotsTag]));
}

#[test]
fn a_date_that_has_passed_means_noindex() {
    let past = annotation(&["unavailable_after: 2026-11-20T00:00:00Z"]);
    assert_eq!(past.directives()[0], "noindex");
    let ahead = annotation(&["unavailable_after: 2026-11-20T00:00:01Z"]);
    assert_eq!(
        ahead.directives(),
        ["unavailable_after:2026-11-20T00:00:01Z"]
    );
}

#[test]
fn every_token_of_the_crawler_is_bound() {
    let mut collector = collector(&["bingbot", "msnbot"]);
    collector.add_field("X-Robots-Tag", b"MSNBot: noindex");
    let said = collector.annotation();
    assert_eq!(
        said.header_value(&FieldFormat::default()),
        "bingbot=(noindex;src=x);state=complete"
    );
}

#[test]
fn an_unidentified_crawler_gets_the_general_directives() {
    let mut collector = collector(&[]);
    collector.add_field("X-Robots-Tag", b"nofollow, examplebot: noindex");
    assert_eq!(collector.annotation().directives(), ["nofollow"]);
}

#[test]
fn more_lines_than_are_read_make_it_partial() {
    let whole = annotation(&["noai"; DirectiveCollector::LINES_MAX]);
    assert_eq!(whole.state(), AnnotationState::Complete);
    let more = annotation(&["noai"; DirectiveCollector::LINES_MAX + 1]);
    assert_eq!(more.why(), Some("field-limit"));
}

#[test]
fn a_joined_line_is_suspected_only_by_crawlers_it_may_miss() {
    let line = "noindex; OtherBot=noai, nosnippet";
    assert_eq!(annotation(&[line]).why(), Some("joined"));
    let line = "noindex; ExampleBot=noai, nosnippet";
    assert_eq!(annotation(&[line]).state(), AnnotationState::Complete);
}

// Ours: a name attribute may list several crawlers, but two words are not a list.
#[test]
fn a_meta_names_crawlers_by_their_tokens() {
    let mut collector = collector(&["ExampleBot"]);
    let names = [
        ("otherbot, examplebot\u{200B}", "noindex"),
        ("otherbot|robots", "noarchive"),
        ("otherbot, all", "nocache"),
        ("other examplebot", "nofollow"),
        ("all", "noai"),
        (" Robots ", "spc"),
        ("*", "noml"),
        ("ExampleBot/2.1", "nosnippet"),
    ];
    for (name, content) in names {
        collector.add_meta(&Meta {
            name: name.into(),
            content: content.into(),
        });
    }
    let said = collector.annotation().directives();
    assert_eq!(said, ["noarchive", "noindex", "noml", "nosnippet", "spc"]);
}

#[test]
fn the_first_reason_stays_unless_we_failed() {
    let mut collector = collector(&[]);
    collector.miss(PartialReason::Coding);
    collector.miss(PartialReason::Time);
    assert_eq!(
        collector.annotation().state(),
        AnnotationState::Partial(PartialReason::Coding)
    );
    let mut collector = self::collector(&[]);
    collector.miss(PartialReason::Coding);
    collector.fail();
    assert_eq!(collector.annotation().why(), Some("internal"));
}

// Ours: a limit on each line, and one on all lines together.
#[test]
fn a_long_line_does_not_silence_another() {
    let limits = DirectiveLimits {
        field_limit: 13,
        ..DirectiveLimits::default()
    };
    let mut collector = DirectiveCollector::new(AnnotationContext {
        limits,
        ..reading(&[])
    });
    collector.add_field("x-robots-tag", b"noindex, noai");
    collector.add_field("x-robots-tag", b"spc, nosnippet");
    collector.add_field("robots-tag", b"*;noarchive");
    let said = collector.annotation();
    assert_eq!(said.directives(), ["noai", "noarchive", "noindex", "spc"]);
    assert_eq!(said.why(), Some("field-limit"));
}

#[test]
fn more_bytes_than_are_read_make_it_partial() {
    let long = format!(
        "noai{}",
        " ".repeat(DirectiveCollector::FIELD_BYTES_MAX / 2)
    );
    let said = annotation(&[&long, &long, "noindex"]);
    assert_eq!(said.directives(), ["noai"]);
    assert_eq!(said.why(), Some("field-limit"));
}

// Ours: `directives.both_fields`.
#[test]
fn the_operator_chooses_which_of_both_fields_counts() {
    let sent = fields(&[("x-robots-tag", "noindex"), ("robots-tag", "*;nofollow")]);
    let said = |both_fields| {
        let limits = DirectiveLimits {
            both_fields,
            ..DirectiveLimits::default()
        };
        let mut collector = DirectiveCollector::new(AnnotationContext {
            limits,
            ..reading(&[])
        });
        collector.add_fields(&sent);
        collector.annotation().directives()
    };
    assert_eq!(said(BothFields::Union), ["nofollow", "noindex"]);
    assert_eq!(said(BothFields::RobotsTag), ["nofollow"]);
}

#[test]
fn x_robots_tag_alone_always_counts() {
    let limits = DirectiveLimits {
        both_fields: BothFields::RobotsTag,
        ..DirectiveLimits::default()
    };
    let mut collector = DirectiveCollector::new(AnnotationContext {
        limits,
        ..reading(&[])
    });
    collector.add_fields(&fields(&[("x-robots-tag", "noindex")]));
    assert_eq!(collector.annotation().directives(), ["noindex"]);
}

// draft-illyes-repext-03, section 4: directives that a 304 does not repeat stay in
// force.
#[test]
fn directives_confirmed_by_a_304_add_up_with_new_ones() {
    let mut before = collector(&["ExampleBot"]);
    before.add_fields(&fields(&[("x-robots-tag", "noindex, max-snippet:20")]));
    before.add_meta(&Meta {
        name: "examplebot".into(),
        content: "noai".into(),
    });
    let before = before.annotation();
    let mut now = collector(&["ExampleBot"]);
    now.restore(&before.into_known());
    now.add_fields(&fields(&[("robots-tag", "*;max-snippet=5")]));
    let said = now.annotation();
    assert_eq!(
        said.header_value(&FieldFormat::default()),
        "examplebot=(max-snippet;value=5;src=r noai;src=m noindex;src=x);\
         state=complete;from=@1795132800"
    );
}

// TDMRep, "Processing priority"; a 304 confirms the page, not the earlier TDM file.
#[test]
fn the_current_tdm_file_counts_with_a_304() {
    let file = TdmFile::parse(br#"[{"location": "/", "tdm-reservation": 1}]"#);
    let preferences = |known: Option<&SavedDirectives>, rule: Option<&TdmRule>, now: &[&str]| {
        let mut collector = collector(&["ExampleBot"]);
        if let Some(known) = known {
            collector.restore(known);
        }
        if let Some(rule) = rule {
            collector.add_tdm_rule(rule);
        }
        for value in now {
            collector.add_notice(&Notice::TdmReservation((*value).to_owned()));
        }
        let annotation = collector.annotation();
        let shown: Vec<_> = annotation
            .preferences()
            .iter()
            .map(ToString::to_string)
            .collect();
        (shown, annotation.into_known())
    };
    let (before, known) = preferences(None, file.binding("/"), &[]);
    assert_eq!(before, ["tdm-reservation:1"]);
    assert_eq!(preferences(Some(&known), None, &[]).0, [] as [&str; 0]);
    let (_, known) = preferences(None, None, &["0"]);
    let (now, _) = preferences(Some(&known), file.binding("/"), &[]);
    assert_eq!(now, ["tdm-reservation:0"]);
}

#[test]
fn a_304_keeps_the_reason_for_a_partial_annotation() {
    let mut before = collector(&[]);
    before.miss(PartialReason::HeadLimit);
    let before = before.annotation();
    let mut now = collector(&[]);
    now.restore(&before.into_known());
    assert_eq!(now.annotation().why(), Some("head-limit"));
}

// Ours: a meta after the head is reported, but is not in force.
#[test]
fn directives_after_the_head_are_reported_but_not_in_force() {
    let mut collector = collector(&["ExampleBot"]);
    for (name, content) in [("robots", "noindex"), ("otherbot", "noai")] {
        collector.add_meta_outside(&Meta {
            name: name.into(),
            content: content.into(),
        });
    }
    let said = collector.annotation();
    assert!(said.directives().is_empty());
    assert_eq!(
        said.header_value(&FieldFormat::default()),
        "examplebot=();state=complete, outside=(noindex;src=m)"
    );
}

// Ours: the evidence quotes the text as written.
#[test]
fn statements_are_quoted_as_written() {
    let mut collector = collector(&[]);
    collector.add_fields(&fields(&[("x-robots-tag", "noidnex"), ("server", "x")]));
    collector.add_meta(&Meta {
        name: "Robots".into(),
        content: "NoIndex".into(),
    });
    assert_eq!(
        collector.annotation().quotations().json(),
        r#"[{"by":"x-robots-tag","said":"noidnex"},{"by":"meta Robots","said":"NoIndex"}]"#
    );
}
