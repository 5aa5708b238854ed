//! What the operator lays down about pace: profiles, ceilings, and rules for
//! some hosts.
//!
//! What a site asks for counts beside it, in full; the two meet in the gate of
//! a host.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use super::host_pattern::{FirstByHost, HostPattern};
use super::rate::Rate;
use politesse_robots::VisitTime;
use politesse_robots::origin::Host;

/// How much at a time, and in how long; absent: as much as there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PaceLimits {
    /// Requests at the same time.
    pub in_flight: Option<NonZeroU32>,
    /// Requests in some time.
    pub rate: Option<Rate>,
}

impl PaceLimits {
    /// Whether there are none.
    #[must_use]
    pub fn are_none(&self) -> bool {
        *self == Self::default()
    }
}

/// A pause that grows with the time a host needs: some times as long as its
/// last response took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdaptivePause {
    /// How many times as long.
    pub factor: f64,
    /// Never shorter than this.
    pub shortest: Duration,
    /// Never longer.
    pub longest: Duration,
}

impl AdaptivePause {
    /// The pause after a response that took so long.
    #[must_use]
    pub fn pause(&self, took: Duration) -> Duration {
        let pause = took.as_secs_f64() * self.factor;
        let pause = Duration::try_from_secs_f64(pause).unwrap_or(self.longest);
        pause.min(self.longest).max(self.shortest)
    }
}

/// What the operator lays down for one host.
#[derive(Clone, Debug, PartialEq)]
pub struct HostTerms {
    /// Requests at the same time, at least 1.
    pub in_flight: u32,
    /// Requests in some time.
    pub rate: Option<Rate>,
    /// The pause after each response.
    pub adaptive: Option<AdaptivePause>,
    /// When the host may be visited; absent: always.
    pub hours: Option<VisitTime>,
    /// Why, if a rule is about this host.
    pub reason: Option<Arc<str>>,
}

impl HostTerms {
    fn within(self, ceilings: &PaceLimits) -> Self {
        Self {
            in_flight: ceilings.in_flight.map_or(self.in_flight, NonZeroU32::get),
            rate: ceilings.rate.or(self.rate),
            ..self
        }
    }
}

/// What holds where nothing else is laid down (`pace.profile`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// A few at a time, for sites of others.
    #[default]
    Standard,
    /// One after the other, the slower the site, the slower (Heritrix).
    Archive,
    /// As for a site that belongs to who crawls it.
    Owned,
}

impl Profile {
    /// What it lays down for every host.
    #[must_use]
    pub fn terms(self) -> HostTerms {
        let terms = |in_flight| HostTerms {
            in_flight,
            rate: None,
            adaptive: None,
            hours: None,
            reason: None,
        };
        match self {
            Self::Standard => HostTerms {
                rate: Some(Rate {
                    requests: 5,
                    per: Duration::from_secs(1),
                }),
                ..terms(4)
            },
            Self::Archive => HostTerms {
                adaptive: Some(AdaptivePause {
                    factor: 5.0,
                    shortest: Duration::from_secs(3),
                    longest: Duration::from_secs(30),
                }),
                ..terms(1)
            },
            Self::Owned => terms(32),
        }
    }
}

/// A rule of the operator for some hosts (`pace.rule`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaceRule {
    /// Which.
    pub hosts: HostPattern,
    /// The profile that fills what is absent; absent: what holds for all hosts
    /// does.
    pub profile: Option<Profile>,
    /// What each of them gets.
    pub ceilings: PaceLimits,
    /// When they may be visited.
    pub hours: Option<VisitTime>,
    /// Why, in the operator's words.
    pub reason: Arc<str>,
}

/// All that the operator lays down for hosts.
#[derive(Clone)]
pub struct PacePolicy {
    usual: Arc<HostTerms>,
    rules: Vec<(PaceRule, Arc<HostTerms>)>,
    first: FirstByHost,
}

impl PacePolicy {
    /// By `profile` with the ceilings in place of its own, and by the first of
    /// the rules that fits a host.
    #[must_use]
    pub fn new(profile: Profile, ceilings: &PaceLimits, rules: Vec<PaceRule>) -> Self {
        let usual = profile.terms().within(ceilings);
        let terms = |rule: &PaceRule| HostTerms {
            hours: rule.hours,
            reason: Some(Arc::clone(&rule.reason)),
            ..rule
                .profile
                .map_or_else(|| usual.clone(), Profile::terms)
                .within(&rule.ceilings)
        };
        let rules: Vec<_> = rules
            .into_iter()
            .map(|rule| {
                let terms = Arc::new(terms(&rule));
                (rule, terms)
            })
            .collect();
        Self {
            usual: Arc::new(usual),
            first: FirstByHost::of(rules.iter().map(|(rule, _)| &rule.hosts)),
            rules,
        }
    }

    /// What holds for `host`.
    #[must_use]
    pub fn terms(&self, host: &Host) -> &Arc<HostTerms> {
        let rule = self
            .first
            .place(host)
            .and_then(|place| self.rules.get(place));
        rule.map_or(&self.usual, |(_, terms)| terms)
    }
}

impl Default for PacePolicy {
    fn default() -> Self {
        Self::new(Profile::default(), &PaceLimits::default(), Vec::new())
    }
}

impl fmt::Debug for PacePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What else there is follows from these.
        f.debug_struct("PacePolicy")
            .field("usual", &self.usual)
            .field("rules", &self.rules)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(text: &str) -> Option<Rate> {
        text.parse().ok()
    }

    fn rule(hosts: &str, rate: Option<Rate>) -> PaceRule {
        PaceRule {
            hosts: hosts.parse().unwrap(),
            profile: None,
            ceilings: PaceLimits {
                in_flight: None,
                rate,
            },
            hours: None,
            reason: "asked by its owner".into(),
        }
    }

    fn terms(policy: &PacePolicy, host: &str) -> HostTerms {
        policy.terms(&host.parse().unwrap()).as_ref().clone()
    }

    // Decisions, Pace.
    #[test]
    fn profiles_lay_down_what_decisions_say() {
        let standard = Profile::default().terms();
        assert_eq!((standard.in_flight, standard.rate), (4, rate("5/s")));
        assert_eq!(standard.adaptive, None);
        let archive = Profile::Archive.terms();
        assert_eq!((archive.in_flight, archive.rate), (1, None));
        let owned = Profile::Owned.terms();
        assert_eq!((owned.in_flight, owned.rate), (32, None));
        assert_eq!(owned.adaptive, None);
    }

    // Decisions, Pace: 5 times the last response's duration, 3 s to 30 s.
    #[test]
    fn an_archive_waits_five_times_as_long_as_the_site_took() {
        let adaptive = Profile::Archive.terms().adaptive.unwrap();
        let pause = |ms| adaptive.pause(Duration::from_millis(ms)).as_millis();
        assert_eq!(pause(0), 3000);
        assert_eq!(pause(600), 3000);
        assert_eq!(pause(1000), 5000);
        assert_eq!(pause(6000), 30_000);
        assert_eq!(pause(60_000), 30_000);
        assert_eq!(adaptive.pause(Duration::MAX), adaptive.longest);
    }

    // Contract, section 2: the profile fills what is absent.
    #[test]
    fn ceilings_are_in_place_of_those_of_the_profile() {
        let one = PaceLimits {
            in_flight: NonZeroU32::new(2),
            rate: None,
        };
        let policy = PacePolicy::new(Profile::Standard, &one, Vec::new());
        let terms = terms(&policy, "a.example");
        assert_eq!((terms.in_flight, terms.rate), (2, rate("5/s")));
    }

    // Contract, section 2: the first rule that fits; the rest is as for all.
    #[test]
    fn the_first_rule_that_fits_counts() {
        let mut own = rule("own.example", None);
        own.profile = Some(Profile::Owned);
        let mut night = rule("*.museum.example", rate("20/m"));
        night.hours = VisitTime::parse("2200-0600");
        let rules = vec![own, night, rule("a.museum.example", rate("1/h"))];
        let policy = PacePolicy::new(Profile::Standard, &PaceLimits::default(), rules);
        let own = terms(&policy, "own.example");
        assert_eq!((own.in_flight, own.rate), (32, None));
        let museum = terms(&policy, "a.museum.example");
        assert_eq!((museum.in_flight, museum.rate), (4, rate("20/m")));
        assert_eq!(museum.hours, VisitTime::parse("2200-0600"));
        assert_eq!(museum.reason.as_deref(), Some("asked by its owner"));
        let other = terms(&policy, "museum.example");
        assert_eq!(other, Profile::Standard.terms());
    }

    // Issue 6, Deliver 3: by origin pattern, with as many rules as may be
    // written.
    #[test]
    fn ten_thousand_rules_are_looked_up_by_name() {
        let rules = (0..10_000).map(|number| {
            let below = if number % 2 == 0 { "*." } else { "" };
            rule(
                &format!("{below}h{number}.example"),
                rate(&format!("{}/h", number + 1)),
            )
        });
        let policy = PacePolicy::new(Profile::Standard, &PaceLimits::default(), rules.collect());
        assert_eq!(terms(&policy, "h9999.example").rate, rate("10000/h"));
        assert_eq!(terms(&policy, "a.b.h9998.example").rate, rate("9999/h"));
        assert_eq!(terms(&policy, "h9998.example").rate, rate("5/s"));
    }
}
