//! Statistics, compared with sums over the rows of the same record.

use std::collections::BTreeMap;
use std::iter::zip;

use jiff::SignedDuration;

use super::*;
use crate::class_counts::ClassCounts;
use crate::stats::{DecisionSums, StatGroup, StatKey, StatOrder, stats};
use politesse_decision::class::DecisionClass;
use politesse_decision::decide::{EnforcementMode, Reason, Verdict};
use politesse_decision::delay::{Delay, DelayEnd};
use politesse_decision::record::Effect;

/// Number of decisions in the record, which with their endings take up more than
/// two parts.
const DECISIONS: u64 = 9000;

/// Statuses and error terms of endings.
const ENDINGS: [(u16, Option<&str>); 10] = [
    (200, None),
    (200, None),
    (200, Some("incomplete")),
    (402, None),
    (403, Some("client_gone")),
    (403, Some("withheld")),
    (202, Some("bot_challenge")),
    (429, None),
    (503, Some("client_gone")),
    (404, None),
];

/// Maximum number of open exchanges, so that some endings are in later parts than
/// their decisions.
const OPEN_MAX: usize = 300;

/// Number of decisions that are recorded at once.
const AT_ONCE: usize = 100;

/// Pseudorandom numbers that are the same in each run.
pub(super) struct Draws(pub(super) u64);

impl Draws {
    pub(super) fn below(&mut self, end: u64) -> u64 {
        // Constants of Knuth's MMIX; its upper bits are the better ones.
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Returns a random decision at a given time: any verdict and effect, for a few
/// crawlers, hosts and rules.
pub(super) fn drawn(draws: &mut Draws, at: Timestamp) -> Record {
    let robots = RobotsFile::new(Bytes::from_static(
        b"User-agent: FooBot\nDisallow: /private\nUser-agent: *\nDisallow: /x\nDisallow: /=y\n",
    ));
    let robots = snapshot(AccessResult::Successful(Arc::new(robots)), Some(200));
    let agent = ["FooBot/1", "BarBot", "", "foobot"][draws.below(4) as usize];
    let host = ["a.test", "a.test:8080", "b.test", "c.test"][draws.below(4) as usize];
    let path = ["/a", "/private", "/x", "/=y"][draws.below(4) as usize];
    let inquiry = Arc::new(Inquiry {
        crawler: Crawler::parse(agent),
        target: format!("http://{host}{path}").parse().unwrap(),
        method: "GET".to_owned(),
    });
    let policy = match draws.below(4) {
        0 => Policy::clone(&policy()).with(|terms| terms.mode = EnforcementMode::Report),
        _ => Policy::clone(&policy()),
    };
    let decision = decide(&inquiry, &robots, &Arc::new(policy), at);
    let delay = Delay::of_host(Reason::BackOff, DelayEnd::After(Duration::from_secs(9)));
    let decision = match draws.below(6) {
        0 => decision.later(delay.explained("it asks for pauses")),
        _ => decision,
    };
    let client = IpAddr::V4(Ipv4Addr::LOCALHOST);
    Record::of(&decision, client, Duration::from_millis(draws.below(900)))
}

/// Writes decisions `numbers`, some seconds apart, with endings in a different
/// order.
async fn write(kit: &Kit, numbers: std::ops::Range<u64>) {
    let mut draws = Draws(numbers.start);
    let mut open = Vec::new();
    let numbers: Vec<_> = numbers.collect();
    for numbers in numbers.chunks(AT_ONCE) {
        let records = numbers.iter().map(|number| {
            let seconds = number * 3 + draws.below(8);
            let at = now() + SignedDuration::from_secs(i64::try_from(seconds).unwrap());
            drawn(&mut draws, at)
        });
        let records: Vec<_> = records.collect();
        let sent = records.iter().map(|record| {
            record.evidence.ruling.verdict == Verdict::Allow || record.effect == Effect::Reported
        });
        let sent: Vec<_> = sent.map(u32::from).collect();
        open.extend(zip(kit.record_at_once(records.into_iter()).await, sent));
        while OPEN_MAX - AT_ONCE < open.len() {
            let (ending, sent) = open.swap_remove(draws.below(open.len() as u64) as usize);
            kit.metrics.upstream_sent.inc_by(sent.into());
            let (status, error) = ENDINGS[draws.below(ENDINGS.len() as u64) as usize];
            ending.complete(ExchangeEnd {
                bytes: draws.below(1 << 20),
                sent,
                error,
                ..done(status)
            });
        }
    }
    // The last exchanges are dropped, which completes them.
    drop(open);
    kit.log.probe().await.unwrap();
}

/// Returns a record of several parts written by two processes, after a failed
/// write.
pub(super) async fn drawn_record() -> Kit {
    let kit = Kit::new(4096);
    write(&kit, 0..3000).await;
    let kit = Kit::reopened(kit.closed().await, 64);
    kit.sql(BREAK);
    kit.log.record(record("/a")).await.unwrap_err();
    kit.sql("DROP TRIGGER broken");
    let kit = Kit::reopened(kit.closed().await, 4096);
    write(&kit, 3000..DECISIONS).await;
    kit
}

/// Returns the values of `record` for `keys`.
fn values(record: &StoredRecord, keys: &[StatKey]) -> Vec<Option<String>> {
    let ruling = &record.ruling;
    let value = |key: &StatKey| match key {
        StatKey::Host => {
            let target: Target = record.url.parse().unwrap();
            Some(target.origin.host().to_string())
        }
        StatKey::Url => Some(record.url.clone()),
        StatKey::Crawler => ruling.crawler.clone(),
        StatKey::Rule => ruling.rule.clone(),
        StatKey::Reason => Some(ruling.reason.clone()),
        StatKey::Hour => Some(record.at.strftime("%Y-%m-%dT%H:00:00Z").to_string()),
        StatKey::Label => record.crawler.label.clone(),
        // Crawlers without a purpose have no denials.
        StatKey::Node | StatKey::Preference | StatKey::Purpose => None,
    };
    keys.iter().map(value).collect()
}

/// Returns the class of a row.
fn class(row: &StoredRecord) -> DecisionClass {
    let error = row.error.as_deref();
    match (&*row.ruling.verdict, &*row.ruling.reason) {
        ("later", _) => DecisionClass::PutOff,
        ("disallow", "override" | "egress" | "identity") => DecisionClass::Operator,
        ("disallow", "unreachable") if error.is_some() => DecisionClass::Error,
        ("disallow", "unreachable") => DecisionClass::Unreachable,
        ("disallow", _) => DecisionClass::Rule,
        _ if error == Some("withheld") => DecisionClass::Withheld,
        _ if error == Some("bot_challenge") => DecisionClass::RefusedBySite,
        _ if matches!(row.status, Some(402 | 403)) => DecisionClass::RefusedBySite,
        _ if matches!(row.status, Some(429 | 503)) => DecisionClass::PutOff,
        _ if error.is_some() => DecisionClass::Error,
        _ => DecisionClass::Sent,
    }
}

/// Sums up the rows one by one, by the values of each.
fn naive(
    rows: &[StoredRecord],
    values: impl Iterator<Item = Vec<Option<String>>>,
) -> BTreeMap<Vec<Option<String>>, DecisionSums> {
    let mut sums: BTreeMap<_, DecisionSums> = BTreeMap::new();
    for (row, values) in zip(rows, values) {
        let (verdict, effect) = (&*row.ruling.verdict, &*row.ruling.effect);
        let sum = sums.entry(values).or_default();
        sum.requests += 1;
        sum.refusals += u64::from(verdict == "disallow" && effect == "enforced");
        sum.later += u64::from(verdict == "later" && effect == "enforced");
        sum.reported += u64::from(verdict != "allow" && effect == "reported");
        sum.wait_ms += row.wait_ms;
        sum.bytes += row.bytes.unwrap_or_default();
        let own = class(row);
        let counts = ClassCounts::of(|other| u64::from(other == own));
        sum.classes.add(&counts);
        let is_sent = row.sent == Some(1);
        let count = match (row.status, row.error.as_deref()) {
            (_, Some("withheld")) => &mut sum.withheld,
            (_, Some("bot_challenge")) => &mut sum.refused_by_site,
            (Some(402 | 403), _) if is_sent => &mut sum.refused_by_site,
            (Some(429 | 503), _) if is_sent => &mut sum.put_off_by_site,
            (_, Some(_)) => &mut sum.errors,
            (_, None) => continue,
        };
        *count += 1;
    }
    sums
}

fn by_values(groups: &[StatGroup]) -> BTreeMap<Vec<Option<String>>, DecisionSums> {
    let groups = groups.iter().map(|group| {
        let values = group.values.iter();
        let values = values.map(|value| value.as_deref().map(str::to_owned));
        (values.collect(), group.sums)
    });
    groups.collect()
}

fn filters() -> Vec<DecisionFilter> {
    let any = DecisionFilter::default;
    let at = |seconds| Some(now() + SignedDuration::from_secs(seconds));
    let word = |text: &str| Some(text.to_owned());
    vec![
        any(),
        DecisionFilter {
            from: at(7000),
            ..any()
        },
        DecisionFilter {
            until: at(20_000),
            ..any()
        },
        DecisionFilter {
            from: at(100),
            until: at(26_900),
            ..any()
        },
        DecisionFilter {
            from: at(9000),
            until: at(9100),
            ..any()
        },
        DecisionFilter {
            from: at(900_000),
            ..any()
        },
        DecisionFilter {
            host: word("a.test"),
            ..any()
        },
        DecisionFilter {
            host: word("no.test"),
            ..any()
        },
        DecisionFilter {
            crawler: word("FOOBOT"),
            ..any()
        },
        DecisionFilter {
            crawler: word("*"),
            from: at(7000),
            ..any()
        },
        DecisionFilter {
            verdict: word("disallow"),
            ..any()
        },
        DecisionFilter {
            reason: word("backoff"),
            host: word("b.test"),
            ..any()
        },
        DecisionFilter {
            effect: word("reported"),
            until: at(20_000),
            ..any()
        },
        DecisionFilter {
            rule: Some("/x".parse().unwrap()),
            ..any()
        },
        DecisionFilter {
            status: Some("4xx".parse().unwrap()),
            client: word("127.0.0.1"),
            ..any()
        },
        DecisionFilter {
            search: word("B.Test"),
            ..any()
        },
        DecisionFilter {
            url: Some("http://a.test:8080/=*".parse().unwrap()),
            ..any()
        },
    ]
}

/// Keys whose values are in dictionaries.
const SUMMED_KEYS: [StatKey; 5] = [
    StatKey::Host,
    StatKey::Crawler,
    StatKey::Rule,
    StatKey::Reason,
    StatKey::Hour,
];

/// Compares the result of `stats` with sums over the rows, for each set of keys.
pub(super) fn assert_sums(kit: &Kit) {
    let reader = kit.reader();
    for filter in filters() {
        let rows = reader.list(&filter, 0).unwrap();
        // URLs are counted row by row, so each set with them would read all rows again.
        let by_url = [StatKey::Url, StatKey::Hour, StatKey::Host, StatKey::Rule];
        let urls = stats(&reader, &filter, &by_url, StatOrder::Requests).unwrap();
        let wanted = naive(&rows, rows.iter().map(|row| values(row, &by_url)));
        assert_eq!(by_values(&urls), wanted, "{filter:?}");
        // Read once: each row is summed up for each set.
        let all_values = rows.iter().map(|row| values(row, &SUMMED_KEYS));
        let all_values: Vec<_> = all_values.collect();
        for set in 0..1 << SUMMED_KEYS.len() {
            let places = (0..SUMMED_KEYS.len()).filter(|at| set & (1 << at) != 0);
            // One order of the keys per set is enough.
            let mut places: Vec<_> = places.collect();
            let turns = set % places.len().max(1);
            places.rotate_left(turns);
            let keys: Vec<_> = places.iter().map(|at| SUMMED_KEYS[*at]).collect();
            let groups = stats(&reader, &filter, &keys, StatOrder::Requests).unwrap();
            let values = all_values.iter().map(|values| {
                let chosen = places.iter().map(|at| values[*at].clone());
                chosen.collect()
            });
            let wanted = naive(&rows, values);
            assert_eq!(by_values(&groups), wanted, "{filter:?} {keys:?}");
            assert!(groups.is_sorted_by(|one, next| next.sums.requests <= one.sums.requests));
        }
    }
}

// Ours: a filter by class selects as many rows as are counted in the class.
#[tokio::test(flavor = "multi_thread")]
async fn a_class_selects_the_decisions_that_are_counted_in_it() {
    let kit = drawn_record().await;
    let reader = kit.reader();
    let all = stats(
        &reader,
        &DecisionFilter::default(),
        &[],
        StatOrder::Requests,
    )
    .unwrap();
    for (wanted, count) in all[0].sums.classes.iter() {
        let filter = DecisionFilter {
            classes: vec![wanted],
            ..DecisionFilter::default()
        };
        let rows = reader.list(&filter, 0).unwrap();
        assert_eq!(rows.len() as u64, count, "{wanted}");
        assert!(rows.iter().all(|row| class(row) == wanted), "{wanted}");
    }
}

// Ours: for any query, the sums equal those of the rows.
#[tokio::test(flavor = "multi_thread")]
async fn sums_by_any_keys_equal_those_of_the_rows() {
    let kit = drawn_record().await;
    assert_sums(&kit);
    let groups = stats(
        &kit.reader(),
        &DecisionFilter::default(),
        &[StatKey::Rule],
        StatOrder::Refusals,
    );
    let groups = groups.unwrap();
    let rank = |group: &StatGroup| (group.sums.refusals, group.sums.reported);
    assert!(
        groups.is_sorted_by(|one, next| rank(next) <= rank(one)),
        "{groups:?}"
    );
    assert_eq!(groups.len(), 4, "{groups:?}");
}

fn count_of(kit: &Kit, sql: &str) -> i64 {
    let connection = Connection::open(kit.path()).unwrap();
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// Returns the findings of a verification, except those about random endings: some
/// are withheld although no statement denies anything.
fn findings(kit: &Kit) -> Vec<String> {
    let (_, mut found) = verify(kit);
    found.retain(|finding| !finding.contains("its response was withheld"));
    found
}

fn all(kit: &Kit) -> DecisionSums {
    let any = DecisionFilter::default();
    let groups = stats(&kit.reader(), &any, &[], StatOrder::Requests).unwrap();
    groups[0].sums
}

// Ours: completed parts are counted without reading their rows, and altered
// roll-ups are found.
#[tokio::test(flavor = "multi_thread")]
async fn completed_parts_are_counted_by_their_roll_ups() {
    let kit = drawn_record().await;
    assert_eq!(count_of(&kit, "SELECT count(*) FROM rollup"), 2);
    // The roll-ups include late endings; those listed here belong to the open part.
    let late = count_of(&kit, "SELECT count(*) FROM late_ending");
    assert!((1..=OPEN_MAX as i64 + 1).contains(&late), "{late}");
    let found = findings(&kit);
    assert_eq!(found, Vec::<String>::new());
    let before = all(&kit);
    let wait_ms = count_of(&kit, "SELECT wait_ms FROM decision WHERE seq = 1");
    kit.sql("UPDATE decision SET wait_ms = 10000000 WHERE seq = 1");
    assert_eq!(all(&kit), before);
    kit.sql(&format!(
        "UPDATE decision SET wait_ms = {wait_ms} WHERE seq = 1"
    ));
    // An ending moved to another class, and a roll-up with other times.
    for change in [
        "UPDATE ending SET status = 404 WHERE status = 402 AND seq < 8192",
        "UPDATE rollup SET first_us = 0 WHERE part = 0",
    ] {
        kit.sql(&format!(
            "CREATE TABLE saved AS SELECT * FROM ending; {change}"
        ));
        let found = findings(&kit);
        let wrong = "1 to 8192: the table rollup does not have the sums of these entries";
        let is_found = found.iter().any(|finding| finding.starts_with(wrong));
        assert!(is_found, "{change}: {found:?}");
        kit.sql("DELETE FROM ending; INSERT INTO ending SELECT * FROM saved; DROP TABLE saved");
    }
}

// Ours: late endings are neither omitted nor made up.
#[tokio::test(flavor = "multi_thread")]
async fn altered_late_endings_are_found() {
    let kit = drawn_record().await;
    let late = count_of(&kit, "SELECT count(*) FROM late_ending");
    for (change, count) in [
        ("DELETE FROM late_ending", late),
        ("INSERT INTO late_ending VALUES (1), (999999999)", 2),
    ] {
        let saved = "CREATE TABLE saved AS SELECT * FROM late_ending;";
        kit.sql(&format!("{saved} {change}"));
        let found = findings(&kit);
        let wanted = format!("names some without reason: {count};");
        let is_found = found.iter().any(|finding| finding.contains(&wanted));
        assert!(is_found, "{change}: {found:?}");
        kit.sql("DELETE FROM late_ending; INSERT INTO late_ending SELECT * FROM saved");
        kit.sql("DROP TABLE saved");
        assert_eq!(findings(&kit), Vec::<String>::new());
    }
}

// Ours: a failed transaction discards the sums of the open part, and exchanges that
// began before it end after it.
#[tokio::test(flavor = "multi_thread")]
async fn exchanges_that_outlast_a_failed_transaction_are_rolled_up() {
    let kit = Kit::new(4096);
    let (_, ending) = kit.log.record(record("/a")).await.unwrap();
    kit.sql(BREAK);
    kit.log.record(record("/b")).await.unwrap_err();
    kit.sql("DROP TRIGGER broken");
    ending.complete(done(200));
    write(&kit, 0..4200).await;
    assert_eq!(count_of(&kit, "SELECT count(*) FROM rollup"), 1);
    let found = findings(&kit);
    assert_eq!(found, Vec::<String>::new());
}

// Ours: an altered roll-up is found, and does not prevent counting.
#[tokio::test(flavor = "multi_thread")]
async fn an_altered_roll_up_is_found_and_does_not_prevent_counting() {
    let kit = drawn_record().await;
    let requests = all(&kit).requests;
    for (change, wanted) in [
        (
            "UPDATE rollup SET sums = substr(sums, 1, length(sums) - 1) WHERE part = 0",
            "1 to 8192",
        ),
        (
            "UPDATE rollup SET sums = zeroblob(3) WHERE part = 0",
            "1 to 8192",
        ),
        (
            "UPDATE rollup SET sums = x'ffffffffffffffffffffffff' WHERE part = 1",
            "8193 to 16384",
        ),
        ("DELETE FROM rollup WHERE part = 0", "1 to 8192"),
        ("DELETE FROM rollup", "8193 to 16384"),
        (
            "INSERT INTO rollup VALUES (-7, 1, 2, x'')",
            "the table rollup has sums",
        ),
        (
            "INSERT INTO rollup VALUES (9223372036854775807, 1, 2, x'00')",
            "16385 to 24576",
        ),
    ] {
        let saved = "CREATE TABLE saved AS SELECT * FROM rollup;";
        kit.sql(&format!("{saved} {change}"));
        let found = findings(&kit);
        let is_found = found.iter().any(|finding| finding.starts_with(wanted));
        assert!(is_found, "{change}: {found:?}");
        let counted = all(&kit).requests;
        assert!(counted <= requests, "{change}: {counted}");
        kit.sql("DELETE FROM rollup; INSERT INTO rollup SELECT * FROM saved; DROP TABLE saved");
    }
    assert_eq!(all(&kit).requests, requests);
}
