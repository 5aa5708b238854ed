//! What people are shown of the pace of one host.
//!
//! Plain values, so that who paces, who shows it and who reads it need not know
//! each other.

use std::borrow::Cow;
use std::cmp::Reverse;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// One host as it is at a moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostPace {
    /// Its name or address, on all ports.
    pub host: String,
    /// Requests that it is answering.
    pub in_flight: u32,
    /// Requests that wait for their turn.
    pub queued: u32,
    /// When the next may start; nothing if that is now.
    pub next_start: Option<Timestamp>,
    /// What makes it wait: the word of a reason, such as `crawl_delay`.
    pub cause: Option<Cow<'static, str>>,
    /// Until when the host is left alone since it asked for less; nothing if it
    /// is not.
    pub backoff_until: Option<Timestamp>,
}

impl HostPace {
    /// Those who look want to know who waits: what has more to tell is less.
    fn rank(&self) -> (Reverse<bool>, Reverse<u32>, Reverse<u32>, &str) {
        let waits = 0 < self.queued || self.backoff_until.is_some();
        let (queued, in_flight) = (Reverse(self.queued), Reverse(self.in_flight));
        (Reverse(waits), queued, in_flight, &self.host)
    }
}

/// A part of the hosts, and how many there are.
#[derive(Debug, Serialize, Deserialize)]
pub struct HostPaces {
    /// Those shown.
    pub hosts: Vec<HostPace>,
    /// How many were asked for, shown or not.
    pub total: usize,
}

impl HostPaces {
    /// The first `limit` of `hosts`: those that wait or have backed off before
    /// the rest, the longest queue first.
    #[must_use]
    pub fn first(mut hosts: Vec<HostPace>, limit: usize) -> Self {
        let total = hosts.len();
        if limit < total {
            // All of them may be many: only those shown are put in order.
            hosts.select_nth_unstable_by(limit, |one, other| one.rank().cmp(&other.rank()));
            hosts.truncate(limit);
        }
        hosts.sort_unstable_by(|one, other| one.rank().cmp(&other.rank()));
        Self { hosts, total }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(host: &str, (in_flight, queued): (u32, u32)) -> HostPace {
        HostPace {
            host: host.to_owned(),
            in_flight,
            queued,
            next_start: None,
            cause: None,
            backoff_until: None,
        }
    }

    fn five() -> Vec<HostPace> {
        let left_alone = HostPace {
            backoff_until: Some("2026-11-21T10:00:00Z".parse().unwrap()),
            ..host("left-alone.test", (0, 0))
        };
        vec![
            host("rests.test", (0, 0)),
            host("asked.test", (2, 0)),
            left_alone,
            host("waits.test", (1, 1)),
            host("waits-long.test", (1, 7)),
        ]
    }

    fn names(paces: &HostPaces) -> Vec<&str> {
        paces.hosts.iter().map(|host| host.host.as_str()).collect()
    }

    const ORDER: [&str; 5] = [
        "waits-long.test",
        "waits.test",
        "left-alone.test",
        "asked.test",
        "rests.test",
    ];

    // Issue 6, Deliver 5: what waits is what one looks for.
    #[test]
    fn those_that_wait_or_have_backed_off_come_first() {
        for limit in 0..=5 {
            let paces = HostPaces::first(five(), limit);
            assert_eq!(names(&paces), ORDER[..limit]);
            assert_eq!(paces.total, 5);
        }
        assert_eq!(names(&HostPaces::first(five(), usize::MAX)), ORDER);
    }

    // Ours: what is written is what is read.
    #[test]
    fn a_host_reads_as_it_was_written() {
        let mut paces = HostPaces::first(five(), 5);
        paces.hosts[0].cause = Some("crawl_delay".into());
        let text = serde_json::to_string(&paces).unwrap();
        assert!(
            text.contains("\"backoff_until\":\"2026-11-21T10:00:00Z\""),
            "{text}"
        );
        let again: HostPaces = serde_json::from_str(&text).unwrap();
        assert_eq!((again.hosts, again.total), (paces.hosts, 5));
    }
}
