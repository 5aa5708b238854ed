//! Decisions and endings that differ from the previous one in a single value: each
//! must be recorded with its own value.

use super::*;
use politesse_decision::record::Effect;

/// Returns the record of a request for `/a` by a crawler with the given User-Agent.
fn asked_by(user_agent: &str) -> Record {
    let inquiry = Inquiry {
        crawler: Crawler::parse(user_agent),
        ..inquiry("/a").as_ref().clone()
    };
    record_of(&decide(&Arc::new(inquiry), &robots(), &policy(), now()))
}

/// Returns the record of a request for `/a` with the given method.
fn asked_with(method: &str) -> Record {
    let inquiry = Inquiry {
        method: method.to_owned(),
        ..inquiry("/a").as_ref().clone()
    };
    record_of(&decide(&Arc::new(inquiry), &robots(), &policy(), now()))
}

/// Returns the values that decisions may share, as read back.
fn values(row: &StoredRecord) -> String {
    let StoredRecord {
        client,
        crawler,
        method,
        ruling,
        policy,
        ..
    } = row;
    format!(
        "{client:?} {crawler:?} {method} {ruling:?} {}",
        policy.sha256
    )
}

// Ours: values reused from the previous decision must be equal to the byte,
// although names of crawlers are compared without regard to case.
#[tokio::test]
async fn a_decision_has_its_own_values_even_if_one_differs_from_the_previous() {
    let other_policy = Policy::new(Unauthorized::Refuse);
    let decision = |path: &str, policy| decide(&inquiry(path), &robots(), policy, now());
    let variants = [
        Record {
            client: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)),
            ..record("/a")
        },
        Record {
            credential: Some("FooBot".into()),
            ..record("/a")
        },
        asked_by("FOOBOT/2.1"),
        asked_by("FooBot/2.2"),
        asked_by("BarBot/2.1"),
        asked_with("HEAD"),
        record_of(&decision("/private/a", &policy())),
        record_of(&decision("/a", &Arc::new(other_policy))),
    ];
    let cached = Record {
        effect: Effect::Cached,
        ..record("/robots.txt")
    };
    let pairs = variants.into_iter().map(|variant| [record("/a"), variant]);
    let pairs: Vec<_> = pairs.chain([[record("/robots.txt"), cached]]).collect();
    let kit = Kit::new(64);
    for record in pairs.as_flattened() {
        let (_, ending) = kit.log.record(record.clone()).await.unwrap();
        ending.complete(done(200));
    }
    kit.log.probe().await.unwrap();
    let mut rows = kit.rows();
    rows.reverse();
    let mut found = BTreeSet::new();
    for pair in rows.chunks(2) {
        assert_ne!(values(&pair[0]), values(&pair[1]));
        found.insert(values(&pair[1]));
    }
    assert_eq!(found.len(), pairs.len(), "{found:#?}");
    retention::verified(&kit);
}

// Ours.
#[tokio::test]
async fn an_ending_has_its_own_values_even_if_one_differs_from_the_previous() {
    let seen = |said: Option<&str>| {
        Some(Seen {
            directives: "foobot=(noindex;src=x);state=complete".to_owned(),
            said: said.map(str::to_owned),
            denials: Vec::new(),
        })
    };
    let variants = [
        done(404),
        ExchangeEnd {
            sent: 2,
            ..done(200)
        },
        ExchangeEnd {
            seen: None,
            ..done(200)
        },
        ExchangeEnd {
            seen: seen(None),
            ..done(200)
        },
        ExchangeEnd {
            seen: seen(Some("[]")),
            ..done(200)
        },
        ExchangeEnd {
            error: Some("incomplete"),
            ..done(200)
        },
    ];
    let kit = Kit::new(64);
    for variant in &variants {
        for outcome in [done(200), variant.clone()] {
            let (_, ending) = kit.log.record(record("/a")).await.unwrap();
            ending.complete(outcome);
        }
    }
    kit.log.probe().await.unwrap();
    let mut rows = kit.rows();
    rows.reverse();
    let outcomes = rows.iter().map(|row| ExchangeEnd {
        status: row.status,
        sent: row.sent.unwrap().try_into().unwrap(),
        seen: row.directives.as_deref().cloned(),
        bytes: row.bytes.unwrap(),
        error: row.error.as_deref().map(|_| "incomplete"),
    });
    let sent = variants
        .iter()
        .flat_map(|variant| [done(200), variant.clone()]);
    assert!(outcomes.eq(sent));
    retention::verified(&kit);
}
