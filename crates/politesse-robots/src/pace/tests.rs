//! Pace records: each test passes a file through the engine and checks pauses and times.

use super::*;
use crate::crawler::Crawler;
use crate::engine::RobotsTxt;

/// Returns the pace records of a file for FooBot.
fn asked(robots: &str) -> Option<Arc<PaceRecords>> {
    let robots = RobotsTxt::parse(robots.as_bytes());
    robots.binding(&Crawler::parse("FooBot/1")).pace().cloned()
}

/// Returns the pace records of a group with these lines.
fn lines(lines: &str) -> PaceRecords {
    let asked = asked(&format!("User-agent: FooBot\n{lines}\nDisallow: /x\n"));
    asked.as_deref().cloned().unwrap_or_default()
}

fn at(clock: &str) -> Timestamp {
    format!("2026-11-21T{clock}:00Z").parse().unwrap()
}

/// One test per row: the pause that lines ask for at a time of day.
macro_rules! pauses {
    ($($name:ident: $lines:literal at $clock:literal is $pause:expr;)+) => {$(
        #[test]
        fn $name() {
            let pause: Option<(f64, PauseRecord)> = $pause;
            let pause = pause.map(|(seconds, reason)| (Duration::from_secs_f64(seconds), reason));
            assert_eq!(lines($lines).delay(at($clock)), pause);
        }
    )+};
}

use PauseRecord::{CrawlDelay, RequestRate as Rate};

// Ours.
pauses! {
    a_delay_is_seconds: "Crawl-delay: 10" at "12:00" is Some((10.0, CrawlDelay));
    a_delay_may_have_a_fraction: "crawl-delay: 0.5" at "12:00" is Some((0.5, CrawlDelay));
    a_delay_of_zero_is_no_pause: "Crawl-delay: 0" at "12:00" is None;
    the_last_of_several_delays_counts: "Crawl-delay: 1\nCrawl-delay: 3\nCrawl-delay: 2" at "12:00" is Some((2.0, CrawlDelay));
    a_delay_of_years_is_a_day: "Crawl-delay: 999999999" at "12:00" is Some((86_400.0, CrawlDelay));
    a_delay_too_large_for_a_duration_is_a_day: "Crawl-delay: 9999999999999999999999999999999999999999" at "12:00" is Some((86_400.0, CrawlDelay));
    an_exponent_is_no_delay: "Crawl-delay: 1e9" at "12:00" is None;
    not_a_number_is_no_delay: "Crawl-delay: NaN" at "12:00" is None;
    a_negative_delay_is_ignored: "Crawl-delay: -5" at "12:00" is None;
    a_decimal_comma_counts_as_a_point: "Crawl-delay: 0,5" at "12:00" is Some((0.5, CrawlDelay));
    a_delay_may_have_a_unit: "Crawl-delay: 5s" at "12:00" is Some((5.0, CrawlDelay));
    a_unit_may_be_a_word: "Crawl-delay: 10 Seconds" at "12:00" is Some((10.0, CrawlDelay));
    another_unit_is_no_delay: "Crawl-delay: 10ms" at "12:00" is None;
    invisible_marks_in_a_delay_are_skipped: "Crawl-delay: \u{a0}1\u{200b}0\u{a0}" at "12:00" is Some((10.0, CrawlDelay));
    a_delay_with_a_unit_does_not_shorten_another: "Crawl-delay: 10\nCrawl-delay: 2s" at "12:00" is Some((10.0, CrawlDelay));
    a_delay_with_a_unit_may_lengthen_another: "Crawl-delay: 20s\nCrawl-delay: 10" at "12:00" is Some((20.0, CrawlDelay));
    an_invalid_delay_leaves_valid_ones_in_force: "Crawl-delay: 2\nCrawl-delay: soon" at "12:00" is Some((2.0, CrawlDelay));
    a_rate_is_a_pause: "Request-rate: 1/5" at "12:00" is Some((5.0, Rate));
    a_rate_may_exceed_one_per_second: "Request-rate: 10/1" at "12:00" is Some((0.1, Rate));
    a_rate_of_hours_is_a_pause: "Request-rate: 20/1h" at "12:00" is Some((180.0, Rate));
    a_rate_of_years_is_a_day: "Request-rate: 1/99999h" at "12:00" is Some((86_400.0, Rate));
    the_slowest_of_several_rates_counts: "Request-rate: 1/5\nRequest-rate: 1/9\nRequest-rate: 1/7" at "12:00" is Some((9.0, Rate));
    a_rate_counts_if_it_is_slower_than_the_delay: "Crawl-delay: 4\nRequest-rate: 1/5" at "12:00" is Some((5.0, Rate));
    a_delay_counts_if_it_is_as_long_as_the_rate: "Crawl-delay: 5\nRequest-rate: 1/5" at "12:00" is Some((5.0, CrawlDelay));
    a_rate_applies_in_its_time: "Request-rate: 1/60 0600-0900" at "06:00" is Some((60.0, Rate));
    a_rate_does_not_apply_outside_its_time: "Request-rate: 1/60 0600-0900" at "09:00" is None;
    a_rate_without_a_time_is_for_the_rest_of_the_day: "Request-rate: 1/60\nRequest-rate: 1/2 0600-0900" at "12:00" is Some((60.0, Rate));
    a_rate_with_a_time_replaces_one_without: "Request-rate: 1/60\nRequest-rate: 1/2 0600-0900" at "07:00" is Some((2.0, Rate));
    the_slowest_of_overlapping_times_counts: "Request-rate: 1/2 0600-0900\nRequest-rate: 1/8 0800-1000" at "08:30" is Some((8.0, Rate));
    a_rate_may_extend_past_midnight: "Request-rate: 1/7 2200-0600" at "00:30" is Some((7.0, Rate));
    a_rate_for_a_time_of_no_length_applies_all_day: "Request-rate: 1/7 0600-0600" at "12:00" is Some((7.0, Rate));
    invalid_rates_are_ignored: "Request-rate: 0/5\nRequest-rate: 1/0\nRequest-rate: fast" at "12:00" is None;
}

// Ours: a crawler without pace records costs nothing.
#[test]
fn without_pace_records_for_the_crawler_there_is_no_pace() {
    assert_eq!(asked(""), None);
    assert_eq!(asked("User-agent: FooBot\nDisallow: /x\n"), None);
    assert_eq!(asked("User-agent: BarBot\nCrawl-delay: 5\n"), None);
    assert_eq!(asked("User-agent: FooBot\nVisit-time: soon\n"), None);
}

// RFC 9309, section 2.2.1: groups for one crawler are merged. Ours: in each group, a
// pace record binds the agents directly above it.
#[test]
fn records_of_every_group_bind_the_agents_above_them() {
    let robots = "User-agent: *\nRequest-rate: 1/9\nDisallow: /x\n\
                  User-agent: FooBot\nVisit-time: 0600-0845\nUser-agent: BarBot\n\
                  Request-rate: 1/2\nDisallow: /y\n\
                  User-agent: foobot\nRequest-rate: 1/4\nCrawl-delay: 1\nVisit-time: 1000-1100\n";
    let asked = asked(robots).unwrap();
    let rates: Vec<_> = asked.rates.iter().map(ToString::to_string).collect();
    let visits: Vec<_> = asked.visits.iter().map(ToString::to_string).collect();
    assert_eq!(rates, ["1/4s"]);
    assert_eq!(visits, ["0600-0845", "1000-1100"]);
    assert_eq!(asked.crawl_delay, Some(Duration::from_secs(1)));
}

// Conner, 1996.
#[test]
fn a_site_is_open_in_each_of_its_visit_times() {
    let asked = lines("Visit-time: 0600-0845\nVisit-time: 2200-0100");
    for open in ["06:00", "08:44", "22:00", "00:59"] {
        assert_eq!(asked.opens(at(open)), None, "{open}");
    }
    assert_eq!(asked.opens(at("01:00")), Some(at("06:00")));
    assert_eq!(asked.opens(at("08:45")), Some(at("22:00")));
    assert_eq!(lines("Crawl-delay: 1").opens(at("12:00")), None);
}

// Ours: a file full of visit times must not slow down decisions.
#[test]
fn at_most_lines_max_rates_and_visit_times_are_kept() {
    let times = (0..400).map(|minute| format!("{:02}{:02}", minute / 60, minute % 60));
    let many: String = times
        .map(|time| format!("Visit-time: {time}-2300\nRequest-rate: 1/5 {time}-2300\n"))
        .collect();
    let asked = lines(&many);
    assert_eq!(asked.visits.len(), PaceRecords::LINES_MAX);
    assert_eq!(asked.rates.len(), PaceRecords::LINES_MAX);
}

/// Combines the pace records of two sets of lines, and checks the pause at every minute.
fn both(one: &str, other: &str) -> PaceRecords {
    let several = [one, other].map(|text| Arc::new(lines(text)));
    let all = PaceRecords::all(several.iter()).unwrap();
    let turned = PaceRecords::all(several.iter().rev()).unwrap();
    for minute in 0..DAY {
        let now = at(&format!("{:02}:{:02}", minute / 60, minute % 60));
        let delays = several.each_ref().map(|asked| asked.delay(now));
        let longest = delays.iter().flatten().map(|(pause, _)| *pause).max();
        for all in [&all, &turned] {
            let delay = all.delay(now).map(|(pause, _)| pause);
            assert_eq!(delay, longest, "{minute}");
        }
    }
    all.as_ref().clone()
}

// Ours: each of several binding groups must be obeyed.
#[test]
fn the_longest_pause_of_several_bindings_applies_at_every_minute() {
    both("Crawl-delay: 1", "Crawl-delay: 5");
    both("Crawl-delay: 3", "Request-rate: 1/5");
    both("Request-rate: 1/9", "Request-rate: 1/5");
    both(
        "Request-rate: 1/9\nRequest-rate: 1/1 2200-0600",
        "Request-rate: 1/5",
    );
    both(
        "Request-rate: 1/2 0600-1200\nRequest-rate: 1/3",
        "Request-rate: 1/9 0900-1500\nCrawl-delay: 2.5",
    );
    both("Request-rate: 1/2 0600-0600", "Request-rate: 1/9 2300-0100");
}

// Ours: each of several binding groups must be obeyed.
#[test]
fn several_bindings_are_open_only_when_each_is() {
    let asked = both("Visit-time: 2000-0800", "Visit-time: 0600-2200");
    for minute in 0..DAY {
        let now = at(&format!("{:02}:{:02}", minute / 60, minute % 60));
        let is_open = (6 * 60..8 * 60).contains(&minute) || (20 * 60..22 * 60).contains(&minute);
        assert_eq!(asked.opens(now).is_none(), is_open, "{minute}");
    }
    let asked = both("Visit-time: 2000-0800", "Crawl-delay: 1");
    assert_eq!(asked.opens(at("12:00")), Some(at("20:00")));
    let asked = both("Crawl-delay: 1", "Visit-time: 2000-0800");
    assert_eq!(asked.opens(at("12:00")), Some(at("20:00")));
}

// Ours: visit times must never exclude all visits.
#[test]
fn if_visit_times_do_not_overlap_those_of_the_first_binding_apply() {
    let asked = both("Visit-time: 0600-0800", "Visit-time: 1000-1200");
    assert_eq!(asked.opens(at("07:00")), None);
    assert_eq!(
        asked.opens(at("10:00")),
        "2026-11-22T06:00:00Z".parse().ok()
    );
}
