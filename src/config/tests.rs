//! Tests of the whole way from written values to settings or problems. All of it is
//! ours; if a bound is not, its test names the source.

mod pace;

mod tables;

use std::path::{Path, PathBuf};

use super::keys::SECTIONS;
use super::*;

/// Reads a configuration from `file` alone.
fn file(text: &str) -> Result<Config, Problems> {
    read(text, &[], &[])
}

/// Reads a configuration from a file, environment variables and `--set`s.
fn read(text: &str, variables: &[(&str, &str)], sets: &[&str]) -> Result<Config, Problems> {
    let sets: Vec<String> = sets.iter().map(|&set| set.to_owned()).collect();
    let own = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
    Config::read(&ConfigSources {
        file: Some((PathBuf::from("politesse.toml"), text.to_owned())),
        environment: variables.iter().map(own).collect(),
        overrides: &sets,
        working_directory: PathBuf::from("/srv/politesse"),
        data_directory: None,
    })
}

/// Returns the problems of a configuration, one line each.
fn problems(result: Result<Config, Problems>) -> Vec<String> {
    let problems = result.unwrap_err();
    problems.iter().map(ToString::to_string).collect()
}

/// Returns settings as text, because not all of their types can be compared. The name
/// of the file and the sources of values are left out.
fn text(config: &Config) -> String {
    let mut settings = config.settings().clone();
    settings.file = None;
    settings.keys = Default::default();
    format!("{settings:#?}")
}

#[test]
fn the_file_in_the_repository_is_the_printed_default() {
    assert_eq!(include_str!("../../config/politesse.toml"), default_file());
}

// `politesse reference keys > docs/reference/keys.md` regenerates it.
#[test]
fn the_reference_in_the_repository_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference/keys.md");
    let file = std::fs::read_to_string(path).unwrap_or_default();
    assert!(file == reference(), "docs/reference/keys.md is out of date");
}

#[test]
fn the_default_file_changes_nothing() {
    let nothing = Config::read(&ConfigSources {
        file: None,
        environment: Vec::new(),
        overrides: &[],
        working_directory: PathBuf::from("/srv/politesse"),
        data_directory: None,
    });
    let nothing = nothing.unwrap();
    assert_eq!(text(&nothing), text(&file(&default_file()).unwrap()));
    assert_eq!(text(&nothing), text(&file("").unwrap()));
}

#[test]
fn every_default_is_written_as_the_printer_writes_it() {
    let shown = file("").unwrap().show();
    for section in SECTIONS {
        for key in section.keys {
            let line = format!("{} = {}  # default", key.name, key.default);
            assert!(shown.lines().any(|shown| shown == line), "{line}");
        }
    }
}

#[test]
fn five_mistakes_make_five_problems_in_the_order_of_their_lines() {
    let text = r#"
[proxy]
lissten = ["127.0.0.1:1"]
via = "yes"

[upstream]
connect_timeout = "-5s"

[robots]
redirects = 4
status.unauthorized = "maybe"
"#;
    assert_eq!(
        problems(file(text)),
        [
            "politesse.toml, line 3: proxy.lissten is not a key; did you mean proxy.listen?",
            "politesse.toml, line 4: proxy.via is \"yes\"; true or false is wanted",
            "politesse.toml, line 7: upstream.connect_timeout is \"-5s\"; \
             a duration from 1ms to 1h (such as \"30s\") is wanted",
            "politesse.toml, line 10: robots.redirects is 4; \
             a whole number from 5 to 20 is wanted",
            "politesse.toml, line 11: robots.status.unauthorized is \"maybe\"; \
             \"allow\" or \"refuse\" is wanted",
        ]
    );
}

#[test]
fn pages_show_each_value_with_its_source() {
    let text = "[proxy]\nplace_wait = \"7s\"\nvia = false\n";
    let variables = [("POLITESSE_PROXY__VIA", "true")];
    let config = read(text, &variables, &["log.level=debug"]).unwrap();
    let found = |table: &str, name: &str| {
        let mut keys = config.settings().keys.iter();
        let key = keys.find(|key| key.table == table && key.name == name);
        let key = key.unwrap();
        assert!(!key.is_partial, "{key:?}");
        format!("{}: {}, {}", key.source, key.value, key.place)
    };
    for (table, name, expected) in [
        (
            "proxy",
            "place_wait",
            "file: \"7s\", politesse.toml, line 2",
        ),
        (
            "proxy",
            "via",
            "environment: true, environment, POLITESSE_PROXY__VIA",
        ),
        ("log", "level", "command line: \"debug\", --set"),
        ("", "crawler", "default: [], default"),
    ] {
        assert_eq!(found(table, name), expected);
    }
}

#[test]
fn pages_show_only_the_beginning_of_a_long_table() {
    let names = (0..1000).map(|number| format!("\"n{number}.test\" = \"192.0.2.1\"\n"));
    let config = file(&format!(
        "[upstream.resolve]\n{}",
        names.collect::<String>()
    ))
    .unwrap();
    let mut keys = config.settings().keys.iter();
    let key = keys.find(|key| key.name == "resolve").unwrap();
    assert!(key.is_partial && key.value.starts_with("{ \"n0.test\" = "));
    assert_eq!(key.value.chars().count(), 4000);
}

#[test]
fn problems_can_be_listed_without_the_values_found() {
    let text = "proxy.place_wait = \"hunter2\"\n\
                proxy.via = hunter2\n\
                proxy.hunter = \"hunter2\"\n\
                upstream.parent = \"http://me:hunter2@a.test\"\n\
                audit.seal_to = [\"exec:\", 7, \"ftp://hunter2\"]\n";
    let problems = read(text, &[], &["hunter2"]).unwrap_err();
    assert!(problems.to_string().contains("hunter2"));
    let lines: Vec<_> = problems.without_values().collect();
    assert_eq!(lines.len(), problems.iter().count());
    for line in &lines {
        assert!(!line.contains("hunter2"), "{line}");
    }
    assert!(lines[0].starts_with("politesse.toml, line 1: proxy.place_wait has a wrong value"));
}

#[test]
fn problems_are_displayed_one_per_line() {
    let both = file("a = 1\nb = 2\n").unwrap_err().to_string();
    assert_eq!(both.lines().count(), 2);
}

#[test]
fn broken_syntax_is_reported_once_per_line_and_hides_no_other_problem() {
    let found = problems(file("[proxy]\nname = = 3\nvia = 1\n"));
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found[0].starts_with("politesse.toml, line 2: "),
        "{found:?}"
    );
    assert!(
        found[1].starts_with("politesse.toml, line 3: proxy.via is 1;"),
        "{found:?}"
    );
}

#[test]
fn the_placeholder_for_a_broken_value_is_not_reported() {
    for text in [
        "[proxy]\nlisten = [\n\"127.0.0.1:1\",\n,,\n]\n",
        "[proxy]\nname =\n",
        "\nproxy =\n",
        "\n[proxy]\nvia = tru\n",
    ] {
        let found = file(text).unwrap_err();
        assert!(found.iter().all(ConfigProblem::is_syntax), "{found}");
    }
}

#[test]
fn a_table_in_place_of_a_value_is_reported_with_its_line() {
    let told = "proxy.via is { x = 1 }; true or false is wanted";
    let found = problems(file("[proxy]\nname = \"a\"\nvia.x = 1\n"));
    assert_eq!(found, [format!("politesse.toml, line 3: {told}")]);
    let found = problems(file("\n\n[proxy.via]\nx = 1\n"));
    assert_eq!(found, [format!("politesse.toml, line 3: {told}")]);
}

#[test]
fn a_key_written_twice_is_broken_syntax() {
    let found = problems(file("[proxy]\nvia = true\nvia = true\n"));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("politesse.toml, line 3: duplicate key"),
        "{found:?}"
    );
}

#[test]
fn one_address_needs_no_list() {
    let listen = |text| {
        let config = read(text, &[], &[]).unwrap();
        let listen = config.settings().listener.listen.iter();
        listen
            .map(|listen| listen.address.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(listen("proxy.listen = \"127.0.0.1:5\""), ["127.0.0.1:5"]);
    assert_eq!(listen("proxy.listen = [\"127.0.0.1:5\"]"), ["127.0.0.1:5"]);
}

#[test]
fn the_example_of_a_duration_is_within_its_bounds() {
    let example = |key: &str| {
        let found = problems(read("", &[], &[&format!("{key}=3")]));
        let (_, example) = found[0].split_once("such as \"").unwrap();
        example.split('"').next().unwrap().to_owned()
    };
    assert_eq!(example("upstream.connect_timeout"), "30s");
    assert_eq!(example("fleet.timeout"), "1s");
    assert_eq!(example("fleet.forget"), "5m");
}

#[test]
fn a_wrong_list_entry_is_reported_with_its_own_line() {
    let text = "[proxy]\nlisten = [\n  \"127.0.0.1:1\",\n  \"localhost:2\",\n  3,\n]\n";
    let wanted = "an address with a port, such as \"127.0.0.1:3128\" or \"[::1]:3128\", with \
                  https:// before it for TLS is wanted";
    assert_eq!(
        problems(file(text)),
        [
            format!("politesse.toml, line 4: entry 2 of proxy.listen is \"localhost:2\"; {wanted}"),
            format!("politesse.toml, line 5: entry 3 of proxy.listen is 3; {wanted}"),
        ]
    );
}

#[test]
fn a_section_that_is_not_a_table_is_reported() {
    assert_eq!(
        problems(file("proxy = 3\nrobots.status = true\n")),
        [
            "politesse.toml, line 1: proxy is 3; a table is wanted",
            "politesse.toml, line 2: robots.status is true; a table is wanted",
        ]
    );
}

macro_rules! unknown {
    ($($name:ident: $text:literal is $told:literal;)+) => {$(
        #[test]
        fn $name() {
            assert_eq!(problems(file($text)), [concat!("politesse.toml, line ", $told)]);
        }
    )+};
}

unknown! {
    a_misspelled_section_is_named_once:
        "[prxy]\nlisten = 1\nvia = 2\n" is "1: prxy is not a key; did you mean proxy?";
    a_key_in_the_wrong_section_is_found:
        "[proxy]\nconnect_timeout = \"5s\"\n"
        is "2: proxy.connect_timeout is not a key; did you mean upstream.connect_timeout?";
    a_key_outside_every_section_is_found:
        "max_snapshots = 1\n"
        is "1: max_snapshots is not a key; did you mean robots.max_snapshots?";
    a_key_like_no_other_has_no_suggestion:
        "[proxy]\nflavour_of_ice = 1\n" is "2: proxy.flavour_of_ice is not a key";
    a_quoted_name_with_a_dot_is_no_path:
        "\"robots.status\" = 1\n" is "1: \"robots.status\" is not a key; did you mean robots.status?";
    a_key_of_a_sub_table_is_known_as_such:
        "[robots.status]\nunauthorised = \"allow\"\n"
        is "2: robots.status.unauthorised is not a key; did you mean robots.status.unauthorized?";
}

#[test]
fn stronger_sources_win_and_show_says_which() {
    let text = "[upstream]\nconnect_timeout = \"1s\"\nfirst_byte_timeout = \"1s\"\nidle_timeout = \"1s\"\n";
    let variables = [
        ("POLITESSE_UPSTREAM__FIRST_BYTE_TIMEOUT", "2s"),
        ("POLITESSE_UPSTREAM__IDLE_TIMEOUT", "\"2s\""),
    ];
    let sets = ["upstream.idle_timeout=3s", "upstream.idle_timeout=4s"];
    let config = read(text, &variables, &sets).unwrap();
    let upstream = &config.settings().upstream;
    assert_eq!(upstream.connect_timeout.as_secs(), 1);
    assert_eq!(upstream.first_byte_timeout.as_secs(), 2);
    assert_eq!(upstream.idle_timeout.as_secs(), 4);
    let shown = config.show();
    for line in [
        "connect_timeout = \"1s\"  # politesse.toml, line 2",
        "first_byte_timeout = \"2s\"  # environment, POLITESSE_UPSTREAM__FIRST_BYTE_TIMEOUT",
        "idle_timeout = \"4s\"  # --set",
        "http2 = true  # default",
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line}\n{shown}");
    }
}

#[test]
fn the_output_of_show_reads_back_as_the_same_settings() {
    let text =
        "[upstream.resolve]\n\"a.example:443\" = \"[::1]:8443\"\n\"b.example\" = \"127.0.0.1\"\n";
    let once = file(text).unwrap();
    let twice = file(&once.show()).unwrap();
    assert_eq!(self::text(&once), self::text(&twice));
}

#[test]
fn a_value_is_checked_even_if_a_stronger_one_is_right() {
    let found = problems(read("[proxy]\nvia = 1\n", &[], &["proxy.via=false"]));
    assert_eq!(
        found,
        ["politesse.toml, line 2: proxy.via is 1; true or false is wanted"]
    );
}

#[test]
fn problems_name_the_environment_or_set_as_their_source() {
    let variables = [
        ("POLITESSE_PROXY__LISSTEN", "x"),
        ("POLITESSE_ROBOTS__STATUS__UNAUTHORIZED", "never"),
    ];
    let found = problems(read("", &variables, &["proxy.via=1", "proxy.name", "=3"]));
    assert_eq!(
        found,
        [
            "environment, POLITESSE_PROXY__LISSTEN: proxy.lissten is not a key; \
             did you mean proxy.listen?",
            "environment, POLITESSE_ROBOTS__STATUS__UNAUTHORIZED: robots.status.unauthorized \
             is \"never\"; \"allow\" or \"refuse\" is wanted",
            "--set: \"proxy.name\" has no value; section.key=value is wanted",
            "--set: \"\" is not a key",
            "--set: proxy.via is 1; true or false is wanted",
        ]
    );
}

#[test]
fn variables_that_name_no_key_are_ignored() {
    let variables = [
        ("POLITESSE_CONFIG", "/etc/politesse/politesse.toml"),
        ("POLITESSE_PORT_3128_TCP_ADDR", "10.0.0.1"),
        ("POLITESSE_PROXY", "http://10.0.0.1"),
        ("PATH__X", "/bin"),
    ];
    assert!(read("", &variables, &[]).is_ok());
}

#[test]
fn ports_are_the_same_as_numbers_and_as_strings() {
    let ports = |written: &str| {
        let config = read("", &[], &[&format!("egress.ports={written}")]).unwrap();
        format!("{:?}", config.settings().egress.ports)
    };
    assert_eq!(ports("[443, 8443]"), ports("['443', '8443']"));
}

#[test]
fn a_variable_that_lacks_an_underscore_is_named() {
    let variables = [
        ("POLITESSE_PROXY_LISTEN", "[]"),
        ("POLITESSE_UPSTREAM_CONNECT_TIMEOUT", "5s"),
        ("POLITESSE_ROBOTS_STATUS_UNAUTHORIZED", "refuse"),
        ("POLITESSE_PACE_RULE", "[]"),
        ("POLITESSE_ROBOTS_OVERRIDE", "[]"),
        ("POLITESSE_ROBOTS_STATUS", "{}"),
    ];
    let wanted = [
        "POLITESSE_PROXY__LISTEN",
        "POLITESSE_UPSTREAM__CONNECT_TIMEOUT",
        "POLITESSE_ROBOTS__STATUS__UNAUTHORIZED",
        "POLITESSE_PACE__RULE",
        "POLITESSE_ROBOTS__OVERRIDE",
        "POLITESSE_ROBOTS__STATUS",
    ];
    for (variable, wanted) in variables.into_iter().zip(wanted) {
        let told = format!(
            "environment, {}: sets nothing; did you mean {wanted}, with two underscores?",
            variable.0
        );
        assert_eq!(problems(read("", &[variable], &[])), [told]);
    }
}

// Kubernetes sets these in each container for the services of a namespace.
#[test]
fn variables_of_a_container_platform_spell_no_key() {
    let services = [
        "", "PROXY_", "ADMIN_", "EGRESS_", "AUDIT_", "LOG_", "ROBOTS_",
    ];
    let endings = [
        "SERVICE_HOST",
        "SERVICE_PORT",
        "SERVICE_PORT_HTTP",
        "PORT",
        "PORT_3128_TCP",
        "PORT_3128_TCP_ADDR",
        "PORT_3128_TCP_PORT",
        "PORT_3128_TCP_PROTO",
    ];
    for service in services {
        for ending in endings {
            let name = format!("POLITESSE_{service}{ending}");
            assert!(
                read("", &[(&name, "tcp://10.0.0.1:3128")], &[]).is_ok(),
                "{name}"
            );
        }
    }
}

#[test]
fn a_list_and_a_table_can_be_given_on_the_command_line() {
    let sets = [
        "proxy.listen=[\"127.0.0.1:0\"]",
        "upstream.resolve={ \"site.example\" = \"127.0.0.1\" }",
        "robots.status={ unauthorized = \"refuse\" }",
    ];
    let config = read("", &[], &sets).unwrap();
    assert_eq!(config.settings().listener.listen[0].address.port(), 0);
    assert_eq!(config.settings().egress.resolve[0].name, "site.example");
    assert!(
        config
            .show()
            .contains("unauthorized = \"refuse\"  # --set\n")
    );
}

#[test]
fn paths_are_relative_to_the_folder_of_the_file() {
    let config = Config::read(&ConfigSources {
        file: Some((
            PathBuf::from("etc/politesse.toml"),
            "[https]\nca_key = \"/k/ca.key\"\n".to_owned(),
        )),
        environment: Vec::new(),
        overrides: &["https.upstream_roots=roots.pem".to_owned()],
        working_directory: PathBuf::from("/srv"),
        data_directory: None,
    });
    let config = config.unwrap();
    let settings = config.settings();
    assert_eq!(settings.ca.cert, Path::new("/srv/etc/certs/ca.pem"));
    assert_eq!(settings.ca.key, Path::new("/k/ca.key"));
    assert_eq!(settings.audit.path, Path::new("/srv/etc/data/audit.db"));
    assert!(format!("{:?}", settings.upstream.tls.roots).contains("/srv/etc/roots.pem"));
}

#[test]
fn a_ttl_below_ttl_min_wins() {
    let config = file("[robots]\nttl = \"1m\"\n").unwrap();
    assert_eq!(config.settings().robots.ttl_min.as_secs(), 60);
}

// Ours: a node whose store does not answer may still send for the length of a lease, and
// its next question to the store must have ended by then.
#[test]
fn the_fleet_timeout_is_at_most_a_quarter_of_a_lease() {
    for (lease, timeout, expected) in [("1s", "5s", 250), ("2s", "1s", 500), ("2s", "200ms", 200)] {
        let text = format!("[fleet]\nlease = \"{lease}\"\ntimeout = \"{timeout}\"\n");
        let rules = file(&text).unwrap().settings().fleet.rules;
        assert_eq!(rules.timeout.as_millis(), expected, "{text}");
    }
}

/// One past each end of a range is rejected, naming the key; each end is accepted.
macro_rules! bounds {
    ($($name:ident: $key:literal refuses [$($bad:literal)+] takes [$($good:literal)+];)+) => {$(
        #[test]
        fn $name() {
            $(
                let found = problems(read("", &[], &[concat!($key, "=", $bad)]));
                assert_eq!(found.len(), 1, "{} {found:?}", $bad);
                assert!(found[0].contains(concat!($key, " is ")), "{} {found:?}", $bad);
            )+
            $(
                if let Err(problems) = read("", &[], &[concat!($key, "=", $good)]) {
                    panic!("{} {problems}", $good);
                }
            )+
        }
    )+};
}

bounds! {
    crawler: "crawler" refuses ["x" "{}" "[3]"] takes ["[]" "[{ token = 'A' }]"];
    proxy_listen: "proxy.listen"
        refuses ["[]" "127.0.0.1" "['127.0.0.1']" "['localhost:1']" "['127.0.0.1:65536']" "['ftp://127.0.0.1:1']" "['https://127.0.0.1:1/']" "['https://a:1']"]
        takes ["127.0.0.1:1" "['127.0.0.1:0']" "['0.0.0.0:65535', '[::]:1']" "['http://127.0.0.1:1', 'https://[::1]:2']"];
    proxy_tls_cert: "proxy.tls_cert" refuses ["''" "3" "~/cert.pem"] takes ["none" "cert.pem" "/etc/politesse/cert.pem"];
    proxy_tls_key: "proxy.tls_key" refuses ["''" "3" "~/key.pem"] takes ["none" "key.pem" "/run/secrets/key.pem"];
    // RFC 9110, section 5.6.2.
    proxy_name: "proxy.name" refuses ["''" "a b" "ä" "a,b" "1"] takes ["a" "!#$%&'*+-.^_`|~"];
    proxy_auth: "proxy.auth" refuses ["on" "true" "''"] takes ["off" "optional" "required"];
    proxy_via: "proxy.via" refuses ["yes" "1" "'true'"] takes ["true" "false"];
    proxy_contact: "proxy.contact" refuses ["''" "3" "\"a\\nb\""] takes ["none" "crawl@site.example" "'Ada, room 7'"];
    audit_operator: "audit.operator" refuses ["''" "3" "\"a\\nb\""] takes ["none" "'Example Library, Berlin'"];
    proxy_internal_name: "proxy.internal_name" refuses ["3" "localhost" "127.0.0.1" "a b" "a/b" "a:80"] takes ["''" "politesse.internal" "proxy.site.example"];
    proxy_clients: "proxy.clients"
        refuses ["[]" "['public']" "['10.1.2.3/8']" "['::1/129']" "['a.example']" "[5]"]
        takes ["['private', 'loopback', '10.0.0.0/8', '::1', 'fd00::/8']"
            "['loopback', { network = '2001:db8::/48', connections = 512, leaves = 1 }]"];
    proxy_per_client: "proxy.per_client"
        refuses ["5" "[]"]
        takes ["{}" "{ connections = 1, handshakes = 1, requests = 1, waiting = 1, lookups = 1, robots_fetches = 1, leaves = 1 }"];
    proxy_protocol_from: "proxy.proxy_protocol_from" refuses ["10.0.0.1" "['a.test']" "['loopback']"] takes ["[]" "['10.0.0.1', '10.0.0.0/8', '::1']"];
    proxy_max_handshakes: "proxy.max_handshakes" refuses ["0" "1_000_001"] takes ["1" "1_000_000"];
    proxy_max_requests: "proxy.max_requests" refuses ["0" "10_000_001"] takes ["1" "10_000_000"];
    proxy_min_progress: "proxy.min_progress" refuses ["-1B" "1025KiB" "1"] takes ["0B" "1MiB"];
    proxy_progress_window: "proxy.progress_window" refuses ["0s" "3600001ms"] takes ["1ms" "1h"];
    proxy_place_wait: "proxy.place_wait" refuses ["3600001ms" "5"] takes ["0s" "1h"];
    proxy_backlog: "proxy.backlog" refuses ["0" "-1" "1_000_001" "'1'"] takes ["1" "1_000_000"];
    proxy_max_commands: "proxy.max_commands" refuses ["0" "10_001" "'1'"] takes ["1" "10_000"];
    proxy_max_connections: "proxy.max_connections" refuses ["0" "-1" "1_000_001" "1.0" "'1'"] takes ["1" "1_000_000" "0x10"];
    proxy_header_timeout: "proxy.header_timeout" refuses ["0s" "3600001ms" "15" "1.5s"] takes ["1ms" "1h"];
    proxy_idle_timeout: "proxy.idle_timeout" refuses ["0s" "86400001ms"] takes ["1ms" "24h" "1d"];
    proxy_drain_time: "proxy.drain_time" refuses ["-1s" "3600001ms" "5"] takes ["0s" "1h"];
    proxy_shutdown_timeout: "proxy.shutdown_timeout" refuses ["-1s" "3600001ms"] takes ["0s" "1h"];
    https_mode: "https.mode" refuses ["tunnel" "Intercept" "true"] takes ["intercept" "refuse"];
    https_ca_cert: "https.ca_cert" refuses ["''" "3" "~/ca.pem" "\"\\u0000\""] takes ["a" "/a/b.pem" "./~/ca.pem"];
    https_ca_key: "https.ca_key" refuses ["''" "3"] takes ["a" "/a/b.key"];
    https_upstream_roots: "https.upstream_roots" refuses ["''" "3" "[]" "['system', 3]"] takes ["system" "webpki" "/a/b.pem" "['system', 'extra.pem']"];
    https_leaf_cache: "https.leaf_cache" refuses ["0" "1000001"] takes ["1" "1000000"];
    https_handshake_timeout: "https.handshake_timeout" refuses ["0s" "3600001ms"] takes ["1ms" "1h"];
    robots_user_agent: "robots.user_agent" refuses ["''" "' a'" "ä" "\"a\\nb\""] takes ["crawler" "Politesse/1.0 (+https://a.example)"];
    // RFC 9309, section 2.5.
    robots_max_bytes: "robots.max_bytes" refuses ["511999B" "16777217B" "512000"] takes ["500KiB" "16MiB"];
    // RFC 9309, section 2.4.
    robots_ttl: "robots.ttl" refuses ["0s" "86400001ms"] takes ["1ms" "24h"];
    robots_ttl_min: "robots.ttl_min" refuses ["0s" "86400001ms"] takes ["1ms" "24h"];
    robots_unavailable_ttl: "robots.unavailable_ttl" refuses ["0s" "86400001ms"] takes ["1ms" "24h"];
    robots_retry: "robots.retry"
        refuses ["[]" "['1s']" "['2s', '1s']" "['0s', '1s']" "['1s', '86400001ms']" "['1s', 3]" "['1s', '2s', '3s']" "['1s', '2s', 3]" "1s"]
        takes ["['1s', '1s']" "['1ms', '24h']"];
    // RFC 9309, section 2.3.1.2.
    robots_redirects: "robots.redirects" refuses ["4" "21" "261"] takes ["5" "20"];
    robots_timeout: "robots.timeout" refuses ["0s" "3600001ms"] takes ["1ms" "1h"];
    robots_stale: "robots.stale" refuses ["-1s" "2592000001ms" "31d"] takes ["0s" "30d"];
    robots_max_fetches: "robots.max_fetches" refuses ["0" "1000001"] takes ["1" "1000000"];
    robots_serve_cached: "robots.serve_cached" refuses ["1"] takes ["true" "false"];
    robots_max_snapshots: "robots.max_snapshots" refuses ["0" "10000001"] takes ["1" "10000000"];
    robots_max_snapshot_bytes: "robots.max_snapshot_bytes" refuses ["16777215B" "16385MiB" "1"] takes ["16MiB" "16384MiB"];
    robots_override: "robots.override"
        refuses ["x" "{}" "[3]"]
        takes ["[]" "[{ origin = '*.a.example', action = 'deny', reason = 'x' }]"];
    robots_dialect: "robots.dialect" refuses ["rfc9310"] takes ["rfc9309" "draft-2019" "1996" "1994" "conner-2.0" "google"];
    robots_readings: "robots.readings" refuses ["file" "1"] takes ["sent" "dots" "server"];
    robots_status_unauthorized: "robots.status.unauthorized" refuses ["deny"] takes ["allow" "refuse"];
    robots_unreachable_answer: "robots.unreachable_answer" refuses ["404" "\"no\""] takes ["403" "503" "\"503\""];
    robots_max_waiting: "robots.max_waiting" refuses ["0" "1000001"] takes ["1" "1000000"];
    robots_max_names: "robots.max_names" refuses ["0" "1000001"] takes ["1" "1000000"];
    enforcement_mode: "enforcement.mode" refuses ["off" "true"] takes ["enforce" "report"];
    enforcement_candidates: "enforcement.candidates" refuses ["one" "1"] takes ["first" "all"];
    preferences_enforce: "preferences.enforce" refuses ["on" "enforce" "true"] takes ["off" "report" "refuse"];
    preferences_any: "preferences.any" refuses ["1"] takes ["true" "false"];
    preferences_unknown: "preferences.unknown" refuses ["report" "true"] takes ["pass" "refuse"];
    // RFC 9110, section 5.1.
    directives_header: "directives.header"
        refuses ["''" "a b" "a:" "3" "X-Robots-Tag" "Content-Length" "via" "Proxy-X"]
        takes ["X-Robots" "a" "contents"];
    directives_scan_limit: "directives.scan_limit" refuses ["16777217B" "-1B" "0"] takes ["0B" "16MiB"];
    directives_hold_bytes: "directives.hold_bytes" refuses ["16777217B"] takes ["0B" "16MiB"];
    directives_hold_time: "directives.hold_time" refuses ["60001ms"] takes ["0s" "1m"];
    directives_hold_total: "directives.hold_total" refuses ["17179869185B"] takes ["0B" "16GiB"];
    directives_field_limit: "directives.field_limit" refuses ["8191B" "1048577B"] takes ["8KiB" "1MiB"];
    directives_both_fields: "directives.both_fields" refuses ["both"] takes ["union" "robots-tag"];
    directives_meta_scope: "directives.meta_scope" refuses ["page"] takes ["head" "prefix"];
    directives_preferences: "directives.preferences" refuses ["1"] takes ["true" "false"];
    directives_emit_general: "directives.emit_general" refuses ["1"] takes ["true" "false"];
    directives_known: "directives.known" refuses ["17179869185B"] takes ["0B" "16GiB"];
    directives_accept_encoding: "directives.accept_encoding" refuses ["gzip"] takes ["decodable" "as-is"];
    pace_profile: "pace.profile" refuses ["polite" "1"] takes ["standard" "archive" "owned"];
    pace_retry: "pace.retry" refuses ["-1" "11"] takes ["0" "10"];
    pace_max_wait: "pace.max_wait" refuses ["-1s" "3600001ms" "120"] takes ["0s" "1h"];
    pace_origin: "pace.origin" refuses ["[]" "5/s" "4"] takes ["{}" "{ in_flight = 1 }" "{ in_flight = 1_000_000, rate = '1000000/h' }"];
    pace_crawler: "pace.crawler" refuses ["[]" "50"] takes ["{}" "{ in_flight = 50 }"];
    pace_total: "pace.total" refuses ["[]" "500/s"] takes ["{}" "{ rate = '500/s' }"];
    pace_domain: "pace.domain" refuses ["[]" "2/s"] takes ["{}" "{ rate = '2/s' }"];
    pace_address: "pace.address" refuses ["[]" "4/s"] takes ["{}" "{ rate = '4/s' }"];
    pace_queue: "pace.queue" refuses ["[]" "256"] takes ["{}" "{ origin = 1 }" "{ origin = 1_000_000, crawler = 1, total = 1_000_000 }"];
    pace_backoff: "pace.backoff"
        refuses ["[]" "60s" "{ first = '2m', longest = '1m' }"]
        takes ["{}" "{ first = '24h' }" "{ first = '1ms', longest = '1ms', forgive = '24h' }"];
    pace_requisites: "pace.requisites"
        refuses ["[]" "100" "'60s'"]
        takes ["{}" "{ files = 1 }" "{ files = 1000, time = '10m' }"];
    pace_max_turn: "pace.max_turn" refuses ["0s" "86400001ms"] takes ["1ms" "24h"];
    pace_max_stall: "pace.max_stall" refuses ["0s" "86400001ms"] takes ["1ms" "24h"];
    pace_max_hosts: "pace.max_hosts" refuses ["0" "10000001"] takes ["1" "10000000"];
    pace_rule: "pace.rule" refuses ["x" "{}" "[3]"] takes ["[]" "[{ origin = 'a.example', reason = 'x' }]"];
    fleet_store: "fleet.store"
        refuses ["redis://a" "['a:6379']" "['redis://u:p@a']" "['redis://a/x']"]
        takes ["[]" "['redis://a', 'rediss://[::1]:1/2']"];
    fleet_store_auth: "fleet.store_auth" refuses ["''" "3"] takes ["none" "store.auth"];
    fleet_store_ca: "fleet.store_ca" refuses ["''" "3"] takes ["none" "ca.pem"];
    fleet_key: "fleet.key" refuses ["''" "3"] takes ["none" "fleet.key"];
    fleet_name: "fleet.name" refuses ["''" "a:b" "{a}"] takes ["politesse" "a-B.1_c"];
    fleet_node: "fleet.node" refuses ["''" "a b" "ä"] takes ["auto" "node-1"];
    fleet_on_loss: "fleet.on_loss" refuses ["open" "none"] takes ["degrade" "closed"];
    fleet_lease: "fleet.lease" refuses ["499ms" "61s"] takes ["500ms" "1m"];
    fleet_timeout: "fleet.timeout" refuses ["9ms" "5001ms"] takes ["10ms" "5s"];
    fleet_forget: "fleet.forget" refuses ["59s" "31d"] takes ["1m" "30d"];
    upstream_connect_timeout: "upstream.connect_timeout" refuses ["0s" "3600001ms"] takes ["1ms" "1h"];
    upstream_first_byte_timeout: "upstream.first_byte_timeout" refuses ["0s" "3600001ms"] takes ["1ms" "1h"];
    upstream_idle_timeout: "upstream.idle_timeout" refuses ["0s" "3600001ms"] takes ["1ms" "1h"];
    upstream_http2: "upstream.http2" refuses ["1"] takes ["true" "false"];
    upstream_pool_idle_timeout: "upstream.pool_idle_timeout" refuses ["0s" "3600001ms"] takes ["1ms" "1h"];
    upstream_pool_idle_per_origin: "upstream.pool_idle_per_origin" refuses ["0" "1025"] takes ["1" "1024"];
    upstream_pool_idle_total: "upstream.pool_idle_total" refuses ["0" "1000001"] takes ["1" "1000000"];
    upstream_dns_ttl: "upstream.dns_ttl" refuses ["0s" "86400001ms"] takes ["1ms" "24h"];
    upstream_dns_timeout: "upstream.dns_timeout" refuses ["0s" "3600001ms"] takes ["1ms" "1h"];
    upstream_dns_lookups: "upstream.dns_lookups" refuses ["0" "513"] takes ["1" "512"];
    upstream_dns_zone_lookups: "upstream.dns_zone_lookups" refuses ["0" "513"] takes ["1" "512"];
    upstream_dns_cache: "upstream.dns_cache" refuses ["0" "1000001"] takes ["1" "1000000"];
    upstream_resolve: "upstream.resolve" refuses ["[]" "x"] takes ["{}" "{ a = '::1' }"];
    upstream_parent: "upstream.parent"
        refuses ["''" "proxy.example:3128" "https://a.example" "http://u:p@a.example" "http://a.example/x" "http://a.example:0" "socks5://a.example"]
        takes ["none" "http://proxy.example:3128" "http://[::1]:3128/" "http://10.0.0.1"];
    upstream_parent_auth: "upstream.parent_auth" refuses ["''" "3"] takes ["none" "parent.auth" "/etc/politesse/parent.auth"];
    upstream_tls: "upstream.tls" refuses ["x" "{}" "[3]" "[{ host = 'a.example', reason = 'x' }]"] takes ["[]" "[{ host = 'a.example', verify = false, reason = 'x' }]"];
    egress_deny: "egress.deny" refuses ["default" "['a.example']" "['10.1.2.3/8']"] takes ["[]" "['default', '203.0.113.0/24', '::1']"];
    egress_allow: "egress.allow" refuses ["['*.example']" "['-a']" "['10.0.0']" "['a..b']" "['']"] takes ["[]" "['Intranet.Example.', '10.1.0.0/16', 'a_b']"];
    egress_ports: "egress.ports"
        refuses ["[]" "['0']" "['65536']" "['2-1']" "['1-']" "['+1']" "[0]" "[65536]" "[-1]" "[80.0]"]
        takes ["['default']" "['1', '1-65535', '8080']" "[443, 8443]" "[0x1F90, '9000-9100', 65_535]"];
    audit_store: "audit.store" refuses ["data/audit.db" "'sqlite:'" "postgres://a" "sqlite:~/a.db"] takes ["sqlite:a.db"];
    audit_wal_max: "audit.wal_max" refuses ["16777215B" "16385MiB" "1"] takes ["16MiB" "16384MiB"];
    audit_retention: "audit.retention" refuses ["999ms" "36501d" "never" "0s"] takes ["none" "1s" "400d"];
    audit_query_strings: "audit.query_strings" refuses ["none" "hash"] takes ["full" "keyed" "omitted"];
    audit_client_addresses: "audit.client_addresses" refuses ["none" "omitted"] takes ["full" "shortened" "keyed"];
    audit_seal_key: "audit.seal_key" refuses ["" "~/seal.key"] takes ["none" "seal.key"];
    audit_seal_entries: "audit.seal_entries" refuses ["0" "1048577"] takes ["1" "1048576"];
    audit_seal_interval: "audit.seal_interval" refuses ["999ms" "86401s"] takes ["1s" "24h"];
    audit_seal_to: "audit.seal_to" refuses ["none" "['']" "['~/a']" "['exec: ']" "['ftp://a.test/']" "['http://']"]
        takes ["[]" "['heads.txt', 'exec:cat > /dev/null', 'https://a.test/heads?token=1']"];
    audit_archive: "audit.archive"
        refuses ["''" "db.example/a" "postgres://a" "postgres://u:p@a/b" "postgres://a/b?sslmode=require" "3" "sqlite:a.db"]
        takes ["none" "postgres://a/b" "postgres://[::1]:1/b?sslmode=disable"];
    audit_archive_auth: "audit.archive_auth" refuses ["''" "3"] takes ["none" "archive.auth"];
    audit_archive_ca: "audit.archive_ca" refuses ["''" "3"] takes ["none" "ca.pem"];
    audit_archive_timeout: "audit.archive_timeout" refuses ["999ms" "3601s"] takes ["1s" "1h"];
    audit_queue: "audit.queue" refuses ["1" "1000001"] takes ["2" "1000000"];
    admin_token_file: "admin.token_file" refuses ["''" "3" "~/token"] takes ["token" "/run/secrets/politesse"];
    admin_listen: "admin.listen" refuses ["3129" "127.0.0.1" "['127.0.0.1:1']"] takes ["127.0.0.1:0" "[::1]:3129"];
    admin_base_path: "admin.base_path" refuses ["/api" "/decisions/x" "''" "a" "//" "/a//b" "/a b" "/../a" "/a?b" "/ä"] takes ["/" "/politesse" "/apis" "/a/b/" "/a.b_c~d-e"];
    admin_hosts: "admin.hosts" refuses ["dash.test" "['10.0.0.1']" "['a.test:80']" "['']"] takes ["[]" "['dash.test', 'A.test.']"];
    admin_trusted_proxies: "admin.trusted_proxies" refuses ["10.0.0.1" "['a.test']" "['loopback']"] takes ["[]" "['10.0.0.1', '10.0.0.0/8', '::1']"];
    admin_tls_cert: "admin.tls_cert" refuses ["''" "3" "~/cert.pem"] takes ["none" "cert.pem" "/etc/politesse/cert.pem"];
    admin_tls_key: "admin.tls_key" refuses ["''" "3" "~/key.pem"] takes ["none" "key.pem" "/run/secrets/key.pem"];
    admin_sessions: "admin.sessions" refuses ["0" "10001"] takes ["1" "10000"];
    admin_session_lifetime: "admin.session_lifetime" refuses ["59s" "721h"] takes ["1m" "30d"];
    log_format: "log.format" refuses ["text"] takes ["auto" "pretty" "json"];
    log_burst: "log.burst" refuses ["0" "1_000_001" "'1'"] takes ["1" "1_000_000"];
    log_level: "log.level" refuses ["INFO" "off"] takes ["error" "warn" "info" "debug" "trace"];
    log_exchanges: "log.exchanges" refuses ["yes" "1" "'true'"] takes ["true" "false"];
}

#[test]
fn every_key_has_a_test_of_its_bounds() {
    let tests = include_str!("tests.rs");
    for section in SECTIONS {
        for key in section.keys {
            let dot = if section.is_root() { "" } else { "." };
            let row = format!(": \"{}{dot}{}\"", section.name, key.name);
            assert!(tests.contains(&row), "{row}");
        }
    }
}

#[test]
fn a_name_is_resolved_with_and_without_ports() {
    let text = r#"
[upstream.resolve]
"Site.Example" = "127.0.0.1"
"site.example:443" = "127.0.0.1:8443"
"v6.example" = "[::1]"
"v6.example:80" = "[::1]:8080"
"#;
    let config = file(text).unwrap();
    let resolve = &config.settings().egress.resolve;
    let read: Vec<_> = resolve
        .iter()
        .map(|entry| {
            (
                entry.name.as_str(),
                entry.port,
                entry.address.to_string(),
                entry.to_port,
            )
        })
        .collect();
    assert_eq!(
        read,
        [
            ("site.example", None, "127.0.0.1".to_owned(), None),
            (
                "site.example",
                Some(443),
                "127.0.0.1".to_owned(),
                Some(8443)
            ),
            ("v6.example", None, "::1".to_owned(), None),
            ("v6.example", Some(80), "::1".to_owned(), Some(8080)),
        ]
    );
}

#[test]
fn each_wrong_entry_of_resolve_is_reported() {
    let text = r#"
[upstream.resolve]
"A.example" = "127.0.0.1"
"a.example" = "127.0.0.2"
"127.0.0.1" = "127.0.0.2"
"b.example" = "c.example"
"d.example:0" = "127.0.0.1"
"e.example" = "127.0.0.1:0"
"#;
    let found = problems(file(text));
    let lines: Vec<_> = found
        .iter()
        .map(|told| told.split(';').next().unwrap())
        .collect();
    assert_eq!(
        lines,
        [
            "politesse.toml, line 4: upstream.resolve.\"a.example\" is \"127.0.0.2\"",
            "politesse.toml, line 5: upstream.resolve.\"127.0.0.1\" is \"127.0.0.2\"",
            "politesse.toml, line 6: upstream.resolve.\"b.example\" is \"c.example\"",
            "politesse.toml, line 7: upstream.resolve.\"d.example:0\" is \"127.0.0.1\"",
            "politesse.toml, line 8: upstream.resolve.\"e.example\" is \"127.0.0.1:0\"",
        ]
    );
}

#[test]
fn any_text_is_read_or_rejected_without_a_panic() {
    for text in [
        "\u{feff}[proxy]\n",
        "[",
        "]",
        "=",
        "\0",
        "[[proxy]]\n",
        "proxy",
        "a = [1, {",
        "\"\"\"",
    ] {
        let _ = file(text);
    }
    assert!(file("\u{feff}[proxy]\r\nvia = false\r\n").is_ok());
    assert_eq!(problems(file("[[proxy]]\n")).len(), 1);
}
