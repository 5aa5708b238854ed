//! SIGHUP: a new configuration takes effect whole or not at all, and requests in flight
//! keep the one with which they began.

use std::collections::BTreeSet;

use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use crate::kit::client::{Crawler, get, get_as};
use crate::kit::h2::H2Crawler;
use crate::kit::origin::{Origin, Script, site};
use crate::kit::paced::{column, metric, until_metric};
use crate::kit::page::{Gate, Page};
use crate::kit::proxy::{Config, Place, Proxy, resolve};

const ROBOTS: &str = "User-agent: *\nDisallow: /private\n";
const BAN: &str = "robots.override = [{ origin = \"http://o.test\", path = \"/held\", \
                   action = \"deny\", reason = \"asked by mail\" }]";

/// Metric that is 1 if the last reload succeeded.
const LAST_RELOAD: &str = "politesse_config_last_reload_successful";

/// Sends SIGHUP, and waits until the metrics count one more reload with `result`.
pub(crate) async fn hang_up(proxy: &Proxy, result: &str) {
    let name = format!("politesse_config_reloads_total{{result=\"{result}\"}}");
    let before = metric(proxy, &name).await;
    proxy.signal("HUP").await;
    until_metric(proxy, &name, |count| before < count).await;
}

/// Replaces the proxy's configuration with `config`, and waits for the reload.
async fn reload(proxy: &Proxy, config: &Config) {
    proxy.place().configure(config);
    hang_up(proxy, "successful").await;
}

/// Returns the log lines whose message is `message`, parsed as JSON.
fn events(proxy: &Proxy, message: &str) -> Vec<Value> {
    let log = proxy.log();
    let events = log
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    let named = events.filter(|event: &Value| event["message"] == message);
    named.collect()
}

fn to(origin: &Origin) -> Config {
    resolve("o.test", origin.address())
}

#[tokio::test]
async fn a_request_in_flight_keeps_its_policy_and_the_next_one_has_the_new() {
    let gate = Gate::shut();
    let script = Script::robots(ROBOTS).page("/held", Page::text("x").after(&gate));
    let (origin, proxy) = site(script, &[]).await;
    let mut crawler = Crawler::plain(&proxy).await;
    crawler.start_get("http://o.test/held", "o.test").await;
    origin.arrival("/held").await;
    reload(&proxy, &to(&origin).set(BAN)).await;
    let refused = get(&proxy, "http://o.test/held").await;
    refused.assert_error(403, "http_request_denied");
    assert_eq!(refused.json()["reason"], "override");
    gate.open(1);
    assert_eq!(crawler.reply_to("GET").await.status(), 200);
    let again = crawler.get("http://o.test/held", "o.test").await;
    again.assert_error(403, "http_request_denied");
    assert_eq!(origin.targets(), ["/held"]);
    let rows = proxy.place().completed(3).await;
    let policies = column(&rows, "policy");
    assert_eq!(rows[0]["verdict"], "allow");
    assert_ne!(policies[0], policies[1]);
    assert_eq!(policies[1], policies[2]);
    let told = events(&proxy, "the configuration was reloaded");
    assert_eq!(told.len(), 1);
    assert_eq!(told[0]["changed"], "robots.override");
    assert_eq!(told[0]["policy_before"], policies[0]);
    assert_eq!(told[0]["policy"], policies[1]);
    assert_ne!(told[0]["configuration"], told[0]["configuration_before"]);
    proxy.stop().await.assert_verified().await;
}

// Ours: none makes the proxy fetch robots.txt again.
#[tokio::test]
async fn every_pace_key_can_be_changed_by_a_reload() {
    let (origin, proxy) = site(Script::robots(ROBOTS), &[]).await;
    assert_eq!(get(&proxy, "http://o.test/a").await.status(), 200);
    let keys = [
        "pace.profile = \"standard\"",
        "pace.max_wait = \"5s\"",
        "pace.origin = { in_flight = 8 }",
        "pace.crawler = { rate = \"99/s\" }",
        "pace.total = { rate = \"999/s\" }",
        "pace.domain = { rate = \"99/s\" }",
        "pace.address = { rate = \"99/s\" }",
        "pace.queue = { origin = 9 }",
        "pace.backoff = { first = \"9s\" }",
        "pace.max_hosts = 9",
        "pace.rule = [{ origin = \"b.test\", rate = \"1/h\", reason = \"x\" }]",
        "crawler = [{ token = \"B\", user_agent = \"b/\", max_wait = \"9s\" }]",
    ];
    let config = keys.iter().fold(to(&origin), |config, key| config.set(key));
    reload(&proxy, &config).await;
    let told = events(&proxy, "the configuration was reloaded");
    let changed: BTreeSet<_> = told[0]["changed"].as_str().unwrap().split(", ").collect();
    let names = keys.iter().filter_map(|key| key.split(" = ").next());
    assert_eq!(changed, names.collect());
    assert_eq!(get(&proxy, "http://o.test/a").await.status(), 200);
    assert_eq!(origin.targets(), ["/a", "/a"]);
    assert_eq!(origin.robots_fetches(), 1);
    let wrong = to(&origin).set("pace.max_wait = \"2h\"");
    proxy.place().configure(&wrong);
    hang_up(&proxy, "failed").await;
}

// Each request inside an open CONNECT is decided by itself.
#[tokio::test]
async fn requests_inside_an_open_connect_use_the_new_configuration() {
    let (origin, proxy) = site(Script::robots(ROBOTS).tls(), &[]).await;
    let mut one = Crawler::inside(&proxy, "o.test:443").await;
    let mut two = H2Crawler::inside(&proxy, "o.test:443").await;
    assert_eq!(one.get("/held", "o.test").await.status(), 200);
    assert_eq!(two.get("https://o.test/held").await.status(), 200);
    let ban = BAN.replace("http://", "https://");
    reload(&proxy, &to(&origin).set(&ban)).await;
    assert_eq!(one.get("/held", "o.test").await.status(), 403);
    assert_eq!(two.get("https://o.test/held").await.status(), 403);
    assert_eq!(origin.targets().len(), 2);
}

#[tokio::test]
async fn a_file_with_mistakes_leaves_the_old_configuration_in_force_and_logs_each() {
    let (origin, proxy) = site(Script::robots(ROBOTS), &[]).await;
    assert_eq!(metric(&proxy, LAST_RELOAD).await, 1.0);
    let wrong = to(&origin)
        .set("enforcement.mode = \"report\"")
        .set("proxy.lissten = 1")
        .set("robots.redirects = 4");
    proxy.place().configure(&wrong);
    hang_up(&proxy, "failed").await;
    for told in [
        "proxy.lissten is not a key; did you mean proxy.listen?",
        "robots.redirects is 4; a whole number from 5 to 20 is wanted",
        "the configuration was not reloaded, and the previous one stays in force",
    ] {
        proxy.logged(told).await;
    }
    assert_eq!(metric(&proxy, LAST_RELOAD).await, 0.0);
    let reply = get(&proxy, "http://o.test/private").await;
    reply.assert_error(403, "http_request_denied");
    std::fs::remove_file(proxy.place().path("politesse.toml")).unwrap();
    hang_up(&proxy, "failed").await;
    proxy.logged("cannot read").await;
    assert_eq!(get(&proxy, "http://o.test/private").await.status(), 403);
    reload(&proxy, &to(&origin).set("enforcement.mode = \"report\"")).await;
    assert_eq!(get(&proxy, "http://o.test/private").await.status(), 200);
    assert_eq!(metric(&proxy, LAST_RELOAD).await, 1.0);
    assert_eq!(metric(&proxy, "politesse_report_mode").await, 1.0);
    let at = metric(&proxy, "politesse_config_last_reload_timestamp_seconds").await;
    assert!(1_700_000_000.0 < at, "{at}");
}

#[tokio::test]
async fn a_reload_that_changes_a_fixed_key_is_refused_whole() {
    let (origin, proxy) = site(Script::robots(ROBOTS), &[]).await;
    let fixed = to(&origin)
        .set("enforcement.mode = \"report\"")
        .set("proxy.listen = [\"127.0.0.1:0\", \"127.0.0.1:0\"]")
        .set("admin.listen = \"127.0.0.1:1\"")
        .set("audit.store = \"sqlite:other.db\"")
        .set("log.format = \"pretty\"");
    proxy.place().configure(&fixed);
    hang_up(&proxy, "failed").await;
    let told = "admin.listen, audit.store, log.format, proxy.listen \
                cannot be changed while the proxy runs";
    proxy.logged(told).await;
    assert_eq!(get(&proxy, "http://o.test/private").await.status(), 403);
    origin.assert_only_robots_fetched();
    assert!(!proxy.place().path("other.db").exists());
}

// Ours: the cache and the connections survive changes that do not affect them.
#[tokio::test]
async fn robots_txt_stays_cached_if_no_upstream_setting_changes() {
    let (origin, proxy) = site(Script::robots(ROBOTS), &[]).await;
    get(&proxy, "http://o.test/a").await;
    for line in [
        BAN,
        "enforcement.mode = \"report\"",
        "robots.status.unauthorized = \"refuse\"",
        "robots.serve_cached = false",
        "directives.header = \"X-Directives\"",
        "crawler = [{ token = \"OtherBot\", user_agent = \"otherbot\" }]",
        "proxy.name = \"other\"",
        "proxy.name = \"another\"",
    ] {
        reload(&proxy, &to(&origin).set(line)).await;
        assert_eq!(get(&proxy, "http://o.test/a").await.status(), 200, "{line}");
        assert_eq!(origin.robots_fetches(), 1, "{line}");
        assert_eq!(origin.connections(), 1, "{line}");
    }
    // The configuration has a digest of its own, which covers more than the policy.
    let told = events(&proxy, "the configuration was reloaded");
    let [.., before, last] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!(last["policy"], last["policy_before"]);
    assert_eq!(last["configuration_before"], before["configuration"]);
    assert_ne!(last["configuration"], before["configuration"]);
    reload(&proxy, &to(&origin).set("robots.dialect = \"1994\"")).await;
    get(&proxy, "http://o.test/a").await;
    // The copy on disk is parsed again in the new dialect.
    assert_eq!(origin.robots_fetches(), 1);
}

// Ours: a robots.txt fetched from another address does not apply.
#[tokio::test]
async fn robots_txt_is_fetched_again_if_the_origins_address_changes() {
    let (site, proxy) = site(Script::robots(ROBOTS), &[]).await;
    let other = Script::robots("User-agent: *\nDisallow: /a\n");
    let other = other.start().await;
    assert_eq!(get(&proxy, "http://o.test/a").await.status(), 200);
    reload(&proxy, &to(&other)).await;
    assert_eq!(get(&proxy, "http://o.test/a").await.status(), 403);
    assert_eq!(other.targets(), [""; 0]);
    let proxy = proxy.stop().await;
    proxy.configure(&to(&site));
    let proxy = proxy.start().await;
    assert_eq!(get(&proxy, "http://o.test/a").await.status(), 200);
    assert_eq!((site.robots_fetches(), other.robots_fetches()), (2, 1));
}

#[tokio::test]
async fn crawlers_are_named_by_the_new_table() {
    let robots = "User-agent: FooBot\nDisallow: /\n";
    let (origin, proxy) = site(Script::robots(robots), &[]).await;
    let mut crawler = Crawler::plain(&proxy).await;
    assert_eq!(crawler.get("http://o.test/a", "o.test").await.status(), 200);
    let table = "crawler = [{ token = \"FooBot\", user_agent = \"example\" }]";
    reload(&proxy, &to(&origin).set(table)).await;
    let refused = crawler.get("http://o.test/b", "o.test").await;
    refused.assert_error(403, "http_request_denied");
    assert_eq!(refused.json()["crawler"], "FooBot");
    let other = get_as(&proxy, "Other/1", "http://o.test/c").await;
    assert_eq!(other.status(), 200);
    assert_eq!(origin.targets(), ["/a", "/c"]);
}

// Ours: `proxy.clients` also applies to connections that are already open.
#[tokio::test]
async fn a_client_no_longer_admitted_is_refused_on_open_connections_too() {
    let origin = Script::robots(ROBOTS).start().await;
    let secured = Script::robots(ROBOTS).tls().start().await;
    let config = || to(&origin).resolve("o.test:443", secured.address());
    let proxy = config().start().await;
    let mut before = Crawler::plain(&proxy).await;
    assert_eq!(before.get("http://o.test/a", "o.test").await.status(), 200);
    let mut inside = H2Crawler::inside(&proxy, "o.test:443").await;
    assert_eq!(inside.get("https://o.test/a").await.status(), 200);
    reload(&proxy, &config().set("proxy.clients = [\"192.0.2.0/24\"]")).await;
    let turned_away = before.get("http://o.test/b", "o.test").await;
    turned_away.assert_error(403, "http_request_denied");
    assert_eq!(turned_away.json()["type"], "urn:politesse:client");
    assert!(before.closes().await);
    assert_eq!(inside.get("https://o.test/b").await.status(), 403);
    assert!(Crawler::plain(&proxy).await.closes().await);
    reload(&proxy, &config()).await;
    assert_eq!(get(&proxy, "http://o.test/c").await.status(), 200);
    assert_eq!(origin.targets(), ["/a", "/c"]);
    assert_eq!(secured.targets(), ["/a"]);
}

#[tokio::test]
async fn a_reload_raises_and_lowers_the_connection_limit() {
    let origin = Script::robots("").start().await;
    let limit = |most: u8| to(&origin).set(&format!("proxy.max_connections = {most}"));
    let proxy = limit(1).start().await;
    let get = async |crawler: &mut Crawler| crawler.get("http://o.test/a", "o.test").await;
    let mut first = Crawler::plain(&proxy).await;
    assert_eq!(get(&mut first).await.status(), 200);
    assert!(Crawler::plain(&proxy).await.closes().await);
    reload(&proxy, &limit(2)).await;
    let mut second = Crawler::plain(&proxy).await;
    assert_eq!(get(&mut second).await.status(), 200);
    reload(&proxy, &limit(1)).await;
    drop(second);
    until_metric(&proxy, "politesse_connections", |open| open == 1.0).await;
    assert!(Crawler::plain(&proxy).await.closes().await);
    assert_eq!(get(&mut first).await.status(), 200);
}

#[tokio::test]
async fn a_reload_reads_the_ca_and_the_roots_again() {
    let (origin, proxy) = site(Script::robots(ROBOTS).tls(), &[]).await;
    assert_eq!(get(&proxy, "https://o.test/a").await.status(), 200);
    let (old, certs) = (proxy.ca(), proxy.place().path("certs"));
    std::fs::remove_dir_all(&certs).unwrap();
    hang_up(&proxy, "failed").await;
    assert!(!certs.exists(), "a reload does not make a new CA");
    proxy.place().run_ok(&["ca", "init"]).await;
    assert_ne!(proxy.ca(), old);
    hang_up(&proxy, "successful").await;
    // The test client trusts the CA that is in the folder now.
    assert_eq!(get(&proxy, "https://o.test/b").await.status(), 200);
    std::fs::write(proxy.place().path("roots.pem"), proxy.ca()).unwrap();
    hang_up(&proxy, "successful").await;
    let reply = get(&proxy, "https://o.test/c").await;
    reply.assert_error(502, "tls_certificate_error");
    std::fs::write(proxy.place().path("roots.pem"), "nothing").unwrap();
    hang_up(&proxy, "failed").await;
    assert_eq!(origin.targets(), ["/a", "/b"]);
}

#[tokio::test]
async fn a_reload_changes_the_log_level() {
    let (origin, proxy) = site(Script::robots(ROBOTS), &[]).await;
    // Exchanges are logged at `debug`, or at any level with `log.exchanges`.
    let logged = [
        ("a", "log.level = \"warn\"", false),
        ("b", "log.level = \"info\"", false),
        ("c", "log.level = \"debug\"", true),
        ("d", "log.level = \"error\"\nlog.exchanges = true", true),
    ];
    for (page, lines, _) in logged {
        let config = lines.lines().fold(to(&origin), Config::set);
        reload(&proxy, &config).await;
        get(&proxy, &format!("http://o.test/{page}")).await;
    }
    proxy.logged("http://o.test/d").await;
    for (page, lines, is_logged) in logged {
        let found = proxy.log().contains(&format!("http://o.test/{page}"));
        assert_eq!(found, is_logged, "{lines}");
    }
}

/// Requests pages until `done` is true, and returns their number.
async fn crawl(proxy: &Proxy, done: &tokio::sync::watch::Receiver<bool>) -> u64 {
    let mut crawler = Crawler::plain(proxy).await;
    let mut asked = 0;
    while !*done.borrow() {
        let reply = crawler.get("http://o.test/a", "o.test").await;
        assert_eq!(reply.status(), 200, "{}", reply.text());
        asked += 1;
    }
    asked
}

// Ours: no request is lost, and replaced parts are dropped.
#[tokio::test]
async fn fifty_reloads_under_load_lose_no_request_and_leak_nothing() {
    let origin = Script::robots(ROBOTS).start().await;
    let config = |ttl: u32| {
        to(&origin)
            .set(&format!("upstream.dns_ttl = \"{ttl}s\""))
            .set(&format!("directives.field_limit = \"{}KiB\"", 8 + ttl % 2))
            .set(&format!("https.handshake_timeout = \"{ttl}s\""))
            .set(&format!("crawler = [{{ token = \"Bot{ttl}\" }}]"))
    };
    let proxy = config(1).start().await;
    let (stop, done) = tokio::sync::watch::channel(false);
    let reloads = async {
        let mut memory = 0;
        for ttl in 2..=51 {
            reload(&proxy, &config(ttl)).await;
            if ttl == 11 {
                memory = proxy.rss_kib();
            }
        }
        stop.send_replace(true);
        memory
    };
    let (early, first, second) = tokio::join!(reloads, crawl(&proxy, &done), crawl(&proxy, &done));
    let late = proxy.rss_kib();
    assert!(late < early + 32 * 1024, "{early} KiB, then {late} KiB");
    let asked = usize::try_from(first + second).unwrap();
    assert_eq!(origin.targets().len(), asked);
    let rows = proxy.place().completed(asked).await;
    let crawlers: BTreeSet<_> = rows.iter().map(|row| row["crawler"].to_string()).collect();
    assert!(10 < crawlers.len(), "the crawl spans the reloads");
    // Connections of replaced parts are closed.
    let files = std::fs::read_dir(format!("/proc/{}/fd", proxy.pid())).unwrap();
    assert!(files.count() < 48);
    proxy.stop().await;
}

// Ours: SIGHUP to `run` reloads the configuration and does not end the crawl.
#[tokio::test]
async fn run_continues_after_sighup_with_the_new_configuration() {
    // Under nohup(1) this process ignores SIGHUP, and `run` would inherit that. With a
    // handler here, a child starts with the default action.
    let _hangup = signal(SignalKind::hangup()).unwrap();
    let origin = Script::robots(ROBOTS).start().await;
    let place = Place::with(&to(&origin).set(BAN));
    let file = place.path("politesse.toml");
    std::fs::rename(&file, place.path("new.toml")).unwrap();
    place.configure(&to(&origin));
    let script = "curl -sS http://o.test/held; mv new.toml politesse.toml; kill -HUP $PPID; \
                      until [ \"$(curl -so page -w '%{http_code}' http://o.test/held)\" = 403 ]; \
                      do :; done; exit 7";
    let outcome = place.run_code(7, &["run", "--", "sh", "-c", script]).await;
    assert_eq!(outcome.stdout, "this is /held\n");
    assert!(outcome.stderr.contains("1 refused"), "{outcome:?}");
}

// Ours: a command that read the new token would be refused.
#[tokio::test]
async fn a_failed_reload_makes_no_token() {
    let proxy = Config::default().start().await;
    let token = proxy.place().path("data/admin-token");
    std::fs::remove_file(&token).unwrap();
    let keys = "admin.tls_cert = \"none.pem\"\nadmin.tls_key = \"none.key\"";
    proxy.place().configure(&Config::default().set(keys));
    hang_up(&proxy, "failed").await;
    assert!(!token.exists());
    reload(&proxy, &Config::default()).await;
    assert!(token.exists());
}
