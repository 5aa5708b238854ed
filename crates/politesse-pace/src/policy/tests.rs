//! Rates, profiles, and rules for some hosts.

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

#[test]
fn profiles_have_their_documented_limits() {
    let standard = Profile::default().terms();
    assert_eq!((standard.in_flight, standard.rate), (4, rate("5/s")));
    assert_eq!(standard.adaptive, None);
    let archive = Profile::Archive.terms();
    assert_eq!((archive.in_flight, archive.rate), (1, None));
    let owned = Profile::Owned.terms();
    assert_eq!((owned.in_flight, owned.rate), (32, None));
    assert_eq!(owned.adaptive, None);
}

// Ours: 5 times the duration of the last response, from 3 s to 30 s.
#[test]
fn the_archive_profile_waits_five_times_the_response_time() {
    let adaptive = Profile::Archive.terms().adaptive.unwrap();
    let pause = |ms| adaptive.pause(Duration::from_millis(ms)).as_millis();
    assert_eq!(pause(0), 3000);
    assert_eq!(pause(600), 3000);
    assert_eq!(pause(1000), 5000);
    assert_eq!(pause(6000), 30_000);
    assert_eq!(pause(60_000), 30_000);
    assert_eq!(adaptive.pause(Duration::MAX), adaptive.longest);
}

// Ours: the profile supplies limits that are not set.
#[test]
fn configured_limits_replace_those_of_the_profile() {
    let one = PaceLimits {
        in_flight: NonZeroU32::new(2),
        rate: None,
    };
    let policy = PacePolicy::new(Profile::Standard, &one, Vec::new());
    let terms = terms(&policy, "a.example");
    assert_eq!((terms.in_flight, terms.rate), (2, rate("5/s")));
}

// Ours: the first matching rule applies; everything it leaves open is as for all hosts.
#[test]
fn the_first_matching_rule_applies() {
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

// Ours: rules by origin pattern, up to the largest number that the configuration allows.
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

// Ours: rates are written `5/s`.
#[test]
fn a_rate_is_a_number_and_a_unit() {
    for (text, requests, seconds) in [
        ("5/s", 5, 1),
        ("20/m", 20, 60),
        ("1000000/h", 1_000_000, 3600),
    ] {
        let rate: Rate = text.parse().unwrap();
        assert_eq!((rate.requests, rate.per.as_secs()), (requests, seconds));
        assert_eq!(rate.to_string(), text);
    }
    for text in [
        "",
        "5",
        "/s",
        "5/",
        "0/s",
        "-1/s",
        "+1/s",
        "1.5/s",
        "5/d",
        "5/S",
        "5 /s",
        "1000001/s",
        "nan/s",
    ] {
        assert_eq!(text.parse::<Rate>(), Err(InvalidRate), "{text}");
    }
}

// Ours.
#[test]
fn the_pause_of_a_rate_is_the_time_for_one_request() {
    let rate: Rate = "20/m".parse().unwrap();
    assert_eq!(rate.pause(), Duration::from_secs(3));
}
