//! The list of hosts, compared with statistics of the same record. All of it is
//! ours.

use jiff::SignedDuration;

use super::stats::drawn_record;
use super::*;
use crate::host_list::{HostRanking, HostsQuestion, host_list};
use crate::stats::{StatGroup, StatKey, StatOrder, stats};

fn question(from: Timestamp) -> HostsQuestion {
    HostsQuestion {
        from,
        search: String::new(),
        order: HostRanking::Requests,
        page: 1,
        rows: 50,
        deadline: clock::instant() + Duration::from_secs(60),
    }
}

#[tokio::test]
async fn the_sums_of_a_listed_host_are_those_of_its_decisions() {
    let kit = drawn_record().await;
    let reader = kit.reader();
    for seconds in [0, 9000, 26_000] {
        let from = now() + SignedDuration::from_secs(seconds);
        let filter = DecisionFilter {
            from: Some(from),
            ..DecisionFilter::default()
        };
        let expected = stats(&reader, &filter, &[StatKey::Host], StatOrder::Requests).unwrap();
        let seen = host_list(&reader, &question(from)).unwrap();
        let listed = seen.hosts.into_iter().map(|host| StatGroup {
            values: vec![Some(host.host)],
            sums: host.sums,
        });
        assert_eq!(listed.collect::<Vec<_>>(), expected, "{seconds}");
        assert!(!seen.is_cut);
    }
}

#[tokio::test]
async fn a_list_that_is_not_counted_in_time_says_so() {
    let kit = drawn_record().await;
    let late = HostsQuestion {
        deadline: clock::instant(),
        ..question(now())
    };
    assert!(host_list(&kit.reader(), &late).unwrap().is_cut);
    let by_age = HostsQuestion {
        order: HostRanking::Robots,
        ..late
    };
    assert!(host_list(&kit.reader(), &by_age).unwrap().is_cut);
}
