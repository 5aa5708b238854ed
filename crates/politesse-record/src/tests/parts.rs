//! Searches by host, verdict and ruling, with the summaries of parts.

use std::iter::zip;

use jiff::SignedDuration;

use super::*;

/// Number of decisions in the record, which with their endings take up more than
/// two parts.
const DECISIONS: u32 = 9000;

/// Returns the URL of decision `number`. Some hosts are rare, and so are refusals.
fn url(number: u32) -> String {
    let host = match number {
        10 | 8000 => "rare.test",
        5000 => "once.test",
        _ if number.is_multiple_of(7) => "b.test:8080",
        _ if number < 4000 => "a.test",
        _ => "b.test",
    };
    let path = match number % 1000 {
        3 => "/private/x",
        _ => "/a",
    };
    format!("http://{host}{path}")
}

/// Returns the User-Agent of decision `number`. One of them occurs only twice.
fn user_agent(number: u32) -> &'static str {
    match number {
        4100 | 7700 => "LoneBot/1.0",
        _ => "FooBot/2.1",
    }
}

async fn write(kit: &Kit, numbers: std::ops::Range<u32>) {
    let (robots, policy) = (robots(), policy());
    let records = numbers.map(|number| {
        let inquiry = Arc::new(Inquiry {
            crawler: Crawler::parse(user_agent(number)),
            target: url(number).parse().unwrap(),
            method: "GET".to_owned(),
        });
        let at = now() + SignedDuration::from_secs(number.into());
        record_of(&decide(&inquiry, &robots, &policy, at))
    });
    kit.record_all(records).await;
}

/// Returns a record of several parts. One process began the first part and another
/// finished it, after a failed write.
async fn parts() -> Kit {
    let kit = Kit::new(4096);
    write(&kit, 0..2000).await;
    let kit = Kit::reopened(kit.closed().await, 64);
    kit.sql(BREAK);
    kit.log.record(record("/a")).await.unwrap_err();
    kit.sql("DROP TRIGGER broken");
    let kit = Kit::reopened(kit.closed().await, 4096);
    write(&kit, 2000..DECISIONS).await;
    kit
}

fn filters() -> Vec<DecisionFilter> {
    let hosts = [
        None,
        Some("a.test"),
        Some("b.test"),
        Some("rare.test"),
        Some("once.test"),
        Some("no.test"),
    ];
    let verdicts = [None, Some("allow"), Some("disallow"), Some("later")];
    let times = [None, Some(now() + SignedDuration::from_secs(5000))];
    let mut filters = Vec::new();
    for host in hosts {
        for verdict in verdicts {
            for until in times {
                let filter = DecisionFilter {
                    host: host.map(str::to_owned),
                    verdict: verdict.map(str::to_owned),
                    until,
                    ..DecisionFilter::default()
                };
                filters.extend(of_rulings(&filter));
                filters.push(filter);
            }
        }
    }
    filters
}

/// Adds conditions on rulings to a filter: matched by most, by few, and by none.
fn of_rulings(filter: &DecisionFilter) -> Vec<DecisionFilter> {
    let mut narrower = Vec::new();
    for token in ["FOOBOT", "*", "NeverBot"] {
        narrower.push(DecisionFilter {
            crawler: Some(token.to_owned()),
            ..filter.clone()
        });
    }
    for rule in [
        "Disallow: /private",
        "/private",
        "Allow: /private",
        "/never",
    ] {
        narrower.push(DecisionFilter {
            rule: rule.parse().ok(),
            ..filter.clone()
        });
    }
    narrower.push(DecisionFilter {
        reason: Some("no_group".to_owned()),
        effect: Some("enforced".to_owned()),
        ..filter.clone()
    });
    narrower
}

/// Returns the host of the URL of `row`.
fn host_of(row: &StoredRecord) -> String {
    let target: Target = row.url.parse().unwrap();
    target.origin.host().to_string()
}

/// Reports whether `row`, about `host`, matches `filter`, without using the summaries.
fn is_wanted(filter: &DecisionFilter, row: &StoredRecord, host: &str) -> bool {
    let until = filter.until.unwrap_or(Timestamp::MAX);
    filter.host.as_ref().is_none_or(|wanted| wanted == host)
        && row.at < until
        && filter.admits_ruling(&row.ruling)
}

// Ours: a search with the summary finds the same rows as reading every row.
#[tokio::test(flavor = "multi_thread")]
async fn a_search_by_summary_finds_the_same_rows_as_reading_each() {
    let kit = parts().await;
    let reader = kit.reader();
    let all = reader.list(&DecisionFilter::default(), 0).unwrap();
    assert_eq!(all.len(), DECISIONS as usize);
    let hosts: Vec<_> = all.iter().map(host_of).collect();
    for filter in filters() {
        let wanted = zip(&all, &hosts).filter(|(row, host)| is_wanted(&filter, row, host));
        let wanted: Vec<_> = wanted.map(|(row, _)| row.seq).collect();
        let found = reader.list(&filter, 0).unwrap();
        let found: Vec<_> = found.iter().map(|row| row.seq).collect();
        assert_eq!(found, wanted, "{filter:?}");
        // `count` compares a rule only by its path.
        let counted = reader.count(&filter).unwrap();
        let has_name = filter.rule == "Allow: /private".parse().ok();
        assert!(has_name || counted == wanted.len() as u64, "{filter:?}");
        let mut oldest = Vec::new();
        let visit = |row: StoredRecord| {
            oldest.push(row.seq);
            ControlFlow::Continue(())
        };
        reader
            .visit_decisions(&filter, Direction::OldestFirst, visit)
            .unwrap();
        assert!(oldest.iter().eq(wanted.iter().rev()), "{filter:?}");
    }
    let (sums, found) = verify(&kit);
    assert_eq!((sums.decided, found), (u64::from(DECISIONS), Vec::new()));
    // Ours: a manipulated search does not go unnoticed.
    for change in [
        "DELETE FROM part WHERE part = 0 AND field = 2 AND value = 2",
        "UPDATE part SET first = first + 1 WHERE part = 1 AND field = 1 AND value = 0",
    ] {
        kit.sql(change);
    }
    let (sums, found) = verify(&kit);
    assert_eq!(sums.mismatches, 2);
    assert!(
        found[0].starts_with("1 to 8192: the table part does not have all"),
        "{found:?}"
    );
    assert!(found[1].starts_with("8193 to 16384: "), "{found:?}");
    kit.sql("DELETE FROM part");
    assert_eq!(verify(&kit).0.mismatches, 2, "without any of them, too");
}

// Ours: a search must finish even with numbers that no version issues.
#[tokio::test(flavor = "multi_thread")]
async fn a_search_by_host_finishes_even_with_impossible_parts() {
    let kit = Kit::new(4096);
    write(&kit, 0..20).await;
    kit.sql(
        "UPDATE decision SET seq = seq + 4000000000000000000 WHERE 10 < seq;
         UPDATE decision SET seq = -9223372036854775807 WHERE seq = 1;
         INSERT INTO part VALUES (1, -9223372036854775807, 1, 0, 9223372036854775807),
           (1, 9223372036854775807, 1, 0, 0), (1, 0, 1, -5, 9223372036854775807),
           (2, 9223372036854775807, 2, 0, 0), (2, 0, 2, -5, 9223372036854775807);",
    );
    for filter in filters() {
        kit.reader().list(&filter, 0).unwrap();
        kit.reader().count(&filter).unwrap();
    }
}
