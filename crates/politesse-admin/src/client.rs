//! Pages for whoever points a client at the proxy, at the admin listener: `/client`,
//! and beside it `/ca.pem`, `/proxy.pac` and `/client.css`. They are open: they name no
//! host, URL or crawler, and nobody trusts an authority by them alone.
//!
//! Does not know what they say; `proxy::client_pages` does.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use politesse_proxy::client_pages::{ClientPage, GuidePages, POLICY, PageContent};

/// Function that returns the pages for a client which has reached an address of ours.
type ClientPageFunction = dyn Fn(Option<SocketAddr>) -> GuidePages + Send + Sync;

/// Source of the pages, by the configuration in force.
#[derive(Clone)]
pub struct ClientPageSource(pub Arc<ClientPageFunction>);

impl fmt::Debug for ClientPageSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientPageSource")
    }
}

/// Address of the admin listener that a request has come to, which `serve` adds to it.
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
    // The same as at the proxy. `nosniff`, because a certificate is taken for a page
    // otherwise.
    let fields = [
        (header::CONTENT_TYPE, fixed(media_type)),
        (header::CACHE_CONTROL, fixed("no-store")),
        (header::CONTENT_SECURITY_POLICY, fixed(POLICY)),
        (header::X_CONTENT_TYPE_OPTIONS, fixed("nosniff")),
        (header::REFERRER_POLICY, fixed("no-referrer")),
    ];
    (fields, body).into_response()
}
