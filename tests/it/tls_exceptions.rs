//! Exceptions for sites with broken certificates (`upstream.tls`): applied, logged and
//! recorded.

use serde_json::Value;

use crate::kit::assert_contains;
use crate::kit::client::{assert_statuses, get, reload};
use crate::kit::origin::{Origin, Script};
use crate::kit::proxy::{Config, Place, Proxy, resolve};

const EXPIRED: &str = "upstream.tls = [{ host = \"o.test\", verify = false, \
                       reason = \"expired in 2020\" }]";
const SHOWN: &str = "of this host: certificate not verified (expired in 2020)";

/// Starts a site whose certificate has expired.
async fn expired(name: &str) -> Origin {
    Script::robots("").name(name).expired().tls().start().await
}

/// Asserts that the certificate of the site is verified, and so refused.
async fn assert_certificate_refused(proxy: &Proxy, url: &str) {
    let reply = get(proxy, url).await;
    reply.assert_error(502, "tls_certificate_error");
}

// Ours.
#[tokio::test]
async fn an_exception_is_logged_at_the_start_and_recorded_with_each_decision() {
    let (o, p) = (expired("o.test").await, expired("p.test").await);
    let config = resolve("o.test", o.address()).resolve("p.test", p.address());
    let proxy = config.set(EXPIRED).start().await;
    let warning = "the certificate of a host is not verified";
    proxy.logged(warning).await;
    assert_statuses(&proxy, &[("https://o.test/a", 200)]).await;
    assert_certificate_refused(&proxy, "https://p.test/a").await;
    proxy.place().completed(2).await;
    let place = proxy.stop().await;
    assert_shown(&place).await;
    place.assert_verified().await;
    let outcome = place.run(&["doctor"]).await;
    let line = "warning  upstream.tls: the certificates of these hosts are not verified: \
                    o.test (expired in 2020)";
    assert_contains(&outcome.stdout, line);
}

/// Asserts that commands show the exception for `o.test` and none for `p.test`.
async fn assert_shown(place: &Place) {
    let (first, second) = (place.number(1).to_string(), place.number(2).to_string());
    for arguments in [
        &["audit", "show", &first][..],
        &["audit", "why", "https://o.test/a"],
        &["check", "--agent", "A", "https://o.test/a"],
    ] {
        let outcome = place.run(arguments).await;
        assert_contains(&outcome.stdout, SHOWN);
    }
    let other = place.run(&["audit", "show", &second]).await;
    assert!(!other.stdout.contains("of this host"), "{other:?}");
    for (number, reason) in [(&first, "expired in 2020".into()), (&second, Value::Null)] {
        let outcome = place.run(&["audit", "show", "--json", number]).await;
        assert_eq!(outcome.json_lines()[0]["tls"]["reason"], reason);
    }
}

// Ours: the exceptions in force apply to new connections and are recorded.
#[tokio::test]
async fn a_reload_adds_and_removes_exceptions() {
    let origin = expired("o.test").await;
    let config = || resolve("o.test", origin.address());
    let proxy = config().start().await;
    assert_certificate_refused(&proxy, "https://o.test/a").await;
    proxy.place().configure(&config().set(EXPIRED));
    reload(&proxy).await;
    assert_statuses(&proxy, &[("https://o.test/b", 200)]).await;
    proxy.place().configure(&config());
    reload(&proxy).await;
    assert_certificate_refused(&proxy, "https://o.test/c").await;
    let rows = proxy.place().completed(3).await;
    assert_eq!(rows[0]["policy"], rows[2]["policy"]);
    assert_ne!(rows[0]["policy"], rows[1]["policy"]);
    proxy.stop().await.assert_verified().await;
}

// Ours: `config check` opens the files that a start would.
#[tokio::test]
async fn a_missing_roots_file_prevents_the_start() {
    let line = "upstream.tls = [{ host = \"o.test\", roots = \"absent.pem\", reason = \"x\" }]";
    let place = Place::with(&Config::default().set(line));
    for command in [&["config", "check"][..], &["serve"]] {
        let outcome = place.run(command).await;
        outcome.assert_stderr(&["absent.pem"]);
        assert_ne!(outcome.code, Some(0), "{outcome:?}");
    }
}
