//! Kinds of `pace.*` keys: ceilings, queues, back-off, and rules for individual hosts.
//!
//! Does not know how the pace is kept.

use std::num::NonZeroUsize;
use std::time::Duration;

use super::kinds::{Choice, Count, Kind, Span, Text, count, places, up_to};
use super::tables::{Fields, REASON, Table};
use politesse_pace::back_off::BackOffLimits;
use politesse_pace::options::{QueueLimits, RequisiteLimits};
use politesse_pace::policy::{PaceLimits, PaceRule, Profile, Rate};
use politesse_robots::VisitTime;
use politesse_robots::host_pattern::HostPattern;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A number of requests per unit of time.
pub(super) const RATE: Text<Rate> = Text {
    wanted: "a rate from 1 to 1000000 a second, minute or hour, such as \"5/s\", \"20/m\" or \"3/h\",",
    parse: |text| text.parse().ok(),
};

/// Hosts that a rule applies to.
const HOSTS: Text<HostPattern> = Text {
    wanted: "a host such as \"site.example\", an origin such as \"https://site.example\", \
             or every name below one, \"*.site.example\",",
    parse: |text| text.parse().ok(),
};

/// Hours in which hosts may be visited.
const HOURS: Text<VisitTime> = Text {
    wanted: "a time of the day (UTC) such as \"22:00-06:00\", with an end other than its beginning,",
    parse: hours,
};

const PROFILE: Choice<Profile> = Choice(&[
    ("standard", Profile::Standard),
    ("archive", Profile::Archive),
    ("owned", Profile::Owned),
]);

fn hours(text: &str) -> Option<VisitTime> {
    let (from, to) = text.split_once('-')?;
    let clock = |time: &str| {
        let (hours, minutes) = time.split_once(':')?;
        // `Visit-time` has four digits and no colon: without this check, `1:800` would
        // become `1800`, six in the evening.
        (hours.len() == 2).then(|| format!("{hours}{minutes}"))
    };
    let time = VisitTime::parse(&format!("{}-{}", clock(from)?, clock(to)?))?;
    // In a robots.txt, equal times mean the whole day. An operator who writes them has
    // more likely made a mistake.
    (time.from != time.to).then_some(time)
}

/// `{ in_flight = 4, rate = "5/s" }`; both keys are optional.
pub(super) const CEILINGS: Table<PaceLimits> = Table {
    wanted: || {
        "a table; optional keys: `in_flight` (requests at the same time) and `rate` (as in \"5/s\")"
            .to_owned()
    },
    read: |fields| Some(ceilings(fields)),
};

fn ceilings(fields: &mut Fields<'_>) -> PaceLimits {
    PaceLimits {
        in_flight: fields.optional("in_flight", &places(1..=1_000_000)),
        rate: fields.optional("rate", &RATE),
    }
}

/// Range of a queue's capacity.
const PLACES: Count<NonZeroUsize> = count(1..=1_000_000);

/// `{ origin = 256, crawler = 512, total = 10000 }`; absent keys keep their defaults.
pub(super) const QUEUE: Table<QueueLimits> = Table {
    wanted: || {
        let places = PLACES.wanted();
        format!("a table; optional keys: `origin`, `crawler` and `total`, each {places}")
    },
    read: |fields| {
        let default = QueueLimits::default();
        let mut places = |name, default| fields.optional(name, &PLACES).unwrap_or(default);
        Some(QueueLimits {
            origin: places("origin", default.origin),
            crawler: places("crawler", default.crawler),
            total: places("total", default.total),
        })
    },
};

/// Range of each back-off duration.
const PAUSE: Span = up_to(DAY);

/// `{ first = "60s", longest = "24h", forgive = "30m" }`; absent keys keep their
/// defaults.
pub(super) const BACK_OFF: Table<BackOffLimits> = Table {
    wanted: || {
        format!(
            "a table; optional keys: `first`, `longest` and `forgive`, each {}, `first` no longer \
             than `longest`",
            PAUSE.wanted()
        )
    },
    read: |fields| {
        let default = BackOffLimits::default();
        let mut pause = |name, default| fields.optional(name, &PAUSE).unwrap_or(default);
        let limits = BackOffLimits {
            first: pause("first", default.first),
            longest: pause("longest", default.longest),
            forgive: pause("forgive", default.forgive),
        };
        // Checked after both are read, because either may be the default.
        (limits.first <= limits.longest).then_some(limits)
    },
};

/// Range of the time in which the files of a page may follow it.
const FOLLOWING: Span = up_to(Duration::from_secs(10 * 60));

/// Range of the number of files that may follow a page.
const FILES: Count<NonZeroUsize> = count(1..=1000);

/// `{ files = 100, time = "60s" }`; absent keys keep their defaults.
pub(super) const REQUISITES: Table<RequisiteLimits> = Table {
    wanted: || {
        let (files, time) = (FILES.wanted(), FOLLOWING.wanted());
        format!("a table; optional keys: `files`, {files}, and `time`, {time}")
    },
    read: |fields| {
        let default = RequisiteLimits::default();
        Some(RequisiteLimits {
            time: fields.optional("time", &FOLLOWING).unwrap_or(default.time),
            files: fields.optional("files", &FILES).unwrap_or(default.files),
        })
    },
};

/// An entry of `pace.rule`.
pub(super) const PACE_RULE: Table<PaceRule> = Table {
    wanted: || {
        "a table with `origin` and `reason`; optional keys: `profile`, `in_flight`, `rate` and \
         `hours`"
            .to_owned()
    },
    read: |fields| {
        let hosts = fields.required("origin", &HOSTS);
        let profile = fields.optional("profile", &PROFILE);
        let ceilings = ceilings(fields);
        let hours = fields.optional("hours", &HOURS);
        let reason = fields.required("reason", &REASON);
        Some(PaceRule {
            hosts: hosts?,
            profile,
            ceilings,
            hours,
            reason: reason?.into(),
        })
    },
};
