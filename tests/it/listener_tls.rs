//! TLS between client and proxy: plain and TLS listeners side by side, and their
//! certificate. Every test here is ours; docs/configuration.md.

use std::net::SocketAddr;

use crate::kit::certificates::TestCa;
use crate::kit::client::{Crawler, get, reload};
use crate::kit::origin::{Origin, Script};
use crate::kit::paced::metric;
use crate::kit::program::{finish, isolated};
use crate::kit::proxy::{Config, Place, Proxy, address_in, resolve};
use crate::kit::{assert_contains, clock, sha256};

const ROBOTS: &str = "User-agent: *\nDisallow: /private\n";

/// Returns a configuration with a listener of each scheme.
fn config(origin: &Origin) -> Config {
    resolve("o.test", origin.address())
        .set("proxy.listen = [\"http://127.0.0.1:0\", \"https://127.0.0.1:0\"]")
        .set("proxy.tls_cert = \"proxy.pem\"")
        .set("proxy.tls_key = \"proxy.key\"")
}

/// Writes a certificate signed by the test CA, and its key.
fn write_pair(place: &Place) {
    let [cert, key] = TestCa::get().pair(&["127.0.0.1", "localhost"]);
    place.write("proxy.pem", &cert, 0o644);
    place.write("proxy.key", &key, 0o600);
}

async fn start(config: &Config) -> Proxy {
    let place = Place::with(config);
    write_pair(&place);
    place.start().await
}

/// Starts an origin and a proxy. Returns the address of the TLS listener, too.
async fn start_site() -> (Origin, Proxy, SocketAddr) {
    let origin = Script::robots(ROBOTS).start().await;
    let proxy = start(&config(&origin)).await;
    let address = tls_address(&proxy);
    (origin, proxy, address)
}

/// Returns the address of the TLS listener.
fn tls_address(proxy: &Proxy) -> SocketAddr {
    let banner = proxy.banner();
    assert!(banner[0].contains("listens on http://"), "{banner:?}");
    assert!(banner[1].contains("listens on https://"), "{banner:?}");
    address_in(&banner[1])
}

#[tokio::test]
async fn requests_and_connects_work_over_a_tls_listener() {
    let plain = Script::robots(ROBOTS).start().await;
    let origin = Script::robots(ROBOTS).tls().start().await;
    let config = config(&origin).resolve("p.test", plain.address());
    let proxy = start(&config).await;
    let mut crawler = Crawler::over_tls(tls_address(&proxy)).await.unwrap();
    for (path, status) in [("/a", 200), ("/private", 403)] {
        let reply = crawler.get(&format!("http://p.test{path}"), "p.test").await;
        assert_eq!(reply.status(), status, "{}", reply.text());
    }
    let opened = crawler.ask_to_connect("o.test:443", &[]).await;
    assert_eq!(opened.status, 200);
    let inside = crawler.secured(&proxy, "o.test:443", Some("o.test")).await;
    let mut inside = inside.unwrap();
    for (path, status) in [("/a", 200), ("/private", 403)] {
        let reply = inside.get(path, "o.test").await;
        assert_eq!(reply.status(), status, "{}", reply.text());
    }
    // The other listener still serves plain HTTP.
    assert_eq!(get(&proxy, "http://p.test/a").await.status(), 200);
}

#[tokio::test]
async fn a_reload_replaces_the_certificate_and_keeps_open_connections() {
    let (origin, proxy, address) = start_site().await;
    let mut open = Crawler::over_tls(address).await.unwrap();
    assert_eq!(open.get("http://o.test/a", "o.test").await.status(), 200);
    let end = metric(&proxy, "politesse_tls_cert_end_timestamp_seconds").await;
    assert!((clock::now().as_second() as f64) < end, "{end}");
    // The client rejects an untrusted certificate, which shows that the new one is used.
    let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    proxy.place().write("proxy.pem", &own.cert.pem(), 0o644);
    let key = own.signing_key.serialize_pem();
    proxy.place().write("proxy.key", &key, 0o600);
    reload(&proxy).await;
    assert!(Crawler::over_tls(address).await.is_err());
    assert_eq!(open.get("http://o.test/b", "o.test").await.status(), 200);
    write_pair(proxy.place());
    reload(&proxy).await;
    let mut anew = Crawler::over_tls(address).await.unwrap();
    assert_eq!(anew.get("http://o.test/c", "o.test").await.status(), 200);
    assert_eq!(open.get("http://o.test/d", "o.test").await.status(), 200);
    assert_eq!(origin.targets(), ["/a", "/b", "/c", "/d"]);
}

#[tokio::test]
async fn unusable_tls_files_are_reported_at_start_and_reload() {
    let (_origin, proxy, address) = start_site().await;
    let other_key = rcgen::KeyPair::generate().unwrap().serialize_pem();
    proxy.place().write("proxy.key", &other_key, 0o600);
    proxy.signal("HUP").await;
    let told = "proxy.key (proxy.tls_key) is not that of the first certificate";
    proxy.logged(told).await;
    let mut crawler = Crawler::over_tls(address).await.unwrap();
    assert_eq!(crawler.get("http://o.test/a", "o.test").await.status(), 200);
    let place = proxy.stop().await;
    let outcome = place.run_code(1, &["serve"]).await;
    assert_contains(&outcome.stderr, told);

    place.write("proxy.key", &other_key, 0o640);
    let outcome = place.run(&["serve"]).await;
    outcome.assert_stderr(&["proxy.key (proxy.tls_key) may be read by others (mode 640)"]);
}

// Ours: all conflicts are reported together, before any file is created.
#[tokio::test]
async fn conflicting_listener_settings_are_reported_by_check_and_serve() {
    let place = Place::with(&Config::default());
    let listen = "proxy.listen=[\"https://127.0.0.1:3128\",\"127.0.0.1:3128\",\
                      \"0.0.0.0:3200\",\"[::1]:3200\"]";
    let admin = "admin.listen=\"127.0.0.1:3200\"";
    let cert = "admin.tls_cert=\"admin.pem\"";
    let set = ["--set", listen, "--set", admin, "--set", cert];
    for command in [&["config", "check"][..], &["serve"]] {
        let outcome = place.run_code(2, &[&set, command].concat()).await;
        outcome.assert_stderr(&[
            "proxy.listen has an address with https://, and proxy.tls_cert is \"none\"",
            "admin has one of the two files of a certificate, and admin.tls_key is \"none\"",
            "of 127.0.0.1:3128 and 127.0.0.1:3128, in proxy.listen and admin.listen, only one",
            "of 0.0.0.0:3200 and 127.0.0.1:3200, in proxy.listen and admin.listen, only one",
        ]);
        // Equal ports of different address families do not conflict.
        assert!(!outcome.stderr.contains("[::1]:3200"), "{outcome:?}");
        assert!(!place.path("certs").exists());
    }
}

#[tokio::test]
async fn a_missing_or_invalid_handshake_closes_the_connection() {
    let origin = Script::robots(ROBOTS).start().await;
    let config = config(&origin).set("proxy.header_timeout = \"300ms\"");
    let proxy = start(&config).await;
    let address = tls_address(&proxy);
    let mut silent = Crawler::to(address).await;
    assert!(silent.closes().await);
    let mut half = Crawler::to(address).await;
    half.send(&[0x16, 3, 1, 2, 0, 1]).await;
    assert!(half.closes().await);
    let mut none = Crawler::to(address).await;
    none.start_get("http://o.test/a", "o.test").await;
    // The proxy may send a TLS alert, but no HTTP answer.
    assert!(none.try_reply_to("GET").await.is_none());
    let failures = metric(&proxy, "politesse_tls_handshake_failures_total").await;
    assert_eq!(failures, 3.0);
    let told = "no TLS handshake with the proxy within";
    assert_contains(&proxy.log(), told);
    let mut good = Crawler::over_tls(address).await.unwrap();
    assert_eq!(good.get("http://o.test/a", "o.test").await.status(), 200);
}

#[tokio::test]
async fn curl_authenticates_over_a_tls_listener() {
    let plain = Script::robots(ROBOTS).start().await;
    let origin = Script::robots(ROBOTS).tls().start().await;
    let token = "0123456789abcdef".repeat(4);
    let digest = sha256(token.as_bytes());
    let table = format!("crawler = [{{ token = \"A\", credential = \"sha256:{digest}\" }}]");
    let config = config(&origin)
        .resolve("p.test", plain.address())
        .set(&table)
        .set("proxy.auth = \"required\"");
    let proxy = start(&config).await;
    let port = tls_address(&proxy).port();
    let with = format!("https://A:{token}@localhost:{port}");
    let without = format!("https://localhost:{port}");
    for (address, url, wanted) in [
        (&with, "http://p.test/a", [200, 0]),
        (&with, "https://o.test/a", [200, 200]),
        (&without, "http://p.test/a", [407, 0]),
        (&without, "https://o.test/a", [0, 407]),
    ] {
        let place = proxy.place();
        let mut command = isolated("curl", place.folder());
        command
            .args(["-s", "-o", "page", "--max-time", "30"])
            .args(["-w", "%{http_code} %{http_connect}"])
            .args(["--proxy", address, "--proxy-cacert"])
            .arg(place.path("roots.pem"))
            .arg("--cacert")
            .arg(place.path("certs/ca.pem"))
            .arg(url);
        let outcome = finish(command, b"").await;
        let codes = outcome.stdout.split(' ');
        let codes: Vec<u16> = codes.map(|code| code.parse().unwrap()).collect();
        assert_eq!(codes, wanted, "{address} {url} {outcome:?}");
    }
}

#[tokio::test]
async fn the_client_setup_page_explains_the_tls_listener() {
    let (_origin, _proxy, address) = start_site().await;
    let mut crawler = Crawler::over_tls(address).await.unwrap();
    let name = "politesse.internal";
    let pac = crawler.get(&format!("http://{name}/proxy.pac"), name).await;
    assert_contains(&pac.text(), &format!("\"HTTPS {address}\""));
    let guide = crawler.get(&format!("http://{name}/"), name).await.text();
    assert_contains(&guide, &format!("--proxy https://{address} --proxy-cacert"));
    assert_contains(&guide, "uses TLS");
}
