//! Replacement of the root (`politesse ca rotate`): clients get both roots, and the new
//! one signs a day later.

use std::os::unix::fs::PermissionsExt as _;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair, KeyUsagePurpose};
use rustls::pki_types::ServerName;
use time::{Duration, OffsetDateTime};
use tokio_rustls::TlsConnector;

use crate::kit::certificates;
use crate::kit::client::{Crawler, reload};
use crate::kit::proxy::{Config, Place, Proxy};

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";

/// Reports whether a client that trusts only `roots` accepts the proxy's certificate.
async fn accepts(proxy: &Proxy, roots: &str) -> bool {
    let raw = Crawler::connect(proxy, "a.example.invalid:443").await;
    let connector = TlsConnector::from(certificates::client(roots, &["http/1.1"]));
    let name = ServerName::try_from("a.example.invalid").unwrap();
    connector.connect(name, raw.into_stream()).await.is_ok()
}

/// Replaces the next root and its key by ones made three days ago, and returns the
/// certificate.
fn age_next_root(place: &Place) -> String {
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(DnType::CommonName, "politesse CA of three days ago");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(1));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.not_before = OffsetDateTime::now_utc() - Duration::days(3);
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    std::fs::write(place.path("certs/ca.next.pem"), &pem).unwrap();
    // Writing keeps the mode of the existing file.
    std::fs::write(place.path("certs/ca.next.key"), key.serialize_pem()).unwrap();
    pem
}

// Ours.
#[tokio::test]
async fn clients_get_both_roots_and_the_new_root_signs_a_day_later() {
    let proxy = Config::default().start().await;
    let place = proxy.place();
    let old = proxy.ca();
    place.run_ok(&["ca", "rotate"]).await;
    let both = place.run_ok(&["ca", "export"]).await.stdout;
    assert_eq!(both.matches(BEGIN).count(), 2);
    assert_eq!(both, proxy.ca(), "clients that read the file get both");
    let shown = place.run_ok(&["ca", "show"]).await.stdout;
    assert_eq!(shown.matches("sha256 ").count(), 2, "{shown}");
    let early = place.run(&["ca", "rotate"]).await;
    assert!(early.stderr.contains("signs from"), "{early:?}");
    let new = std::fs::read_to_string(place.path("certs/ca.next.pem")).unwrap();
    reload(&proxy).await;
    assert!(accepts(&proxy, &old).await);
    assert!(!accepts(&proxy, &new).await);

    let new = age_next_root(place);
    reload(&proxy).await;
    assert!(accepts(&proxy, &new).await);
    assert!(!accepts(&proxy, &old).await);
    place.run_ok(&["ca", "rotate"]).await;
    assert_eq!(place.run_ok(&["ca", "export"]).await.stdout, new);
    reload(&proxy).await;
    assert!(accepts(&proxy, &new).await);
    let key = place.path("certs/ca.key").metadata().unwrap();
    assert_eq!(key.permissions().mode() & 0o777, 0o600);
}

// Ours: `run`, and instructions for clients whose stores take one certificate at a time.
#[tokio::test]
async fn run_and_trust_instructions_include_both_roots() {
    let place = Place::with(&Config::default());
    place.run_ok(&["ca", "init"]).await;
    place.run_ok(&["ca", "rotate"]).await;
    let show = ["run", "--", "sh", "-c", "cat \"$SSL_CERT_FILE\""];
    let bundle = place.run_ok(&show).await.stdout;
    assert_eq!(bundle.matches(BEGIN).count(), 2, "{bundle}");
    for (client, text) in [
        ("java", "-alias politesse-next -file "),
        ("firefox", "ca.next.pem"),
        ("system", "politesse-next.crt"),
        ("chromium", "=,"),
    ] {
        let lines = place.run_ok(&["ca", "trust", "--for", client]).await.stdout;
        assert!(lines.contains(text), "{client}: {lines}");
    }
}
