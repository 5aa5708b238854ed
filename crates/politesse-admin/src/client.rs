//! Pages for setting up a client of the proxy, at the admin listener: `/client`,
//! `/ca.pem`, `/proxy.pac` and `/client.css`. They are open to everyone: they name no
//! host, URL or crawler, and they alone make no client trust the authority.
//!
//! Does not know the content of the pages; `proxy::client_pages` does.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use politesse_proxy::client_pages::{ClientPage, GuidePages, POLICY, PageContent};

/// Function that returns the pages for a client that reached this address of ours.
type ClientPageFunction = dyn Fn(Option<SocketAddr>) -> GuidePages + Send + Sync;

/// Source of the pages, with the configuration in force.
#[derive(Clone)]
pub struct ClientPageSource(pub Arc<ClientPageFunction>);

impl fmt::Debug for ClientPageSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientPageSource")
    }
}

/// Address of the admin listener that received a request; `serve` adds it to the
/// request.
#[derive(Debug, Clone, Copy)]
pub(super) struct AdminLocal(pub(super) SocketAddr);

/// Returns the routes.
pub(super) fn routes(source: ClientPageSource) -> Router {
    let linked = ClientPage::LINKED.map(|(name, page)| (format!("/{name}"), page));
    let guide = ("/client".to_owned(), ClientPage::Guide);
    let pages = linked.into_iter().chain([guide]);
    pages
        .fold(Router::new(), |router, (path, page)| {
            let answer = move |State(source): State<ClientPageSource>, request: Request| async move {
                let local = request.extensions().get();
                let pages = (source.0)(local.map(|AdminLocal(local)| *local));
                show(pages.content(page))
            };
            router.route(&path, get(answer))
        })
        .with_state(source)
}

fn show(content: Option<PageContent>) -> Response {
    let Some(PageContent { media_type, body }) = content else {
        let text = "there is none: https.mode is \"refuse\"\n";
        return (StatusCode::NOT_FOUND, text).into_response();
    };
    let fixed = HeaderValue::from_static;
    // Same fields as at the proxy. `nosniff`, because browsers would otherwise take a
    // certificate for a page.
    let fields = [
        (header::CONTENT_TYPE, fixed(media_type)),
        (header::CACHE_CONTROL, fixed("no-store")),
        (header::CONTENT_SECURITY_POLICY, fixed(POLICY)),
        (header::X_CONTENT_TYPE_OPTIONS, fixed("nosniff")),
        (header::REFERRER_POLICY, fixed("no-referrer")),
    ];
    (fields, body).into_response()
}
