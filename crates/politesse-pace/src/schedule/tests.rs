//! Starts of one host, by example and by property.

use proptest::prelude::*;

use super::*;

const FREE: StartLimits = StartLimits {
    in_flight: 4,
    spacing: Duration::ZERO,
    delay: Duration::ZERO,
    delay_reason: Reason::CrawlDelay,
    back_off_until: Duration::ZERO,
    opens_at: Duration::ZERO,
    max_turn: Duration::from_secs(3600),
    share: FleetShare::WHOLE,
};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn delayed(delay: u64) -> StartLimits {
    StartLimits {
        delay: seconds(delay),
        ..FREE
    }
}

/// Returns the earliest start in seconds, and the reason for the delay.
fn from(schedule: &Schedule, kind: Kind, limits: &StartLimits) -> (u64, Reason) {
    let delay = schedule.next(kind, limits, Uptime::ZERO);
    (delay.wait().unwrap().as_secs(), delay.reason)
}

/// Makes one request that takes a second.
fn visited(schedule: &mut Schedule, at: u64, limits: &StartLimits) {
    let start = schedule.start(Kind::Page, limits, seconds(at)).unwrap();
    schedule.end(start, seconds(at + 1));
}

#[test]
fn a_delay_counts_from_the_end_and_allows_one_request_in_flight() {
    let mut schedule = Schedule::default();
    let limits = delayed(2);
    let start = schedule.start(Kind::Page, &limits, seconds(10)).unwrap();
    assert_eq!(
        schedule.next(Kind::Page, &limits, Uptime::ZERO),
        Delay::of_crawler(Reason::CrawlDelay, DelayEnd::OnEvent(seconds(10 + 3600)))
    );
    schedule.end(start, seconds(13));
    assert_eq!(
        from(&schedule, Kind::Page, &limits),
        (15, Reason::CrawlDelay)
    );
}

#[test]
fn a_changed_delay_still_counts_from_the_last_end() {
    let mut schedule = Schedule::default();
    visited(&mut schedule, 10, &delayed(1));
    assert_eq!(
        from(&schedule, Kind::Page, &delayed(10)),
        (21, Reason::CrawlDelay)
    );
    visited(&mut schedule, 21, &delayed(10));
    // For another crawler, or after a change of robots.txt.
    assert_eq!(
        from(&schedule, Kind::Page, &delayed(1)),
        (23, Reason::CrawlDelay)
    );
    visited(&mut schedule, 23, &delayed(1));
    assert_eq!(
        from(&schedule, Kind::Page, &delayed(10)),
        (34, Reason::CrawlDelay)
    );
    // While the longest delay counts, the host must be remembered.
    assert!(!schedule.is_idle(&FREE, seconds(33)));
    assert!(schedule.is_idle(&FREE, seconds(34)));
}

#[test]
fn a_start_given_back_is_free_unless_a_later_one_followed() {
    let limits = StartLimits {
        spacing: seconds(5),
        ..FREE
    };
    let mut schedule = Schedule::default();
    let first = schedule.start(Kind::Page, &limits, seconds(10)).unwrap();
    schedule.give_back(first);
    let first = schedule.start(Kind::Page, &limits, seconds(11)).unwrap();
    let _second = schedule.start(Kind::Page, &limits, seconds(16)).unwrap();
    schedule.give_back(first);
    assert_eq!(from(&schedule, Kind::Page, &limits), (21, Reason::Ceiling));
    assert_eq!(schedule.in_flight(), 1);
}

// Ours: a store that came back empty does not know the last request to a host, so the
// next lease counts from when it could be granted (docs/fleet.md: no delay is cut short).
#[test]
fn a_rate_counts_from_the_last_end_if_no_start_is_known() {
    let limits = StartLimits {
        spacing: seconds(60),
        ..FREE
    };
    let mut schedule = Schedule::default();
    let lost = HostHistory {
        ended: Some(seconds(3)),
        ..HostHistory::default()
    };
    schedule.learn(&lost, seconds(10));
    assert_eq!(from(&schedule, Kind::Page, &limits), (67, Reason::Ceiling));
}

// Ours: giving a turn back does not undo a start at another node.
#[test]
fn giving_back_keeps_a_later_start_of_another_node() {
    let limits = StartLimits {
        spacing: seconds(5),
        ..FREE
    };
    let mut schedule = Schedule::default();
    let first = schedule.start(Kind::Page, &limits, seconds(10)).unwrap();
    let other = HostHistory {
        started: Some(seconds(1)),
        ..HostHistory::default()
    };
    schedule.learn(&other, seconds(13));
    schedule.give_back(first);
    assert_eq!(from(&schedule, Kind::Page, &limits), (17, Reason::Ceiling));
}

// Ours: robots.txt fetches keep the delay as well, but do not delay the first page.
#[test]
fn a_robots_txt_keeps_the_delay_and_a_page_may_follow_at_once() {
    let limits = delayed(10);
    let mut schedule = Schedule::default();
    visited(&mut schedule, 0, &limits);
    let next = |schedule: &Schedule, kind| from(schedule, kind, &limits).0;
    assert_eq!(next(&schedule, Kind::RobotsTxt), 11);
    let start = schedule.start(Kind::RobotsTxt, &limits, seconds(11));
    assert_eq!(
        schedule.next(Kind::Page, &limits, Uptime::ZERO),
        Delay::of_crawler(Reason::CrawlDelay, DelayEnd::OnEvent(seconds(11 + 3600)))
    );
    schedule.end(start.unwrap(), seconds(13));
    assert_eq!(next(&schedule, Kind::Page), 23);
    assert_eq!(next(&schedule, Kind::PageAtOnce), 11);
    assert_eq!(next(&schedule, Kind::RobotsTxt), 23);
    let start = schedule.start(Kind::PageAtOnce, &limits, seconds(14));
    schedule.end(start.unwrap(), seconds(15));
    assert_eq!(next(&schedule, Kind::Page), 25);
    assert_eq!(next(&schedule, Kind::RobotsTxt), 25);
    assert!(!schedule.is_idle(&FREE, seconds(24)));
}

// Ours: no delay is known until a page asks for one.
#[test]
fn the_first_robots_txt_fetches_of_a_host_do_not_wait() {
    let mut schedule = Schedule::default();
    for at in [0, 1] {
        let robots = schedule.start(Kind::RobotsTxt, &FREE, seconds(at)).unwrap();
        schedule.end(robots, seconds(at + 1));
    }
    visited(&mut schedule, 2, &delayed(2));
}

#[test]
fn giving_back_one_kind_does_not_affect_the_other() {
    let limits = delayed(10);
    let mut schedule = Schedule::default();
    visited(&mut schedule, 0, &limits);
    let page = schedule.start(Kind::Page, &limits, seconds(11)).unwrap();
    schedule.give_back(page);
    let robots = schedule.start(Kind::RobotsTxt, &limits, seconds(11));
    schedule.give_back(robots.unwrap());
    assert_eq!(from(&schedule, Kind::RobotsTxt, &limits).0, 11);
    visited(&mut schedule, 11, &limits);
}

// Ours: a crawler that reads slowly cannot hold up others for ever.
#[test]
fn a_request_that_takes_too_long_counts_as_ended() {
    let limits = StartLimits {
        max_turn: seconds(100),
        ..delayed(10)
    };
    let mut schedule = Schedule::default();
    let slow = schedule.start(Kind::Page, &limits, seconds(5)).unwrap();
    assert!(!schedule.overrun(Kind::Page, &limits, seconds(104)));
    assert!(schedule.overrun(Kind::Page, &limits, seconds(105)));
    assert_eq!(
        from(&schedule, Kind::Page, &limits),
        (115, Reason::CrawlDelay)
    );
    let next = schedule.start(Kind::Page, &limits, seconds(115)).unwrap();
    assert_eq!(schedule.in_flight(), 1);
    // The slow request is over now. That does not affect the request in flight.
    schedule.end(slow, seconds(120));
    assert_eq!(schedule.in_flight(), 1);
    schedule.end(next, seconds(125));
    assert_eq!(schedule.in_flight(), 0);
    assert_eq!(
        from(&schedule, Kind::Page, &limits),
        (135, Reason::CrawlDelay)
    );
    let robots = schedule
        .start(Kind::RobotsTxt, &limits, seconds(135))
        .unwrap();
    assert!(schedule.overrun(Kind::Page, &limits, seconds(235)));
    schedule.give_back(robots);
    assert_eq!(schedule.in_flight(), 0);
}

#[test]
fn a_delay_names_the_limit_that_lasts_longest() {
    let mut schedule = Schedule::default();
    visited(&mut schedule, 10, &FREE);
    assert_eq!(
        from(&Schedule::default(), Kind::Page, &FREE),
        (0, Reason::Ceiling)
    );
    let mut limits = delayed(2);
    limits.opens_at = seconds(100);
    assert_eq!(
        from(&schedule, Kind::Page, &limits),
        (100, Reason::VisitTime)
    );
    limits.back_off_until = seconds(200);
    assert_eq!(from(&schedule, Kind::Page, &limits), (200, Reason::BackOff));
}

// Ours: Heritrix's factor, and Scrapy's rule that an error speeds nothing up.
#[test]
fn an_adaptive_pause_follows_response_times_and_errors_never_shorten_it() {
    let adaptive = AdaptivePause {
        factor: 5.0,
        shortest: seconds(3),
        longest: seconds(30),
    };
    let mut schedule = Schedule::default();
    visited(&mut schedule, 0, &FREE);
    let rows = [
        (2, Outcome::Served, 10),
        (0, Outcome::Failed, 10),
        (0, Outcome::Served, 3),
        (9, Outcome::Failed, 30),
        (u64::MAX, Outcome::Served, 30),
    ];
    for (took, outcome, pause) in rows {
        schedule.adapt(&adaptive, seconds(took), outcome);
        assert_eq!(
            from(&schedule, Kind::Page, &FREE),
            (1 + pause, Reason::Ceiling)
        );
    }
    schedule.forget_adaptive();
    assert_eq!(from(&schedule, Kind::Page, &FREE).0, 0);
}

// Ours: docs/pace.md. A node that takes over the lease of a host counts its own rate from
// the page, and the site's delay from the last file.
#[test]
fn a_requisite_does_not_count_under_the_rate_of_a_fleet() {
    let limits = StartLimits {
        spacing: seconds(60),
        share: FleetShare {
            nodes: 3,
            ..FleetShare::WHOLE
        },
        ..FREE
    };
    let mut schedule = Schedule::default();
    visited(&mut schedule, 10, &limits);
    let file = schedule.start(Kind::Requisite, &limits, seconds(12));
    schedule.end(file.unwrap(), seconds(13));
    let mut history = HostHistory::default();
    schedule.write_history(&mut history, seconds(20));
    let ages = (history.started, history.ended);
    assert_eq!(ages, (Some(seconds(10)), Some(seconds(7))));
}

/// Event in the life of a schedule.
#[derive(Debug, Clone)]
enum Happens {
    Passes(u64),
    Asks(StartLimits, Kind),
    Ends(usize),
    IsGivenBack(usize),
}

fn happens() -> impl Strategy<Value = Happens> {
    let limits = (1..5_u32, 0..4_u64, prop_oneof![Just(0), 0..12_u64]);
    let limits = limits.prop_map(|(in_flight, spacing, delay)| StartLimits {
        in_flight,
        spacing: seconds(spacing),
        delay: seconds(delay),
        ..FREE
    });
    let kind = prop_oneof![
        4 => Just(Kind::Page),
        1 => Just(Kind::PageAtOnce),
        2 => Just(Kind::Requisite),
        1 => Just(Kind::RobotsTxt),
    ];
    prop_oneof![
        3 => (0..6_u64).prop_map(Happens::Passes),
        6 => (limits, kind).prop_map(|(limits, kind)| Happens::Asks(limits, kind)),
        4 => (0..8_usize).prop_map(Happens::Ends),
        1 => (0..8_usize).prop_map(Happens::IsGivenBack),
    ]
}

/// A start as the origin sees it.
#[derive(Debug, Clone)]
struct Seen {
    at: Uptime,
    ended: Option<Uptime>,
    delay: Duration,
    kind: Kind,
}

impl Seen {
    /// Returns whether a later request of `kind` keeps its delay from this one. All keep
    /// it from pages and their files. From a robots.txt, only the next robots.txt and
    /// pages after the first do.
    fn binds(&self, kind: Kind, is_first: bool) -> bool {
        match kind {
            Kind::Page => self.kind != Kind::RobotsTxt || !is_first,
            Kind::PageAtOnce | Kind::Requisite => self.kind != Kind::RobotsTxt,
            Kind::RobotsTxt => true,
        }
    }

    fn is_in_track_of(&self, other: Kind) -> bool {
        self.kind == other || self.kind.is_page() && other.is_page()
    }

    fn is_far_enough(&self, now: Uptime, delay: Duration) -> bool {
        delay.is_zero() || self.ended.is_some_and(|ended| ended + delay <= now)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    // Ours: no two starts at an origin are closer than its delay, whatever the arrivals,
    // cancellations and changes.
    #[test]
    fn no_two_starts_are_closer_than_the_delay(events in prop::collection::vec(happens(), 1..80)) {
        let mut schedule = Schedule::default();
        let mut now = seconds(1_000);
        let mut seen: Vec<Seen> = Vec::new();
        // Starts in flight, with their positions in `seen`.
        let mut under_way: Vec<(Start, usize)> = Vec::new();
        for event in events {
            match event {
                Happens::Passes(time) => now += seconds(time),
                Happens::Asks(limits, kind) => {
                    let promised = schedule.next(kind, &limits, now);
                    let started = schedule.start(kind, &limits, now);
                    let may = promised.is_over();
                    prop_assert_eq!(started.is_ok(), may);
                    let Ok(start) = started else { continue };
                    if limits.delay.is_zero() {
                        prop_assert!(under_way.len() < limits.in_flight as usize);
                    } else {
                        prop_assert!(under_way.is_empty());
                    }
                    let asked = seen.iter().rfind(|one| one.kind.is_page());
                    let is_first = asked.is_none();
                    let asked = asked.map_or(Duration::ZERO, |last| last.delay);
                    let binding = |one: &&Seen| one.binds(kind, is_first);
                    let mut paced = seen.iter().filter(|one| one.kind != Kind::Requisite);
                    if let Some(last) = paced.rfind(binding).filter(|_| kind != Kind::Requisite) {
                        prop_assert!(last.at + limits.spacing <= now);
                    }
                    let delay = match kind {
                        Kind::RobotsTxt => limits.delay.max(asked).min(ROBOTS_DELAY_MAX),
                        Kind::Page | Kind::PageAtOnce | Kind::Requisite => limits.delay,
                    };
                    for one in seen.iter().filter(binding) {
                        prop_assert!(one.is_far_enough(now, delay));
                    }
                    let place = seen.len();
                    seen.push(Seen { at: now, ended: None, delay: limits.delay, kind });
                    under_way.push((start, place));
                }
                Happens::Ends(index) if index < under_way.len() => {
                    let (start, place) = under_way.remove(index);
                    schedule.end(start, now);
                    seen[place].ended = Some(now);
                }
                Happens::IsGivenBack(index) if index < under_way.len() => {
                    let (start, place) = under_way.remove(index);
                    schedule.give_back(start);
                    let kind = seen[place].kind;
                    let mut later = seen.iter().skip(place + 1);
                    if later.any(|later| later.is_in_track_of(kind)) {
                        seen[place].ended = Some(Duration::ZERO);
                    } else {
                        // Nothing of it reached the origin.
                        seen.remove(place);
                        for (_, other) in &mut under_way {
                            *other -= usize::from(place < *other);
                        }
                    }
                }
                Happens::Ends(_) | Happens::IsGivenBack(_) => {}
            }
            prop_assert_eq!(schedule.in_flight() as usize, under_way.len());
        }
    }
}

// Ours: giving a start back affects no other request.
#[test]
fn giving_back_a_robots_txt_keeps_the_end_of_an_earlier_one() {
    let mut schedule = Schedule::default();
    let two = StartLimits {
        in_flight: 2,
        ..FREE
    };
    let delay = StartLimits {
        delay: seconds(5),
        ..FREE
    };
    let first = schedule.start(Kind::RobotsTxt, &two, seconds(1)).unwrap();
    let second = schedule.start(Kind::RobotsTxt, &two, seconds(3)).unwrap();
    schedule.end(first, seconds(3));
    schedule.give_back(second);
    let next = from(&schedule, Kind::RobotsTxt, &delay);
    assert_eq!(next, (8, Reason::CrawlDelay));
}

// Ours: the delay of the page that was really sent remains.
#[test]
fn starts_given_back_in_reverse_order_leave_no_trace() {
    let mut schedule = Schedule::default();
    let delay = StartLimits {
        delay: seconds(9),
        ..FREE
    };
    let page = schedule.start(Kind::Page, &delay, seconds(1)).unwrap();
    schedule.end(page, seconds(1));
    let two = StartLimits {
        in_flight: 2,
        ..FREE
    };
    let first = schedule.start(Kind::Page, &two, seconds(10)).unwrap();
    let second = schedule.start(Kind::Page, &two, seconds(10)).unwrap();
    schedule.give_back(second);
    schedule.give_back(first);
    // A robots.txt keeps that delay.
    let next = from(&schedule, Kind::RobotsTxt, &FREE);
    assert_eq!(next, (10, Reason::CrawlDelay));
}

// Ours: a request that ends is no longer in flight, even after the numbers have wrapped.
#[test]
fn requests_still_end_after_their_numbers_wrap() {
    for number in [u32::MAX / 2 - 1, u32::MAX / 2, u32::MAX / 2 + 1, u32::MAX] {
        let mut schedule = Schedule::default();
        (schedule.pages.number, schedule.robots.number) = (number, number);
        for kind in [Kind::Page, Kind::RobotsTxt] {
            let start = schedule.start(kind, &FREE, seconds(1)).unwrap();
            schedule.end(start, seconds(2));
            assert_eq!(schedule.in_flight(), 0, "{number}, {kind:?}");
        }
    }
}
