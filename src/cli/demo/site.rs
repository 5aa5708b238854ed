//! A small local site to crawl: `shop.test`, over HTTP and over HTTPS, with a
//! robots.txt and some pages.
//!
//! Prints every request that it receives, so that users see which ones the proxy lets
//! through. Does not know the proxy: `examples/site.rs` wraps this file in a program of
//! its own.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// Rules of the site.
pub(crate) const ROBOTS_TXT: &str = "\
# The rules of shop.test
User-agent: *
Disallow: /basket
Allow: /basket/help

User-agent: HungryBot
Disallow: /
";

/// Page of the site.
struct SitePage {
    path: &'static str,
    media_type: &'static str,
    /// `X-Robots-Tag`, if any.
    tag: Option<&'static str>,
    body: &'static str,
}

const PAGES: [SitePage; 5] = [
    SitePage {
        path: "/",
        media_type: "text/html",
        tag: None,
        body: "<!doctype html><title>Shop</title><a href=/lamp>Lamp</a> <a href=/basket>Basket</a>\n",
    },
    SitePage {
        path: "/lamp",
        media_type: "text/html",
        tag: None,
        body: "<!doctype html><title>Lamp</title><meta name=robots content=\"noarchive, max-snippet:50\"><p>A lamp.\n",
    },
    SitePage {
        path: "/basket",
        media_type: "text/html",
        tag: None,
        body: "<!doctype html><title>Basket</title><p>Yours alone.\n",
    },
    SitePage {
        path: "/basket/help",
        media_type: "text/plain",
        tag: None,
        body: "How the basket works.\n",
    },
    SitePage {
        path: "/price-list",
        media_type: "text/plain",
        tag: Some("noindex, hungrybot: nofollow"),
        body: "Lamp: 20\n",
    },
];

/// Site that is ready to serve.
pub(crate) struct Site {
    plain: TcpListener,
    secure: TcpListener,
    acceptor: TlsAcceptor,
    ca_pem: String,
}

/// Addresses that the site listens on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SiteAddresses {
    /// Over HTTP.
    pub(crate) plain: SocketAddr,
    /// Over HTTPS.
    pub(crate) secure: SocketAddr,
}

impl Site {
    /// Listens on `addresses`, with a certificate from a new authority.
    ///
    /// # Errors
    ///
    /// An address is in use.
    pub(crate) async fn bind(addresses: SiteAddresses) -> anyhow::Result<Self> {
        let listen = async |address: SocketAddr| {
            let listener = TcpListener::bind(address).await;
            listener.with_context(|| format!("shop.test cannot listen on {address}"))
        };
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // If both had the same name, OpenSSL would take the leaf for a self-signed
        // certificate.
        let name = &mut params.distinguished_name;
        name.push(DnType::CommonName, "CA of shop.test");
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
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
        Ok(Self {
            plain: listen(addresses.plain).await?,
            secure: listen(addresses.secure).await?,
            acceptor: TlsAcceptor::from(Arc::new(config)),
            ca_pem: ca.pem(),
        })
    }

    /// Returns the authority that clients of the site have to trust, in PEM.
    pub(crate) fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// Returns the addresses that the site listens on, with the ports that were bound.
    ///
    /// # Errors
    ///
    /// The system cannot tell the address.
    pub(crate) fn addresses(&self) -> std::io::Result<SiteAddresses> {
        Ok(SiteAddresses {
            plain: self.plain.local_addr()?,
            secure: self.secure.local_addr()?,
        })
    }

    /// Answers requests until the process or the task ends.
    ///
    /// # Errors
    ///
    /// No more connections can be accepted.
    pub(crate) async fn serve(self) -> anyhow::Result<()> {
        loop {
            tokio::select! {
                accepted = self.plain.accept() => {
                    tokio::spawn(answer(accepted?.0));
                }
                accepted = self.secure.accept() => {
                    let (stream, acceptor) = (accepted?.0, self.acceptor.clone());
                    tokio::spawn(async move {
                        if let Ok(stream) = acceptor.accept(stream).await {
                            answer(stream).await;
                        }
                    });
                }
            }
        }
    }
}

async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin) {
    let service = service_fn(async |request| Ok::<_, Infallible>(page(&request)));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        eprintln!("shop.test: a connection ended badly: {error}");
    }
}

fn page(request: &Request<Incoming>) -> Response<Full<Bytes>> {
    eprintln!("shop.test got {} {}", request.method(), request.uri());
    let path = request.uri().path();
    if path == "/robots.txt" {
        return Response::new(Full::from(ROBOTS_TXT));
    }
    let Some(page) = PAGES.iter().find(|page| page.path == path) else {
        let missing = Response::builder()
            .status(StatusCode::NOT_FOUND)
            .body(Full::from("There is no such page.\n"));
        return missing.unwrap_or_default();
    };
    let mut response = Response::builder().header("content-type", page.media_type);
    if let Some(tag) = page.tag {
        response = response.header("x-robots-tag", tag);
    }
    response.body(Full::from(page.body)).unwrap_or_default()
}
