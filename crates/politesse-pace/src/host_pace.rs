//! Pace of hosts in plain values, for display.
//!
//! Produced by the scheduler, shown by `admin`, and read by `politesse pace`.

use std::borrow::Cow;
use std::cmp::Reverse;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Pace of one host at some time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostPace {
    /// Name or address, on all ports.
    pub host: String,
    /// Requests in flight.
    pub in_flight: u32,
    /// Requests that wait for their turns.
    pub queued: u32,
    /// Time of the next start; `None` if that is now, or unknown.
    pub next_start: Option<Timestamp>,
    /// Reason word for the delay, such as `crawl_delay`.
    pub cause: Option<Cow<'static, str>>,
    /// End of the host's back-off.
    pub backoff_until: Option<Timestamp>,
}

impl HostPace {
    /// Returns the sort key: hosts that delay requests come first, because users look for
    /// those.
    fn rank(&self) -> impl Ord + '_ {
        let delays = 0 < self.queued || self.backoff_until.is_some();
        let counts = (Reverse(self.queued), Reverse(self.in_flight));
        (Reverse(delays), counts, &self.host)
    }
}

/// Some of the hosts, and the number of all hosts.
#[derive(Debug, Serialize, Deserialize)]
pub struct HostPaces {
    /// Hosts that are shown.
    pub hosts: Vec<HostPace>,
    /// Number of hosts, shown or not.
    pub total: usize,
}

impl HostPaces {
    /// Takes the first `limit` of `hosts`. Hosts with waiting requests or a back-off come
    /// first, those with the longest queue before the others.
    #[must_use]
    pub fn first(mut hosts: Vec<HostPace>, limit: usize) -> Self {
        let total = hosts.len();
        if limit < total {
            // There may be 200,000 hosts, so only the shown ones are sorted.
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

    fn host(host: &str, in_flight: u32, queued: u32) -> HostPace {
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
            ..host("left-alone.test", 0, 0)
        };
        vec![
            host("rests.test", 0, 0),
            host("asked.test", 2, 0),
            left_alone,
            host("waits.test", 1, 1),
            host("waits-long.test", 1, 7),
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

    // Ours: users look for hosts that delay requests.
    #[test]
    fn hosts_with_waiting_requests_or_a_back_off_come_first() {
        for limit in 0..=5 {
            let paces = HostPaces::first(five(), limit);
            assert_eq!(names(&paces), ORDER[..limit]);
            assert_eq!(paces.total, 5);
        }
        assert_eq!(names(&HostPaces::first(five(), usize::MAX)), ORDER);
    }

    // Ours: the JSON that is written can be read back.
    #[test]
    fn a_host_pace_survives_a_json_round_trip() {
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
