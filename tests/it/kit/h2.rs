//! A crawler that speaks HTTP/2 inside CONNECT.

use std::net::Ipv4Addr;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;

use super::certificates;
use super::client::Crawler;
use super::proxy::Proxy;

/// An HTTP/2 connection through the proxy to one authority.
pub(crate) struct H2Crawler {
    requests: SendRequest<Full<Bytes>>,
}

/// Head and complete body of a response.
pub(crate) type H2Reply = http::Response<Bytes>;

/// Trailer fields of a response, stored among its extensions.
#[derive(Clone, Debug)]
pub(crate) struct Trailers(pub(crate) http::HeaderMap);

impl H2Crawler {
    /// Opens a CONNECT tunnel, TLS with only `h2` in ALPN, and an HTTP/2 connection.
    pub(crate) async fn inside(proxy: &Proxy, authority: &str) -> Self {
        let raw = Crawler::connect(proxy, authority).await;
        Self::over(raw, proxy, authority).await.unwrap()
    }

    /// Opens an HTTP/2 connection from `source`; `None` if the proxy refuses the
    /// connection or the CONNECT.
    pub(crate) async fn at(source: Ipv4Addr, proxy: &Proxy, authority: &str) -> Option<Self> {
        let raw = Crawler::connect_at(source, proxy, authority).await?;
        Self::over(raw, proxy, authority).await
    }

    async fn over(raw: Crawler, proxy: &Proxy, authority: &str) -> Option<Self> {
        let connector = TlsConnector::from(certificates::client(&proxy.ca(), &["h2"]));
        let (host, _) = authority.rsplit_once(':').unwrap();
        let name = ServerName::try_from(host.to_owned()).unwrap();
        let stream = connector.connect(name, raw.into_stream()).await.ok()?;
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let opened = Builder::new(TokioExecutor::new())
            .handshake(TokioIo::new(stream))
            .await;
        let (requests, connection) = opened.ok()?;
        // An error of the connection also fails the requests, which the test checks.
        tokio::spawn(async move { drop(connection.await) });
        Some(Self { requests })
    }

    /// Sends a request without a body, and reads the response.
    pub(crate) async fn ask(&mut self, request: http::request::Builder) -> hyper::Result<H2Reply> {
        self.send(request, Bytes::new()).await
    }

    pub(crate) async fn send(
        &mut self,
        request: http::request::Builder,
        body: Bytes,
    ) -> hyper::Result<H2Reply> {
        self.requests.ready().await?;
        let request = request.body(Full::new(body)).unwrap();
        let response = self.requests.send_request(request).await?;
        let (mut parts, body) = response.into_parts();
        let body = body.collect().await?;
        if let Some(trailers) = body.trailers() {
            parts.extensions.insert(Trailers(trailers.clone()));
        }
        Ok(http::Response::from_parts(parts, body.to_bytes()))
    }

    /// Opens a stream at once with a GET for `url`. The future returns the response's
    /// status; dropping it resets the stream.
    pub(crate) fn open(
        &mut self,
        url: &str,
    ) -> impl Future<Output = hyper::Result<u16>> + Send + use<> {
        self.open_as("ExampleBot/1.0", url)
    }

    /// Opens a stream at once with a GET for `url` as another crawler.
    pub(crate) fn open_as(
        &mut self,
        agent: &str,
        url: &str,
    ) -> impl Future<Output = hyper::Result<u16>> + Send + use<> {
        let request = get(agent, url).body(Full::default()).unwrap();
        let response = self.requests.send_request(request);
        async move { Ok(response.await?.status().as_u16()) }
    }

    /// Sends a GET for `url`, and returns the response without reading its body.
    pub(crate) async fn head_of(&mut self, url: &str) -> http::Response<hyper::body::Incoming> {
        let request = get("ExampleBot/1.0", url).body(Full::default()).unwrap();
        self.requests.send_request(request).await.unwrap()
    }

    /// Returns another handle to this connection, for concurrent requests.
    pub(crate) fn beside(&self) -> Self {
        Self {
            requests: self.requests.clone(),
        }
    }

    /// Sends a GET for `url` as ExampleBot.
    pub(crate) async fn get(&mut self, url: &str) -> H2Reply {
        self.ask(get("ExampleBot/1.0", url)).await.unwrap()
    }
}

fn get(agent: &str, url: &str) -> http::request::Builder {
    http::Request::get(url).header("user-agent", agent)
}
