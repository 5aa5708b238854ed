//! Exceptions for hosts whose certificates are broken (`upstream.tls`).

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::Version;
use rcgen::{KeyPair, date_time_ymd};
use rustls::version::{TLS12, TLS13};
use tokio_rustls::TlsAcceptor;

use super::secured::{Ca, acceptor, http2_origin, leaf, raw_origin, server_config, trust};
use crate::error::UpstreamError;
use crate::testing::{OK, Setup, setup_with};
use politesse_base::tls::Roots;
use politesse_decision::access::NoConnection;
use politesse_decision::tls_exception::{TlsException, TlsTerms, TlsVersion};

const UNVERIFIED: TlsTerms = TlsTerms {
    verify: false,
    roots: None,
    min_version: None,
};

fn exception(host: &str, terms: TlsTerms) -> TlsException {
    TlsException {
        host: host.parse().unwrap(),
        terms,
        reason: "x".to_owned(),
    }
}

/// Returns a client with these exceptions that trusts `ca` and dials each of the names at
/// `address`.
fn client(ca: &Ca, address: SocketAddr, exceptions: Vec<TlsException>) -> Setup {
    let mut options = trust(Roots::File(ca.path()));
    options.tls.exceptions = exceptions;
    let names = ["h.test", "a.h.test", "other.test"].map(|name| (name, address));
    setup_with(&options, &names)
}

/// Returns servers for `h.test`, each with a certificate that is invalid in a different
/// way.
fn broken_servers(ca: &Ca) -> Vec<TlsAcceptor> {
    let mut expired = leaf("h.test");
    expired.not_after = date_time_ymd(2020, 1, 1);
    let own_key = KeyPair::generate().unwrap();
    let self_signed = leaf("h.test").self_signed(&own_key).unwrap();
    vec![
        ca.server(&expired, &["h2"]),
        ca.server(&leaf("elsewhere.test"), &["h2"]),
        Ca::new().server(&leaf("h.test"), &["h2"]),
        acceptor(&self_signed, &own_key, &["h2"]),
    ]
}

// Ours: HTTP/2 is negotiated as with any other host.
#[tokio::test]
async fn an_invalid_certificate_is_accepted_only_from_the_host_with_the_exception() {
    let ca = Ca::new();
    for server in broken_servers(&ca) {
        let (address, connections) = http2_origin(server).await;
        let setup = client(&ca, address, vec![exception("h.test", UNVERIFIED)]);
        let response = setup.get("https://h.test/").await.unwrap();
        assert_eq!(response.version(), Version::HTTP_2);
        setup.page("https://h.test/a").await;
        assert_eq!(connections.load(Ordering::SeqCst), 1);
        assert_not_verified(&setup, "https://other.test/").await;
        assert_not_verified(&setup, "https://a.h.test/").await;
    }
}

async fn assert_not_verified(setup: &Setup, url: &str) {
    let error = setup.get(url).await.unwrap_err();
    assert_eq!(error.as_str(), "tls_certificate_error", "{url}");
}

// Ours: the first matching entry applies.
#[tokio::test]
async fn an_earlier_entry_can_keep_a_host_verified() {
    let ca = Ca::new();
    let verified = TlsTerms {
        verify: true,
        min_version: Some(TlsVersion::V12),
        ..UNVERIFIED
    };
    let foreign = Ca::new().server(&leaf("a.h.test"), &[]);
    let address = raw_origin(foreign, &[OK]).await;
    let below = exception("*.h.test", UNVERIFIED);
    let setup = client(&ca, address, vec![below.clone()]);
    assert_eq!(setup.page("https://a.h.test/").await, "ok");
    assert_not_verified(&setup, "https://h.test/").await;
    let setup = client(&ca, address, vec![exception("a.h.test", verified), below]);
    assert_not_verified(&setup, "https://a.h.test/").await;
}

// Ours: the host's own roots replace the default ones, which are then no longer trusted
// for it.
#[tokio::test]
async fn a_host_can_have_its_own_roots() {
    let (usual, own) = (Ca::new(), Ca::new());
    let terms = TlsTerms {
        verify: true,
        roots: Some(own.path()),
        min_version: None,
    };
    let exceptions = vec![exception("h.test", terms)];
    let address = raw_origin(own.server(&leaf("h.test"), &[]), &[OK]).await;
    let setup = client(&usual, address, exceptions.clone());
    assert_eq!(setup.page("https://h.test/").await, "ok");
    let address = raw_origin(usual.server(&leaf("h.test"), &[]), &[OK]).await;
    assert_not_verified(&client(&usual, address, exceptions), "https://h.test/").await;
}

#[tokio::test]
async fn a_host_below_its_minimum_tls_version_is_refused() {
    let ca = Ca::new();
    let terms = |min_version| TlsTerms {
        verify: true,
        roots: None,
        min_version: Some(min_version),
    };
    for (server, least, speaks) in [
        (&TLS12, TlsVersion::V12, true),
        (&TLS12, TlsVersion::V13, false),
        (&TLS13, TlsVersion::V13, true),
    ] {
        let key = KeyPair::generate().unwrap();
        let certificate = ca.signed(&leaf("h.test"), &key);
        let server = server_config(&[server], &certificate, &key);
        let address = raw_origin(TlsAcceptor::from(Arc::new(server)), &[OK]).await;
        let setup = client(&ca, address, vec![exception("h.test", terms(least))]);
        let outcome = setup.get("https://h.test/").await;
        assert_eq!(outcome.is_ok(), speaks, "{least:?}: {outcome:?}");
    }
}

// Ours: the record names the exception in force, even for a request that waited through a
// reload.
#[tokio::test]
async fn a_request_is_sent_only_under_the_recorded_exception() {
    let ca = Ca::new();
    let foreign = Ca::new().server(&leaf("h.test"), &[]);
    let address = raw_origin(foreign, &[OK]).await;
    let exceptions = vec![exception("h.test", UNVERIFIED)];
    let mut with = client(&ca, address, exceptions.clone());
    with.policy = with.policy.with(|terms| terms.tls.clear());
    assert_not_verified(&with, "https://h.test/").await;
    let mut without = client(&ca, address, Vec::new());
    without.policy = without.policy.with(|terms| terms.tls = exceptions);
    let error = without.get("https://h.test/").await.unwrap_err();
    assert!(
        matches!(error, UpstreamError::NoConnection(NoConnection::Tls)),
        "{error:?}"
    );
}

// Ours.
#[tokio::test]
async fn unreadable_roots_of_an_exception_are_named() {
    let terms = TlsTerms {
        verify: true,
        roots: Some(PathBuf::from("absent.pem")),
        min_version: None,
    };
    let ca = Ca::new();
    let mut options = trust(Roots::File(ca.path()));
    options.tls.exceptions = vec![exception("h.test", terms)];
    let error = crate::client::OriginTls::new(&options.tls).err().unwrap();
    assert!(error.to_string().contains("absent.pem"), "{error}");
}
