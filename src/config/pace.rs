//! Kinds of `pace.*` keys: ceilings, queues, back-off, and rules for some hosts.
//!
//! How pace is kept is not known here.

use std::num::NonZeroUsize;
use std::time::Duration;

use toml::Spanned;
use toml::de::DeValue;

use super::kinds::{Choice, Count, Fault, Kind, Span, Text, count, places, up_to};
use super::tables::{Fields, REASON};
use crate::pace::back_off::BackOffLimits;
use crate::pace::host_pattern::HostPattern;
use crate::pace::options::QueueLimits;
use crate::pace::policy::{PaceLimits, PaceRule, Profile, Rate};
use politesse_robots::VisitTime;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A number of requests in a time.
const RATE: Text<Rate> = Text {
    wanted: "a rate from 1 to 1000000 a second, minute or hour, such as \"5/s\", \"20/m\" or \"3/h\",",
    parse: |text| text.parse().ok(),
};

/// Hosts of a rule.
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
        // `Visit-time` has four digits and no colon: `1:800` would become
        // `1800`, six in the evening.
        (hours.len() == 2).then(|| format!("{hours}{minutes}"))
    };
    let time = VisitTime::parse(&format!("{}-{}", clock(from)?, clock(to)?))?;
    // In a robots.txt a time of no length is the whole day. An operator who
    // writes one has more likely made a mistake.
    (time.from != time.to).then_some(time)
}

/// `{ in_flight = 4, rate = "5/s" }`, either of which may be absent.
pub(super) struct CeilingsTable;

impl CeilingsTable {
    const NAMES: &[&str] = &["in_flight", "rate"];

    fn read_from(fields: &mut Fields<'_>) -> PaceLimits {
        PaceLimits {
            in_flight: fields.optional("in_flight", &places(1..=1_000_000)),
            rate: fields.optional("rate", &RATE),
        }
    }
}

impl Kind for CeilingsTable {
    type Value = PaceLimits;

    fn wanted(&self) -> String {
        "a table with at will `in_flight` (requests at the same time) and `rate` (as in \"5/s\")"
            .to_owned()
    }

    fn read(&self, written: &Spanned<DeValue<'_>>) -> Result<PaceLimits, Vec<Fault>> {
        let mut fields = Fields::of(written, self, Self::NAMES)?;
        let ceilings = Self::read_from(&mut fields);
        fields.finish(Some(ceilings))
    }
}

/// `{ origin = 256, crawler = 512, total = 10000 }`; what is absent is the
/// default.
pub(super) struct QueueTable;

impl QueueTable {
    const NAMES: &[&str] = &["origin", "crawler", "total"];
    const PLACES: Count<NonZeroUsize> = count(1..=1_000_000);
}

impl Kind for QueueTable {
    type Value = QueueLimits;

    fn wanted(&self) -> String {
        format!(
            "a table with at will `origin`, `crawler` and `total`, each {}",
            Self::PLACES.wanted()
        )
    }

    fn read(&self, written: &Spanned<DeValue<'_>>) -> Result<QueueLimits, Vec<Fault>> {
        let mut fields = Fields::of(written, self, Self::NAMES)?;
        let default = QueueLimits::default();
        let mut places = |name, default| fields.optional(name, &Self::PLACES).unwrap_or(default);
        let limits = QueueLimits {
            origin: places("origin", default.origin),
            crawler: places("crawler", default.crawler),
            total: places("total", default.total),
        };
        fields.finish(Some(limits))
    }
}

/// `{ first = "60s", longest = "24h", forgive = "30m" }`; what is absent is the
/// default.
pub(super) struct BackOffTable;

impl BackOffTable {
    const NAMES: &[&str] = &["first", "longest", "forgive"];
    const PAUSE: Span = up_to(DAY);
}

impl Kind for BackOffTable {
    type Value = BackOffLimits;

    fn wanted(&self) -> String {
        format!(
            "a table with at will `first`, `longest` and `forgive`, each {}, `first` no longer \
             than `longest`",
            Self::PAUSE.wanted()
        )
    }

    fn read(&self, written: &Spanned<DeValue<'_>>) -> Result<BackOffLimits, Vec<Fault>> {
        let mut fields = Fields::of(written, self, Self::NAMES)?;
        let default = BackOffLimits::default();
        let mut pause = |name, default| fields.optional(name, &Self::PAUSE).unwrap_or(default);
        let limits = BackOffLimits {
            first: pause("first", default.first),
            longest: pause("longest", default.longest),
            forgive: pause("forgive", default.forgive),
        };
        let times = fields.finish(Some(limits))?;
        // Only once both are read: either may be the default.
        if times.longest < times.first {
            return Err(vec![Fault::whole(written, self.wanted())]);
        }
        Ok(times)
    }
}

/// An entry of `pace.rule`.
pub(super) struct PaceRuleTable;

impl PaceRuleTable {
    const NAMES: &[&str] = &["origin", "profile", "in_flight", "rate", "hours", "reason"];
}

impl Kind for PaceRuleTable {
    type Value = PaceRule;

    fn wanted(&self) -> String {
        "a table with `origin` and `reason`, and at will `profile`, `in_flight`, `rate` and \
         `hours`"
            .to_owned()
    }

    fn read(&self, written: &Spanned<DeValue<'_>>) -> Result<PaceRule, Vec<Fault>> {
        let mut fields = Fields::of(written, self, Self::NAMES)?;
        let hosts = fields.required("origin", &HOSTS);
        let profile = fields.optional("profile", &PROFILE);
        let ceilings = CeilingsTable::read_from(&mut fields);
        let hours = fields.optional("hours", &HOURS);
        let reason = fields.required("reason", &REASON);
        let read = || {
            Some(PaceRule {
                hosts: hosts?,
                profile,
                ceilings,
                hours,
                reason: reason?.into(),
            })
        };
        fields.finish(read())
    }
}
