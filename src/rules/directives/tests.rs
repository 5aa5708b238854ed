use super::*;

fn gathering<'a>(tokens: &'a [&'a str]) -> Gathering<'a> {
    Gathering::new(Reading {
        tokens,
        now: "2026-11-20T00:00:00Z".parse().unwrap(),
        field_limit: 32 * 1024,
    })
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
    let set = gathering.directives;
    let directive = set.iter().next().unwrap();
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
        said.header_value(),
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
    ];
    for (name, content) in names {
        gathering.meta(&Meta {
            name: name.into(),
            content: content.into(),
        });
    }
    assert_eq!(gathering.annotation().directives(), ["spc"]);
}

#[test]
fn the_first_reason_stays_unless_we_failed() {
    let mut gathering = gathering(&[]);
    gathering.miss(Why::Coding);
    gathering.miss(Why::Time);
    assert_eq!(gathering.state, State::Partial(Why::Coding));
    gathering.fail();
    assert_eq!(gathering.annotation().why(), Some("internal"));
}
