//! Pages for setting up a client of the proxy, at the admin listener: `/client`,
//! `/ca.pem`, `/proxy.pac` and `/client.css`.
//!
//! They need no token, because they reveal nothing about requests, crawlers or the hosts
//! that are crawled. Serving `ca.pem` to everyone is harmless, too: it is a certificate
//! without its private key, and a client trusts it only once its user has installed it.
//!
//! Does not know the content of the pages; `politesse_proxy::client_pages` does.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use politesse_proxy::client_pages::{ClientPage, ClientPages, POLICY, PageContent};

/// Function that returns the pages for a client that reached this address of ours.
type ClientPageFunction = dyn Fn(Option<SocketAddr>) -> ClientPages + Send + Sync;

/// Source of the pages. Called for each request, so that the pages show the configuration
/// in force.
#[derive(Clone)]
pub struct ClientPageSource(pub Arc<ClientPageFunction>);

impl fmt::Debug for ClientPageSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientPageSource")
    }
}

/// Local address of the connection that a request arrived on. `serve` adds it to the
/// extensions of each request.
#[derive(Debug, Clone, Copy)]
pub(super) struct AdminLocal(pub(super) SocketAddr);

/// Returns the routes of the pages.
pub(super) fn routes(source: ClientPageSource) -> Router {
    let linked = ClientPage::LINKED.map(|(name, page)| (format!("/{name}"), page));
    let guide = ("/client".to_owned(), ClientPage::Guide);
    let pages = linked.into_iter().chain([guide]);
    pages
        .fold(Router::new(), |router, (path, page)| {
            let handler = move |State(source): State<ClientPageSource>, request: Request| async move {
                let local = request.extensions().get();
                let pages = (source.0)(local.map(|AdminLocal(local)| *local));
                page_response(pages.content(page))
            };
            router.route(&path, get(handler))
        })
        .with_state(source)
}

/// Builds the response with a page; 404 for `None`: `ca.pem` does not exist if the proxy
/// does not intercept HTTPS and thus has no certificate authority.
fn page_response(content: Option<PageContent>) -> Response {
    let Some(PageContent { media_type, body }) = content else {
        let text = "this proxy has no certificate authority: https.mode is \"refuse\"\n";
        return (StatusCode::NOT_FOUND, text).into_response();
    };
    let fixed = HeaderValue::from_static;
    // `politesse_proxy::own_name` serves the same pages at the proxy, with the same fields.
    // `nosniff`, because browsers would otherwise take the certificate for a page.
    let fields = [
        (header::CONTENT_TYPE, fixed(media_type)),
        (header::CACHE_CONTROL, fixed("no-store")),
        (header::CONTENT_SECURITY_POLICY, fixed(POLICY)),
        (header::X_CONTENT_TYPE_OPTIONS, fixed("nosniff")),
        (header::REFERRER_POLICY, fixed("no-referrer")),
    ];
    (fields, body).into_response()
}
