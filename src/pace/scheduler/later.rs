//! What is told to a request that is not to be sent now.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::desk::SchedulerCore;
use super::gate::HostQueue;
use super::line::QueueOwner;
use super::pace::{Delayed, Now};
use super::waiting::InVain;
use super::{Later, TurnRequest};
use crate::decision::reason::Reason;
use crate::metrics::ReasonLabel;
use politesse_robots::origin::Host;

pub(super) const TOO_MANY_HOSTS: &str = "the paces of too many hosts have to be remembered";

/// Nobody is told to come back sooner.
pub(super) const RETRY_AFTER_MIN: Duration = Duration::from_secs(1);

impl SchedulerCore {
    pub(super) fn later_in_vain(
        &self,
        request: &TurnRequest<'_>,
        gate: &HostQueue,
        in_vain: InVain,
    ) -> Later {
        let in_force = self.in_force.load();
        let now = self.now(&in_force);
        match in_vain {
            InVain::Told(delayed) => self.later_than(request.host, delayed, &now),
            InVain::TooLong(wish, kept_by) => {
                let whose = QueueOwner::Crawler(request.crawler.into());
                let mut delayed = gate.estimate(&wish, &whose, &now);
                // Nothing else is known that would keep it now.
                let is_free = delayed.until.is_none_or(|until| until <= now.moment);
                if let Some(kept_by) = kept_by.filter(|_| is_free) {
                    delayed.reason = kept_by;
                }
                self.later_than(request.host, delayed, &now)
            }
            InVain::Ended => self.stopping(),
        }
    }

    pub(super) fn later_than(&self, host: &Host, delayed: Delayed, now: &Now<'_>) -> Later {
        let until = delayed.until.unwrap_or(now.moment);
        self.later_of(host, delayed.reason, until.saturating_sub(now.moment))
    }

    pub(super) fn later_of(&self, host: &Host, reason: Reason, pause: Duration) -> Later {
        if self.is_closed.load(Ordering::SeqCst) {
            return self.stopping();
        }
        if reason == Reason::Overload {
            return self.later(reason, pause, TOO_MANY_HOSTS);
        }
        let why = self.why(host, reason);
        let detail = format!("the pace of {host}: {}{why}", in_words(reason));
        self.later(reason, pause, &detail)
    }

    fn stopping(&self) -> Later {
        self.later(Reason::Overload, Duration::ZERO, "the proxy is stopping")
    }

    /// What the operator says of a limit.
    fn why(&self, host: &Host, reason: Reason) -> String {
        let in_force = self.in_force.load();
        let terms = in_force.options.policy.terms(host);
        let by_hours = reason == Reason::VisitTime && terms.hours.is_some();
        let is_ours = reason == Reason::Ceiling || by_hours;
        let why = terms.reason.as_ref().filter(|_| is_ours);
        why.map_or_else(String::new, |why| format!(" ({why})"))
    }

    pub(super) fn later(&self, reason: Reason, pause: Duration, detail: &str) -> Later {
        let label = ReasonLabel {
            reason: reason.as_str(),
        };
        self.metrics.pace_later.get_or_create(&label).inc();
        Later {
            reason,
            retry_after: pause.max(RETRY_AFTER_MIN),
            detail: detail.to_owned(),
        }
    }
}

fn in_words(reason: Reason) -> &'static str {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the others are not about when"
    )]
    match reason {
        Reason::CrawlDelay => "the site asks for a pause between requests",
        Reason::RequestRate => "the site asks for fewer requests in a time",
        Reason::VisitTime => "it is not the time of day for it",
        Reason::QueueFull => "too many requests wait already, most of them of this crawler",
        Reason::BackOff => "the site asked for less, and is left alone for a while",
        _ => "a limit of the operator's",
    }
}
