//! Visit of a page: the values of a request that the layout of every page depends on,
//! such as theme, zone and form token.
//!
//! Does not know any page, or how a session was found.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::middleware::Next;
use axum::response::Response;

use super::access::Pass;
use super::sessions::cookie;
use super::state_pages::FleetSource;
use politesse_base::metrics::Metrics;

/// Cookie with the chosen theme.
pub(super) const THEME_COOKIE: &str = "politesse_theme";

/// Colours of pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Theme {
    /// Colours of the browser's system.
    #[default]
    System,
    /// Dark text on a light ground.
    Light,
    /// Light text on a dark ground.
    Dark,
}

impl Theme {
    /// All themes, in the order in which they are offered.
    pub(super) const ALL: [Self; 3] = [Self::System, Self::Light, Self::Dark];

    /// Returns the word for the theme.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }

    /// Finds the theme called `word`; an unknown word gives [`Theme::System`].
    pub(super) fn named(word: &str) -> Self {
        let found = Self::ALL.into_iter().find(|theme| theme.as_str() == word);
        found.unwrap_or_default()
    }

    fn of(fields: &HeaderMap) -> Self {
        cookie(fields, THEME_COOKIE).map_or(Self::System, Self::named)
    }
}

/// Cookie with the chosen time zone.
pub(super) const ZONE_COOKIE: &str = "politesse_zone";

/// Zone in which pages show times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum ShownZone {
    /// UTC, as in logs, exports and the API.
    #[default]
    Utc,
    /// Zone of the browser, which only the script knows.
    Local,
}

impl ShownZone {
    /// All zones, in the order in which they are offered.
    pub(super) const ALL: [Self; 2] = [Self::Utc, Self::Local];

    /// Returns the word for the zone.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Utc => "UTC",
            Self::Local => "local",
        }
    }

    /// Finds the zone called `word`; an unknown word gives [`ShownZone::Utc`].
    pub(super) fn named(word: &str) -> Self {
        let found = Self::ALL.into_iter().find(|zone| zone.as_str() == word);
        found.unwrap_or_default()
    }

    fn of(fields: &HeaderMap) -> Self {
        cookie(fields, ZONE_COOKIE).map_or(Self::Utc, Self::named)
    }
}

/// Settings that all visits share.
#[derive(Debug, Clone)]
pub(super) struct VisitState {
    /// Path below which browsers see the pages; empty for `/`.
    pub(super) base_path: Arc<str>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) fleet: FleetSource,
}

/// Visit of a page.
#[derive(Clone)]
pub(super) struct Visit {
    base_path: Arc<str>,
    /// Path and query of the page, below the base path.
    pub(super) here: String,
    pub(super) theme: Theme,
    pub(super) zone: ShownZone,
    /// Token for the session's forms; `None` without a session.
    pub(super) form_token: Option<String>,
    /// Whether the proxy only reports what it would refuse.
    pub(super) is_reporting: bool,
    /// Whether the proxy is a node of a fleet.
    pub(super) has_fleet: bool,
}

impl Visit {
    /// Makes the address of a page for a link.
    pub(super) fn link(&self, path: &str) -> String {
        format!("{}{path}", self.base_path)
    }
}

/// Middleware: adds the [`Visit`] to a request. Runs after the middleware that adds a
/// [`Pass`].
pub(super) async fn begin_visit(
    State(state): State<VisitState>,
    mut request: Request,
    next: Next,
) -> Response {
    let here = request.uri().path_and_query();
    let form_token = match request.extensions().get::<Pass>() {
        Some(Pass::Session(session)) => Some(session.form_token()),
        // A program needs no form token: no other site can make it send a request.
        Some(Pass::Token) | None => None,
    };
    let visit = Visit {
        base_path: Arc::clone(&state.base_path),
        here: here.map_or_else(|| "/".to_owned(), ToString::to_string),
        theme: Theme::of(request.headers()),
        zone: ShownZone::of(request.headers()),
        form_token,
        is_reporting: state.metrics.report_mode.get() != 0,
        has_fleet: (state.fleet.0)().is_some(),
    };
    request.extensions_mut().insert(visit);
    next.run(request).await
}
