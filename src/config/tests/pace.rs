//! Tests of `pace`: tables that may be given in part, and rules. All ours;
//! docs/pace.md.

use std::num::NonZeroU32;
use std::time::Duration;

use super::{file, problems, read, text};
use politesse_pace::options::{Options, QueueLimits};
use politesse_pace::policy::{HostTerms, PaceLimits, Rate};
use politesse_robots::VisitTime;

fn pace(configuration: &str) -> Options {
    file(configuration).unwrap().settings().pace.clone()
}

fn terms(options: &Options, host: &str) -> HostTerms {
    options
        .policy
        .terms(&host.parse().unwrap())
        .as_ref()
        .clone()
}

fn rate(text: &str) -> Option<Rate> {
    text.parse().ok()
}

#[test]
fn an_empty_configuration_gives_the_documented_defaults() {
    let pace = pace("");
    assert_eq!(format!("{pace:?}"), format!("{:?}", Options::default()));
    assert_eq!(pace.max_wait, Duration::from_secs(120));
    let queue = pace.queue;
    let queue = [queue.origin, queue.crawler, queue.total].map(usize::from);
    assert_eq!(queue, [256, 512, 10_000]);
    let times = pace.back_off;
    let times = [times.first, times.longest, times.forgive].map(|time| time.as_secs());
    assert_eq!(times, [60, 24 * 60 * 60, 30 * 60]);
    for none in [pace.crawler, pace.total, pace.domain, pace.address] {
        assert!(none.are_none());
    }
    let terms = terms(&pace, "a.example");
    assert_eq!((terms.in_flight, terms.rate), (4, rate("5/s")));
}

const ALL: &str = r#"
[pace]
profile = "archive"
max_wait = "30s"
origin = { in_flight = 2 }
crawler = { in_flight = 50 }
total = { rate = "500/s" }
domain = { rate = "2/s" }
address = { in_flight = 8, rate = "4/m" }
queue = { total = 99 }
max_hosts = 7

[pace.backoff]
first = "5s"

[[pace.rule]]
origin = "https://own.example:8443"
profile = "owned"
reason = " ours "

[[pace.rule]]
origin = "*.museum.example"
in_flight = 3
rate = "20/m"
hours = "22:00-06:00"
reason = "asked by its owner"
"#;

#[test]
fn every_key_is_read_and_absent_keys_get_their_defaults() {
    let pace = pace(ALL);
    assert_eq!(pace.max_wait, Duration::from_secs(30));
    assert_eq!(pace.crawler.in_flight, NonZeroU32::new(50));
    assert_eq!(pace.total.rate, rate("500/s"));
    assert_eq!(pace.domain.rate, rate("2/s"));
    let address = PaceLimits {
        in_flight: NonZeroU32::new(8),
        rate: rate("4/m"),
    };
    assert_eq!(pace.address, address);
    let default = QueueLimits::default();
    let queue = (pace.queue.origin, pace.queue.crawler);
    assert_eq!(queue, (default.origin, default.crawler));
    assert_eq!(pace.queue.total.get(), 99);
    assert_eq!(pace.max_hosts.get(), 7);
    let back_off = (pace.back_off.first, pace.back_off.forgive);
    assert_eq!(
        back_off,
        (Duration::from_secs(5), Duration::from_secs(30 * 60))
    );
}

#[test]
fn files_that_follow_a_page_have_limits() {
    let limits = pace("pace.requisites = { files = 3 }").requisites;
    let usual = Options::default().requisites;
    assert_eq!((limits.files.get(), limits.time), (3, usual.time));
    for wrong in [
        "files = 0",
        "files = 1001",
        "time = \"0s\"",
        "time = \"11m\"",
    ] {
        let told = problems(file(&format!("pace.requisites = {{ {wrong} }}")));
        assert_eq!(told.len(), 1, "{told:?}");
    }
}

#[test]
fn rules_apply_to_their_hosts_and_keep_the_terms_they_do_not_set() {
    let pace = pace(ALL);
    let usual = terms(&pace, "a.example");
    assert_eq!((usual.in_flight, usual.rate), (2, None));
    assert!(usual.adaptive.is_some());
    let own = terms(&pace, "own.example");
    assert_eq!((own.in_flight, own.adaptive), (32, None));
    assert_eq!(own.reason.as_deref(), Some("ours"));
    let museum = terms(&pace, "b.a.museum.example");
    assert_eq!((museum.in_flight, museum.rate), (3, rate("20/m")));
    assert_eq!(museum.adaptive, usual.adaptive);
    assert_eq!(museum.hours, VisitTime::parse("2200-0600"));
}

#[test]
fn pace_as_printed_by_show_reads_back_as_the_same_settings() {
    let once = file(ALL).unwrap();
    let twice = file(&once.show()).unwrap();
    assert_eq!(text(&once), text(&twice));
    let set = read(
        "",
        &[("POLITESSE_PACE__PROFILE", "owned")],
        &["pace.total={ rate = '1/h' }"],
    );
    let pace = set.unwrap().settings().pace.clone();
    assert_eq!(terms(&pace, "a.example").in_flight, 32);
    assert_eq!(pace.total.rate, rate("1/h"));
}

/// One test per row: a wrong line, and the problem reported for it.
macro_rules! wrong {
    ($($name:ident: $text:literal is $told:literal;)+) => {$(
        #[test]
        fn $name() {
            let told = problems(file($text));
            assert_eq!(told.len(), 1, "{told:?}");
            assert!(told[0].contains($told), "{told:?}");
        }
    )+};
}

wrong! {
    a_rate_has_a_unit: "[pace]\norigin = { rate = '5' }" is "line 2: pace.origin.rate is \"5\"; a rate from 1 to 1000000 a second";
    a_rate_is_not_zero: "[pace]\norigin = { rate = '0/s' }" is "pace.origin.rate";
    a_rate_is_not_a_bare_number: "[pace]\ntotal = { rate = 5 }" is "pace.total.rate is 5";
    in_flight_is_at_least_one: "[pace]\norigin = { in_flight = 0 }" is "pace.origin.in_flight is 0; a whole number from 1";
    a_misspelled_ceiling_is_not_a_key: "[pace]\norigin = { in_fligt = 3 }" is "pace.origin.in_fligt is not a key; did you mean pace.origin.in_flight?";
    a_queue_has_room: "[pace]\nqueue = { total = 0 }" is "pace.queue.total is 0";
    an_unknown_queue_is_not_a_key: "[pace]\nqueue = { host = 3 }" is "pace.queue.host is not a key";
    a_back_off_is_longer_than_zero: "[pace]\nbackoff = { first = '0s' }" is "pace.backoff.first is \"0s\"";
    a_back_off_is_at_most_a_day: "[pace]\nbackoff = { longest = '25h' }" is "pace.backoff.longest is \"25h\"; a duration from 1ms to 24h";
    the_longest_back_off_is_not_shorter_than_the_first: "[pace]\nbackoff = { longest = '30s' }" is "pace.backoff is { longest = \"30s\" }; a table";
    a_rule_needs_an_origin: "[[pace.rule]]\nreason = 'x'" is "`origin` in it, a host";
    a_rule_needs_a_reason: "[[pace.rule]]\norigin = 'a.example'" is "`reason` in it, a reason";
    the_origin_of_a_rule_has_no_path: "[[pace.rule]]\norigin = 'https://a.example/x'\nreason = 'x'" is "line 2: origin of entry 1 of pace.rule";
    a_rule_names_an_existing_profile: "[[pace.rule]]\norigin = 'a.example'\nreason = 'x'\nprofile = 'fast'" is "profile of entry 1 of pace.rule is \"fast\"; \"standard\", \"archive\" or \"owned\"";
    hours_have_colons: "[[pace.rule]]\norigin = 'a.example'\nreason = 'x'\nhours = '2200-0600'" is "hours of entry 1 of pace.rule is \"2200-0600\"; a time of the day";
    hours_are_within_a_day: "[[pace.rule]]\norigin = 'a.example'\nreason = 'x'\nhours = '22:00-25:00'" is "hours of entry 1";
    hours_end_at_another_time_than_they_begin: "[[pace.rule]]\norigin = 'a.example'\nreason = 'x'\nhours = '22:00-22:00'" is "hours of entry 1";
    hours_have_two_digits: "[[pace.rule]]\norigin = 'a.example'\nreason = 'x'\nhours = '220:0-06:00'" is "hours of entry 1";
}
