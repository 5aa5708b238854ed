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

/// A response's head and whole body.
pub(crate) type H2Reply = http::Response<Bytes>;

/// The fields after a response's body, among its extensions.
#[derive(Clone, Debug)]
pub(crate) struct Trailers(pub(crate) http::HeaderMap);

impl H2Crawler {
    /// CONNECT, TLS with `h2` alone in ALPN, and the preface.
    pub(crate) async fn inside(proxy: &Proxy, authority: &str) -> Self {
        let raw = Crawler::connect(proxy, authority).await;
        Self::over(raw, proxy, authority).await.unwrap()
    }

    /// Returns the same of the client at `source`; `None` if the proxy has no room
    /// for it.
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
        // Its end is the test's own: requests tell what matters.
        tokio::spawn(async move { drop(connection.await) });
        Some(Self { requests })
    }

    /// Sends a request without body and reads its answer.
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

    /// Opens a stream with a GET of `url` now; what it gives is its status.
    /// Dropped, it is reset.
    pub(crate) fn open(
        &mut self,
        url: &str,
    ) -> impl Future<Output = hyper::Result<u16>> + Send + use<> {
        self.open_as("ExampleBot/1.0", url)
    }

    /// Returns the same as another crawler.
    pub(crate) fn open_as(
        &mut self,
        agent: &str,
        url: &str,
    ) -> impl Future<Output = hyper::Result<u16>> + Send + use<> {
        let request = http::Request::get(url).header("user-agent", agent);
        let request = request.body(Full::new(Bytes::new())).unwrap();
        let response = self.requests.send_request(request);
        async move { Ok(response.await?.status().as_u16()) }
    }

    /// Returns the response to a GET of `url`, of whose body nothing is read.
    pub(crate) async fn head_of(&mut self, url: &str) -> http::Response<hyper::body::Incoming> {
        let request = http::Request::get(url).header("user-agent", "ExampleBot/1.0");
        let request = request.body(Full::new(Bytes::new())).unwrap();
        self.requests.send_request(request).await.unwrap()
    }

    /// Returns the same connection, for requests at the same time.
    pub(crate) fn beside(&self) -> Self {
        Self {
            requests: self.requests.clone(),
        }
    }

    /// Returns a GET of `url` as ExampleBot.
    pub(crate) async fn get(&mut self, url: &str) -> H2Reply {
        let request = http::Request::get(url).header("user-agent", "ExampleBot/1.0");
        self.ask(request).await.unwrap()
    }
}
