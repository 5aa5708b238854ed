use super::*;

fn reading<'a>(tokens: &'a [&'a str]) -> Reading<'a> {
    Reading {
        tokens,
        now: "2026-11-20T00:00:00Z".parse().unwrap(),
        robots: None,
        limits: Limits::default(),
    }
}

fn gathering<'a>(tokens: &'a [&'a str]) -> Gathering<'a> {
    Gathering::new(reading(tokens))
}

fn fields(fields: &[(&'static str, &'static str)]) -> http::HeaderMap {
    let fields = fields.iter().map(|&(name, value)| {
        let name = http::HeaderName::from_static(name);
        (name, http::HeaderValue::from_static(value))
    });
    fields.collect()
}

fn annotation(lines: &[&str]) -> Annotation {
    let mut gathering = gathering(&["ExampleBot"]);
    for line in lines {
        gathering.field("x-robots-tag", line.as_bytes());
    }
    gathering.annotation()
}

// draft-illyes-repext-03, section 3.1: the union of all that is said.
#[test]
fn a_name_never_opts_out() {
    let said = annotation(&["noindex", "examplebot: all", "examplebot: nofollow"]);
    assert_eq!(said.directives(), ["nofollow", "noindex"]);
}

// Ours, after Google's document.
#[test]
fn the_strictest_value_counts_with_its_sources_alone() {
    let mut gathering = gathering(&[]);
    gathering.field("Robots-Tag", b"*;max-snippet=50");
    gathering.field("X-Robots-Tag", b"max-snippet:20");
    let annotation = gathering.annotation();
    let directive = annotation.known().said.own.iter().next().unwrap();
    assert_eq!(directive.to_string(), "max-snippet:20");
    assert!(directive.sources().eq([Source::XRobotsTag]));
}

#[test]
fn a_date_that_has_come_says_noindex() {
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
    let mut gathering = gathering(&["bingbot", "msnbot"]);
    gathering.field("X-Robots-Tag", b"MSNBot: noindex");
    let said = gathering.annotation();
    assert_eq!(
        said.header_value(&Form::default()),
        "bingbot=(noindex;src=x);state=complete"
    );
}

#[test]
fn an_unidentified_crawler_gets_what_everyone_is_told() {
    let mut gathering = gathering(&[]);
    gathering.field("X-Robots-Tag", b"nofollow, examplebot: noindex");
    assert_eq!(gathering.annotation().directives(), ["nofollow"]);
}

#[test]
fn more_lines_than_are_read_make_it_partial() {
    let whole = annotation(&["noai"; Gathering::LINES_MAX]);
    assert_eq!(whole.state(), State::Complete);
    let more = annotation(&["noai"; Gathering::LINES_MAX + 1]);
    assert_eq!(more.why(), Some("field-limit"));
}

#[test]
fn a_joined_line_is_suspected_only_by_crawlers_it_may_miss() {
    let line = "noindex; OtherBot=noai, nosnippet";
    assert_eq!(annotation(&[line]).why(), Some("joined"));
    let line = "noindex; ExampleBot=noai, nosnippet";
    assert_eq!(annotation(&[line]).state(), State::Complete);
}

#[test]
fn a_meta_names_one_crawler_and_not_several() {
    let mut gathering = gathering(&["ExampleBot"]);
    let names = [
        ("examplebot, otherbot", "noindex"),
        ("all", "noai"),
        (" Robots ", "spc"),
        ("*", "noml"),
        ("ExampleBot/2.1", "nosnippet"),
    ];
    for (name, content) in names {
        gathering.meta(&Meta {
            name: name.into(),
            content: content.into(),
        });
    }
    let said = gathering.annotation().directives();
    assert_eq!(said, ["noml", "nosnippet", "spc"]);
}

#[test]
fn the_first_reason_stays_unless_we_failed() {
    let mut gathering = gathering(&[]);
    gathering.miss(Why::Coding);
    gathering.miss(Why::Time);
    assert_eq!(gathering.annotation().state(), State::Partial(Why::Coding));
    let mut gathering = self::gathering(&[]);
    gathering.miss(Why::Coding);
    gathering.fail();
    assert_eq!(gathering.annotation().why(), Some("internal"));
}

// Directives.md, sections 1.4.1 and 4.4: a limit on each line, and on the sum.
#[test]
fn a_long_line_does_not_silence_another() {
    let limits = Limits {
        field_limit: 13,
        ..Limits::default()
    };
    let mut gathering = Gathering::new(Reading {
        limits,
        ..reading(&[])
    });
    gathering.field("x-robots-tag", b"noindex, noai");
    gathering.field("x-robots-tag", b"spc, nosnippet");
    gathering.field("robots-tag", b"*;noarchive");
    let said = gathering.annotation();
    assert_eq!(said.directives(), ["noai", "noarchive", "noindex", "spc"]);
    assert_eq!(said.why(), Some("field-limit"));
}

#[test]
fn more_bytes_than_are_read_make_it_partial() {
    let long = format!("noai{}", " ".repeat(Gathering::FIELD_BYTES_MAX / 2));
    let said = annotation(&[&long, &long, "noindex"]);
    assert_eq!(said.directives(), ["noai"]);
    assert_eq!(said.why(), Some("field-limit"));
}

// Directives.md, section 1.1, open issue 2, and `directives.both_fields`.
#[test]
fn where_both_fields_are_sent_the_operator_says_what_counts() {
    let sent = fields(&[("x-robots-tag", "noindex"), ("robots-tag", "*;nofollow")]);
    let said = |both_fields| {
        let limits = Limits {
            both_fields,
            ..Limits::default()
        };
        let mut gathering = Gathering::new(Reading {
            limits,
            ..reading(&[])
        });
        gathering.fields(&sent);
        gathering.annotation().directives()
    };
    assert_eq!(said(BothFields::Union), ["nofollow", "noindex"]);
    assert_eq!(said(BothFields::RobotsTag), ["nofollow"]);
}

#[test]
fn x_robots_tag_alone_always_counts() {
    let limits = Limits {
        both_fields: BothFields::RobotsTag,
        ..Limits::default()
    };
    let mut gathering = Gathering::new(Reading {
        limits,
        ..reading(&[])
    });
    gathering.fields(&fields(&[("x-robots-tag", "noindex")]));
    assert_eq!(gathering.annotation().directives(), ["noindex"]);
}

// draft-illyes-repext-03, section 4: what is not sent again is still in force.
#[test]
fn what_is_repeated_adds_up_with_what_is_said_now() {
    let mut before = gathering(&["ExampleBot"]);
    before.fields(&fields(&[("x-robots-tag", "noindex, max-snippet:20")]));
    before.meta(&Meta {
        name: "examplebot".into(),
        content: "noai".into(),
    });
    let before = before.annotation();
    let mut now = gathering(&["ExampleBot"]);
    now.repeat(before.known());
    now.fields(&fields(&[("robots-tag", "*;max-snippet=5")]));
    let said = now.annotation();
    assert_eq!(
        said.header_value(&Form::default()),
        "examplebot=(max-snippet;value=5;src=r noai;src=m noindex;src=x);\
         state=complete;from=@1795132800"
    );
}

#[test]
fn what_was_not_known_then_is_not_known_now() {
    let mut before = gathering(&[]);
    before.miss(Why::HeadLimit);
    let before = before.annotation();
    let mut now = gathering(&[]);
    now.repeat(before.known());
    assert_eq!(now.annotation().why(), Some("head-limit"));
}

// Directives.md, section 2.4: behind the head a meta is told, not in force.
#[test]
fn what_stands_behind_the_head_is_told_and_not_in_force() {
    let mut gathering = gathering(&["ExampleBot"]);
    for (name, content) in [("robots", "noindex"), ("otherbot", "noai")] {
        gathering.meta_outside(&Meta {
            name: name.into(),
            content: content.into(),
        });
    }
    let said = gathering.annotation();
    assert!(said.directives().is_empty());
    assert_eq!(
        said.header_value(&Form::default()),
        "examplebot=();state=complete, outside=(noindex;src=m)"
    );
}

// Directives.md, 1.4.5: evidence is what was written.
#[test]
fn what_was_written_is_quoted() {
    let mut gathering = gathering(&[]);
    gathering.fields(&fields(&[("x-robots-tag", "noidnex"), ("server", "x")]));
    gathering.meta(&Meta {
        name: "Robots".into(),
        content: "NoIndex".into(),
    });
    assert_eq!(
        gathering.annotation().quotations().json(),
        r#"[{"by":"x-robots-tag","said":"noidnex"},{"by":"meta Robots","said":"NoIndex"}]"#
    );
}
