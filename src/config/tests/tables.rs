//! Tests of crawlers and overrides: lists of tables. All ours; docs/configuration.md.

use std::num::NonZeroU32;
use std::time::Duration;

use politesse_base::clients::client::{ClientLimits, Resource};

use super::{file, problems, read, text};
use politesse_decision::inquiry::Requisites;
use politesse_decision::policy::Policy;
use politesse_robots::crawler::ProductToken;

/// Returns the product tokens that a configuration assigns to a crawler.
fn known_as(configuration: &str, agent: &str, client: &str) -> Vec<String> {
    let config = file(configuration).unwrap();
    let identities = &config.settings().exchange.request.identities;
    let crawler = identities.crawler(Some(agent.as_bytes()), client.parse().ok());
    let tokens = crawler.candidates().iter().map(ProductToken::to_string);
    tokens.collect()
}

const CRAWLERS: &str = r#"
[[crawler]]
token = "LegacyBot"
user_agent = "legacybot/"
client = ["10.0.0.0/8", "::1"]

[[crawler]]
token = ["FooBot", "Foo"]
client = "loopback"
max_wait = "60s"
"#;

#[test]
fn crawlers_are_read_in_order_with_lists_and_without() {
    let known_as = |agent, client| known_as(CRAWLERS, agent, client);
    assert_eq!(known_as("X LegacyBot/2", "10.1.2.3"), ["LegacyBot"]);
    assert_eq!(known_as("X LegacyBot/2", "::1"), ["LegacyBot"]);
    assert_eq!(known_as("X BarBot/2", "127.0.0.1"), ["FooBot", "Foo"]);
    assert_eq!(known_as("BarBot/2", "11.0.0.1"), ["BarBot"]);
}

#[test]
fn a_crawler_may_have_a_time_to_wait() {
    let config = file(CRAWLERS).unwrap();
    let identities = &config.settings().exchange.request.identities;
    let wait = |client: &str| {
        identities
            .look_up(Some(b"LegacyBot/2"), client.parse().ok())
            .1
    };
    assert_eq!(wait("127.0.0.1"), Some(Duration::from_secs(60)));
    assert_eq!(wait("10.1.2.3"), None);
}

#[test]
fn requisites_of_a_crawler_may_follow_their_page() {
    let requisites = |line: &str| {
        let config = file(&format!("[[crawler]]\ntoken = \"A\"\n{line}")).unwrap();
        config.settings().exchange.request.identities.entries()[0].requisites
    };
    assert_eq!(requisites(""), Requisites::Turn);
    assert_eq!(requisites("requisites = \"turn\""), Requisites::Turn);
    assert_eq!(requisites("requisites = \"follow\""), Requisites::Follow);
}

#[test]
fn every_mistake_in_a_crawler_is_reported_with_its_line() {
    let text = r#"
[[crawler]]
token = "FooBot/1.0"
client = ["10.0.0.1/8", "loopback"]

[[crawler]]
user_agent = ""
username = "legacy"
tokn = "Foo"

[[crawler]]
token = []
credential = "sha256:12"
max_wait = "2h"
"#;
    let told = problems(file(text));
    let starts = [
        "politesse.toml, line 3: token of entry 1 of crawler is \"FooBot/1.0\"; a product token",
        "politesse.toml, line 4: entry 1 of client of entry 1 of crawler is \"10.0.0.1/8\"; an address",
        "politesse.toml, line 6: entry 2 of crawler is {",
        "politesse.toml, line 7: user_agent of entry 2 of crawler is \"\"; a part of",
        "politesse.toml, line 8: crawler.username is not a key",
        "politesse.toml, line 9: crawler.tokn is not a key; did you mean crawler.token?",
        "politesse.toml, line 12: token of entry 3 of crawler is []; a list of 1 to 16",
        "politesse.toml, line 13: credential of entry 3 of crawler is \"sha256:12\"; \"sha256:\" and 64",
        "politesse.toml, line 14: max_wait of entry 3 of crawler is \"2h\"; a duration from 0s to 1h",
    ];
    assert_eq!(told.len(), starts.len(), "{told:#?}");
    for (told, start) in told.iter().zip(starts) {
        assert!(
            told.starts_with(start),
            "{told:?} should begin with {start:?}"
        );
    }
    assert!(told[2].contains("`token` in it"), "{}", told[2]);
    assert!(told[4].ends_with("is not a key"), "{}", told[4]);
}

// Ours: users write the token where its digest belongs, and other people read the log
// of a reload.
#[test]
fn a_token_in_the_place_of_its_digest_is_not_shown() {
    let token = "f0".repeat(32);
    let places = [
        format!("[[crawler]]\ntoken = \"FooBot\"\ncredential = \"{token}\"\n"),
        format!("[[crawler]]\ntokens = \"FooBot\"\ncredential = \"{token}\"\n"),
        format!("[[crawler]]\ntoken = \"FooBot\"\ncredential = \"sha256:{token}0\"\n"),
        format!("crawler = [\"FooBot:{token}\"]\n"),
        format!("[admin]\nlisten = \"{token}\"\n"),
    ];
    for text in places {
        let told = problems(file(&text));
        assert!(told.iter().any(|told| told.contains('…')), "{told:?}");
        assert!(!format!("{told:?}").contains(&token), "{told:?}");
    }
}

#[test]
fn a_crawler_outside_a_list_of_tables_is_reported() {
    let wanted = "a list of 0 to 10000, each a table with `token`";
    let told = problems(file("crawler = \"FooBot\"\n"));
    assert!(
        told[0].starts_with(&format!(
            "politesse.toml, line 1: crawler is \"FooBot\"; {wanted}"
        )),
        "{told:?}"
    );
    let told = problems(file("[crawler]\ntoken = \"FooBot\"\n"));
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("crawler is { token"), "{told:?}");
    let told = problems(file("crawler = [\"FooBot\"]\n"));
    assert!(
        told[0].contains("entry 1 of crawler is \"FooBot\""),
        "{told:?}"
    );
}

#[test]
fn the_environment_and_set_give_lists_of_tables() {
    let entry = r#"[{ token = "FooBot" }]"#;
    let denied = r#"[{ origin = "http://a.example", action = "deny", reason = "x" }]"#;
    let variables = [
        ("POLITESSE_CRAWLER", entry),
        ("POLITESSE_ROBOTS__OVERRIDE", denied),
    ];
    let config = read(CRAWLERS, &variables, &[]).unwrap();
    let shown = config.show();
    for line in [
        "crawler = [{ token = \"FooBot\" }]  # environment, POLITESSE_CRAWLER",
        "override = [{ action = \"deny\", origin = \"http://a.example\", reason = \"x\" }]  \
         # environment, POLITESSE_ROBOTS__OVERRIDE",
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line}\n{shown}");
    }
    let set = format!("crawler={entry}");
    let override_set = format!("robots.override={denied}");
    let set = read("", &[], &[&set, &override_set]).unwrap();
    assert_eq!(text(&config), text(&set));
    let told = problems(read("", &[], &["crawler.token=FooBot"]));
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("crawler.token is not a key"), "{told:?}");
}

#[test]
fn tables_as_printed_by_show_read_back_as_the_same_settings() {
    let once = file(&format!("{CRAWLERS}{OVERRIDES}")).unwrap();
    let twice = file(&once.show()).unwrap();
    assert_eq!(text(&once), text(&twice));
}

const OVERRIDES: &str = r#"
[[robots.override]]
origin = "https://site.example"
agent = "legacybot"
path = "/open/*"
action = "allow"
reason = " contract 114 "
until = 2027-01-31T01:00:00.5+01:00

[[robots.override]]
origin = "*.Site.example"
action = "deny"
reason = "asked by its owner"

[[robots.override]]
origin = "http://site.example:8080"
action = "deny"
reason = "x"
until = "2027-01-31T00:00:00Z"
"#;

#[test]
fn overrides_are_read_in_order_as_the_policy_keeps_them() {
    let config = file(OVERRIDES).unwrap();
    let settings = config.settings();
    assert_eq!(
        settings.policy.json(),
        concat!(
            r#"{"revision":4,"unauthorized":"allow","readings":"server","overrides":["#,
            r#"{"origin":"https://site.example","agent":"legacybot","path":"/open/*","#,
            r#""action":"allow","reason":"contract 114","until":"2027-01-31T00:00:00.5Z"},"#,
            r#"{"origin":"*.site.example","action":"deny","reason":"asked by its owner"},"#,
            r#"{"origin":"http://site.example:8080","action":"deny","reason":"x","#,
            r#""until":"2027-01-31T00:00:00Z"}]}"#,
        )
    );
    // The policy also applies to redirect targets of robots.txt, except for its allows.
    assert_eq!(settings.robots.policy.digest(), settings.policy.digest());
}

// Ours: policies with different readings have different digests.
#[test]
fn readings_are_part_of_the_policy() {
    let config = file("robots.readings = \"dots\"\n").unwrap();
    let settings = config.settings();
    let json = settings.policy.json();
    assert_eq!(
        json,
        r#"{"revision":4,"unauthorized":"allow","readings":"dots"}"#
    );
    // Redirects of a robots.txt are judged by the same policy.
    assert_eq!(settings.robots.policy.digest(), settings.policy.digest());
}

#[test]
fn candidates_are_part_of_the_policy() {
    let config = file("enforcement.candidates = \"all\"\n").unwrap();
    let json = config.settings().policy.json().to_owned();
    assert!(json.contains(r#""candidates":"all""#), "{json}");
    let nothing = file("").unwrap();
    let json = nothing.settings().policy.json();
    assert_eq!(
        json,
        r#"{"revision":4,"unauthorized":"allow","readings":"server"}"#
    );
}

const TLS: &str = r#"
[[upstream.tls]]
host = "Old.example"
verify = false
reason = "expired in 2024"

[[upstream.tls]]
host = "*.museum.example"
roots = "museum.pem"
min_version = "1.3"
reason = "its own CA"
"#;

// Ours: the list is absent if empty, so that the digest of a policy without exceptions
// does not change.
#[test]
fn exceptions_for_tls_are_part_of_the_policy() {
    let config = file(TLS).unwrap();
    let settings = config.settings();
    assert_eq!(
        settings.policy.json(),
        concat!(
            r#"{"revision":4,"unauthorized":"allow","readings":"server","tls":["#,
            r#"{"host":"old.example","verify":false,"reason":"expired in 2024"},"#,
            r#"{"host":"*.museum.example","verify":true,"roots":"museum.pem","#,
            r#""min_version":"1.3","reason":"its own CA"}]}"#,
        )
    );
    let restored = Policy::restore(settings.policy.json()).unwrap();
    assert_eq!(restored.digest(), settings.policy.digest());
    let tls = &settings.upstream.tls;
    assert_eq!(tls.exceptions, settings.policy.terms().tls);
    let roots: Vec<_> = tls.exception_roots().collect();
    assert_eq!(roots.len(), 1);
    assert!(roots[0].ends_with("museum.pem") && roots[0].is_absolute());
}

// Ours.
#[test]
fn mistakes_in_exceptions_for_tls_are_reported_all_at_once() {
    let told = problems(file(
        r#"[[upstream.tls]]
host = "https://old.example"
verify = "no"
min_version = "1.1"
[[upstream.tls]]
host = "old.example"
reason = "x"
[[upstream.tls]]
host = "old.example"
verify = false
roots = "museum.pem"
reason = "x"
certificate = "any"
"#,
    ));
    let wanted = [
        "line 1: entry 1 of upstream.tls is {",
        "line 2: host of entry 1 of upstream.tls is \"https://old.example\"; a host such as",
        "line 3: verify of entry 1 of upstream.tls is \"no\"; true or false is wanted",
        "line 4: min_version of entry 1 of upstream.tls is \"1.1\"; \"1.2\" or \"1.3\", as no",
        "line 5: entry 2 of upstream.tls is {",
        "line 13: upstream.tls.certificate is not a key",
    ];
    assert_eq!(told.len(), wanted.len(), "{told:?}");
    for (told, wanted) in told.iter().zip(wanted) {
        assert!(told.contains(wanted), "{told:?}");
    }
    let contradiction = "upstream.tls=[{ host = 'a.example', verify = false, roots = 'a.pem', \
                         reason = 'x' }]";
    let told = problems(read("", &[], &[contradiction]));
    assert!(
        told[0].contains("either `verify = false` or `roots`"),
        "{told:?}"
    );
}

/// One test per row: an override with one key changed, and the problem reported.
macro_rules! wrong {
    ($($name:ident: $line:literal in place of $key:literal is $told:literal;)+) => {$(
        #[test]
        fn $name() {
            let usual = [
                "origin = \"https://site.example\"",
                "agent = \"FooBot\"",
                "path = \"/open\"",
                "action = \"allow\"",
                "reason = \"x\"",
                "until = 2027-01-31T00:00:00Z",
            ];
            let mut text = "[[robots.override]]\n".to_owned();
            for line in usual {
                let is_changed = line.starts_with(concat!($key, " "));
                text.push_str(if is_changed { $line } else { line });
                text.push('\n');
            }
            let told = problems(file(&text));
            assert_eq!(told.len(), 1, "{told:?}");
            assert!(told[0].contains($told), "{told:?}");
        }
    )+};
}

wrong! {
    an_origin_is_required: "" in place of "origin" is "line 1: entry 1 of robots.override is {";
    an_origin_has_a_scheme: "origin = 'site.example'" in place of "origin" is "line 2: origin of entry 1 of robots.override is \"site.example\"; an origin";
    an_origin_has_no_path: "origin = 'https://site.example/'" in place of "origin" is "line 2: origin of entry 1";
    an_origin_is_no_network: "origin = '*.10.0.0.1'" in place of "origin" is "line 2: origin of entry 1";
    an_agent_has_no_version: "agent = 'FooBot/1'" in place of "agent" is "line 3: agent of entry 1 of robots.override is \"FooBot/1\"; a product token";
    an_agent_is_not_a_wildcard: "agent = '*'" in place of "agent" is "line 3: agent of entry 1";
    a_path_begins_with_a_slash_or_a_star: "path = 'open'" in place of "path" is "line 4: path of entry 1 of robots.override is \"open\"; a pattern";
    an_action_is_required: "" in place of "action" is "`action` in it, \"allow\" or \"deny\" is wanted";
    an_action_is_one_of_two: "action = 'defer'" in place of "action" is "line 5: action of entry 1 of robots.override is \"defer\"; \"allow\" or \"deny\" is wanted";
    a_reason_is_required: "" in place of "reason" is "`reason` in it, a reason";
    a_reason_is_not_empty: "reason = ' '" in place of "reason" is "line 6: reason of entry 1 of robots.override is \" \"; a reason";
    a_reason_has_one_line: "reason = \"a\\nb\"" in place of "reason" is "line 6: reason of entry 1";
    an_allow_has_an_end: "" in place of "until" is "`until` in it, a date and time with its offset";
    an_end_has_an_offset: "until = 2027-01-31T00:00:00" in place of "until" is "line 7: until of entry 1 of robots.override is 2027-01-31T00:00:00; a date and time with its offset";
    an_end_is_no_date: "until = 2027-01-31" in place of "until" is "line 7: until of entry 1";
    an_end_is_no_number: "until = 1801353600" in place of "until" is "line 7: until of entry 1";
    an_end_is_not_a_word: "until = 'soon'" in place of "until" is "line 7: until of entry 1";
    a_misspelled_key_is_not_a_key: "untill = 2027-01-31T00:00:00Z\nuntil = 2027-01-31T00:00:00Z" in place of "until" is "line 7: robots.override.untill is not a key; did you mean robots.override.until?";
}

#[test]
fn a_deny_needs_no_end() {
    let deny =
        "[[robots.override]]\norigin = \"https://a.example\"\naction = \"deny\"\nreason = \"x\"\n";
    let config = file(deny).unwrap();
    assert_eq!(
        config.settings().policy.terms().overrides[0].action.until(),
        None
    );
}

// Ours.
#[test]
fn limits_of_clients_are_read_by_name_and_in_bounds() {
    let network = "proxy.clients=[{ network = '10.0.0.0/8', ";
    for (written, wrong) in [
        (
            "proxy.per_client={ connections = 0 }".to_owned(),
            "proxy.per_client.connections is 0",
        ),
        (
            "proxy.per_client={ doors = 1 }".to_owned(),
            "proxy.per_client.doors is not a key",
        ),
        (
            "proxy.per_client={ rate = '0/s' }".to_owned(),
            "proxy.per_client.rate is \"0/s\"",
        ),
        (
            format!("{network}leaves = -1 }}]"),
            "leaves of entry 1 of proxy.clients is -1",
        ),
        (
            format!("{network}doors = 1 }}]"),
            "proxy.clients.doors is not a key",
        ),
        (
            "proxy.clients=[{ network = 'private' }]".to_owned(),
            "network of entry 1 of proxy.clients is \"private\"",
        ),
        (
            "proxy.clients=[{ leaves = 1 }]".to_owned(),
            "`network` in it",
        ),
    ] {
        let found = problems(read("", &[], &[&written]));
        assert_eq!(found.len(), 1, "{written} {found:?}");
        assert!(found[0].contains(wrong), "{written} {found:?}");
    }
}

#[test]
fn limits_of_a_network_are_kept_apart_from_per_client_limits() {
    let written = "proxy.clients=['loopback', { network = '10.0.0.0/8', leaves = 3 }]";
    let config = read(
        "",
        &[],
        &[written, "proxy.per_client={ lookups = 2, rate = '5/m' }"],
    )
    .unwrap();
    let listener = &config.settings().listener;
    assert_eq!(listener.clients.len(), 3);
    let limits = &listener.client_limits;
    let mut each = ClientLimits::default();
    each.set(Resource::Lookups, 2);
    each.set_rate(NonZeroU32::new(5).unwrap(), Duration::from_secs(60));
    assert_eq!(limits.each, each);
    assert_eq!(limits.networks[0].network.to_string(), "10.0.0.0/8");
    assert_eq!(limits.networks[0].limits.of(Resource::Leaves), Some(3));
}
