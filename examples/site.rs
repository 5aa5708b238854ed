//! A small local site for the tour in the README: `shop.test`, over HTTP on
//! port 8080 and over HTTPS on 8443. It prints every request it gets, so that
//! one sees what the proxy lets through.
//!
//! `cargo run --example site`

use std::convert::Infallible;
use std::error::Error;
use std::fs;
use std::sync::Arc;

use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

const ROBOTS_TXT: &str = "\
# The rules of shop.test
User-agent: *
Disallow: /basket
Allow: /basket/help

User-agent: HungryBot
Disallow: /
";

/// A page: its path, its media type, its `X-Robots-Tag` if any, its body.
struct Page(
    &'static str,
    &'static str,
    Option<&'static str>,
    &'static str,
);

const PAGES: [Page; 5] = [
    Page(
        "/",
        "text/html",
        None,
        "<!doctype html><title>Shop</title><a href=/lamp>Lamp</a> <a href=/basket>Basket</a>\n",
    ),
    Page(
        "/lamp",
        "text/html",
        None,
        "<!doctype html><title>Lamp</title><meta name=robots content=\"noarchive, max-snippet:50\"><p>A lamp.\n",
    ),
    Page(
        "/basket",
        "text/html",
        None,
        "<!doctype html><title>Basket</title><p>Yours alone.\n",
    ),
    Page(
        "/basket/help",
        "text/plain",
        None,
        "How the basket works.\n",
    ),
    Page(
        "/price-list",
        "text/plain",
        Some("noindex, hungrybot: nofollow"),
        "Lamp: 20\n",
    ),
];

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let plain = TcpListener::bind("127.0.0.1:8080").await?;
    let secure = TcpListener::bind("127.0.0.1:8443").await?;
    let acceptor = acceptor()?;
    eprintln!("shop.test is on http://127.0.0.1:8080 and https://127.0.0.1:8443");
    loop {
        tokio::select! {
            accepted = plain.accept() => {
                tokio::spawn(serve(accepted?.0));
            }
            accepted = secure.accept() => {
                let (stream, acceptor) = (accepted?.0, acceptor.clone());
                tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        serve(stream).await;
                    }
                });
            }
        }
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin) {
    let service = service_fn(async |request| Ok::<_, Infallible>(page(&request)));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        eprintln!("a connection ended badly: {error}");
    }
}

fn page(request: &Request<Incoming>) -> Response<Full<Bytes>> {
    eprintln!("shop.test got {} {}", request.method(), request.uri());
    let path = request.uri().path();
    if path == "/robots.txt" {
        return Response::new(Full::from(ROBOTS_TXT));
    }
    let response = Response::builder();
    let Some(Page(_, media_type, tag, body)) = PAGES.iter().find(|page| page.0 == path) else {
        let missing = response
            .status(StatusCode::NOT_FOUND)
            .body(Full::from("There is no such page.\n"));
        return missing.unwrap_or_default();
    };
    let response = response.header("content-type", *media_type);
    let response = match tag {
        Some(tag) => response.header("x-robots-tag", *tag),
        None => response,
    };
    response.body(Full::from(*body)).unwrap_or_default()
}

/// TLS with a certificate of a CA made now; the tour's configuration trusts it.
fn acceptor() -> Result<TlsAcceptor, Box<dyn Error>> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/target/tour");
    fs::create_dir_all(folder)?;
    fs::write(format!("{folder}/site-ca.pem"), ca.pem())?;
    let key = KeyPair::generate()?;
    let leaf = CertificateParams::new(vec!["shop.test".to_owned()])?.signed_by(&key, &ca)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(
            vec![leaf.der().clone()],
            PrivateKeyDer::Pkcs8(key.serialize_der().into()),
        )?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
