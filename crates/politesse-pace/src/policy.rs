//! Pace that the operator sets: rates, profiles, and rules for some hosts
//! (`pace.profile`, `pace.origin`, `pace.rule`).
//!
//! Does not know what a site asks for, which applies in addition.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use super::host_index::HostIndex;
use politesse_robots::VisitTime;
use politesse_robots::host_pattern::HostPattern;
use politesse_robots::origin::Host;

/// Number of requests per time unit: `5/s`, `20/m`, `3/h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Requests, at least 1.
    pub requests: u32,
    /// Time, longer than zero.
    pub per: Duration,
}

/// Units of a rate.
const UNITS: [(&str, Duration); 3] = [
    ("s", Duration::from_secs(1)),
    ("m", Duration::from_secs(60)),
    ("h", Duration::from_secs(60 * 60)),
];

/// The text is not a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "not a rate such as 5/s, 20/m or 3/h, from 1 to {}",
    Rate::REQUESTS_MAX
)]
pub struct InvalidRate;

impl Rate {
    /// Largest number of requests: more than any proxy sends in a second.
    pub const REQUESTS_MAX: u32 = 1_000_000;

    /// Returns the time from one start to the next.
    #[must_use]
    pub fn pause(&self) -> Duration {
        self.per / self.requests.max(1)
    }
}

impl FromStr for Rate {
    type Err = InvalidRate;

    fn from_str(text: &str) -> Result<Self, InvalidRate> {
        let (requests, unit) = text.split_once('/').ok_or(InvalidRate)?;
        let mut units = UNITS.into_iter();
        let unit = units.find(|(name, _)| *name == unit);
        let (_, per) = unit.ok_or(InvalidRate)?;
        // `u32::from_str` accepts a sign, which a rate does not have.
        if !requests.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(InvalidRate);
        }
        match requests.parse() {
            Ok(requests @ 1..=Self::REQUESTS_MAX) => Ok(Self { requests, per }),
            _ => Err(InvalidRate),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match UNITS.iter().find(|(_, per)| *per == self.per) {
            Some((unit, _)) => write!(f, "{}/{unit}", self.requests),
            None => write!(f, "{}/{:?}", self.requests, self.per),
        }
    }
}

/// Limits on requests in flight and on the start rate; `None` means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PaceLimits {
    /// Requests in flight.
    pub in_flight: Option<NonZeroU32>,
    /// Starts per time unit.
    pub rate: Option<Rate>,
}

impl PaceLimits {
    /// Returns whether there is no limit.
    #[must_use]
    pub fn are_none(&self) -> bool {
        *self == Self::default()
    }
}

/// Pause that grows with the response time of a host: a multiple of the time that the
/// last response took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdaptivePause {
    /// Pause for each second of the response, in seconds.
    pub factor: f64,
    /// Shortest pause.
    pub shortest: Duration,
    /// Longest pause.
    pub longest: Duration,
}

impl AdaptivePause {
    /// Returns the pause after a response that took `response`.
    #[must_use]
    pub fn pause(&self, response: Duration) -> Duration {
        let seconds = response.as_secs_f64() * self.factor;
        let pause = Duration::try_from_secs_f64(seconds).unwrap_or(self.longest);
        // Not `clamp`, which panics if `shortest` is longer than `longest`.
        pause.min(self.longest).max(self.shortest)
    }
}

/// Operator's terms for one host: the limits that the scheduler keeps to there.
#[derive(Clone, Debug, PartialEq)]
pub struct HostTerms {
    /// Requests in flight, at least 1.
    pub in_flight: u32,
    /// Starts per time unit; `None` means no limit.
    pub rate: Option<Rate>,
    /// Pause after each response; `None` means none.
    pub adaptive: Option<AdaptivePause>,
    /// Hours in which the host may be visited; `None` means any hour.
    pub hours: Option<VisitTime>,
    /// Reason that the operator gave, if a rule covers this host.
    pub reason: Option<Arc<str>>,
}

impl HostTerms {
    /// Replaces the numbers that `limits` sets, in either direction.
    fn with_limits(self, limits: &PaceLimits) -> Self {
        Self {
            in_flight: limits.in_flight.map_or(self.in_flight, NonZeroU32::get),
            rate: limits.rate.or(self.rate),
            ..self
        }
    }
}

/// Base terms of all hosts, where the operator sets nothing else (`pace.profile`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// A few requests at a time, for third-party sites.
    #[default]
    Standard,
    /// One request at a time, with a longer pause the slower the site responds.
    /// Heritrix uses the same factor.
    Archive,
    /// Many requests at a time, for the operator's own sites.
    Owned,
}

impl Profile {
    /// Returns the terms of this profile, which are the same for every host.
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

/// Operator's rule for some hosts (`pace.rule`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaceRule {
    /// Hosts that the rule applies to.
    pub hosts: HostPattern,
    /// Profile for everything that the rule does not limit; `None` means the terms that
    /// apply to all hosts.
    pub profile: Option<Profile>,
    /// Limits for each of the hosts, in place of those of the profile.
    pub ceilings: PaceLimits,
    /// Hours in which the hosts may be visited; `None` means any hour.
    pub hours: Option<VisitTime>,
    /// Reason, in the operator's words.
    pub reason: Arc<str>,
}

/// Operator's terms for all hosts.
#[derive(Clone, Debug)]
pub struct PacePolicy {
    /// Terms of hosts that no rule matches.
    usual: Arc<HostTerms>,
    /// Terms of each rule, in the order of the configuration.
    by_rule: Vec<Arc<HostTerms>>,
    /// Positions in `by_rule`, by host pattern.
    rule_index: HostIndex,
}

impl PacePolicy {
    /// Builds the policy. A host gets the terms of the first rule that matches it. Without
    /// such a rule it gets those of `profile`, where `limits` replaces the profile's own.
    #[must_use]
    pub fn new(profile: Profile, limits: &PaceLimits, rules: Vec<PaceRule>) -> Self {
        let usual = profile.terms().with_limits(limits);
        let rule_index = HostIndex::of(rules.iter().map(|rule| &rule.hosts));
        let terms = |rule: PaceRule| {
            let base = rule.profile.map_or_else(|| usual.clone(), Profile::terms);
            Arc::new(HostTerms {
                hours: rule.hours,
                reason: Some(rule.reason),
                ..base.with_limits(&rule.ceilings)
            })
        };
        let by_rule = rules.into_iter().map(terms).collect();
        Self {
            usual: Arc::new(usual),
            by_rule,
            rule_index,
        }
    }

    /// Returns the terms of `host`: those of the first matching rule, else the usual
    /// ones.
    #[must_use]
    pub fn terms(&self, host: &Host) -> &Arc<HostTerms> {
        let rule = self.rule_index.first_match(host);
        let terms = rule.and_then(|rule| self.by_rule.get(rule));
        terms.unwrap_or(&self.usual)
    }
}

impl Default for PacePolicy {
    fn default() -> Self {
        Self::new(Profile::default(), &PaceLimits::default(), Vec::new())
    }
}

#[cfg(test)]
mod tests;
