//! Layout of the dashboard's pages: navigation, theme, and static files.
//!
//! WCAG 2.2 requires a way past the navigation (2.4.1), a language (3.1.1) and a title
//! (2.4.2). Does not know what a page shows.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use jiff::Timestamp;
use maud::{Markup, html};

use super::access::FORM_TOKEN;
use super::visit::{ShownZone, Theme, Visit};
use politesse_base::clock;
use politesse_decision::digest::Digest;
use politesse_pages::page::document::{BASE_STYLE, DATA_STYLE, Document};
use politesse_pages::page::words::{distance, minute};

/// Digits of the digest in a file name; enough to tell all versions apart.
const NAME_DIGITS: usize = 16;

/// File that pages load. Its name contains its digest, so that a browser may cache it
/// forever and still loads a new version.
struct Asset {
    /// File name.
    name: String,
    /// Media type.
    kind: &'static str,
    content: Bytes,
}

impl Asset {
    fn new(stem: &str, end: &str, kind: &'static str, content: impl Into<Bytes>) -> Self {
        let content = content.into();
        let mut digest = Digest::of(&content).to_string();
        digest.truncate(NAME_DIGITS);
        Self {
            name: format!("{stem}-{digest}.{end}"),
            kind,
            content,
        }
    }

    fn path(&self) -> String {
        format!("/assets/{}", self.name)
    }
}

static STYLE: LazyLock<Asset> = LazyLock::new(|| {
    let sheets = [BASE_STYLE, DATA_STYLE, include_str!("app.css")];
    Asset::new("app", "css", "text/css; charset=utf-8", sheets.concat())
});
static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    let kind = "text/javascript; charset=utf-8";
    Asset::new("app", "js", kind, include_str!("app.js"))
});
static ICON: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("icon", "svg", "image/svg+xml", include_str!("icon.svg")));

/// Returns a file by its exact name.
pub(super) async fn asset(Path(name): Path<String>) -> Response {
    let found = [&*STYLE, &*SCRIPT, &*ICON]
        .into_iter()
        .find(|asset| asset.name == name);
    let Some(asset) = found else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let fields = [
        (header::CONTENT_TYPE, HeaderValue::from_static(asset.kind)),
        // RFC 8246: even a reload does not request it again.
        (
            header::CACHE_CONTROL,
            HeaderValue::from_static("public, max-age=31536000, immutable"),
        ),
    ];
    (fields, asset.content.clone()).into_response()
}

/// Section of the dashboard, as in the navigation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DashboardSection {
    /// Counts of the last hours.
    Overview,
    /// The record.
    Decisions,
    /// One host: robots.txt versions, rules, back-offs.
    Hosts,
    /// Crawlers, by name.
    Crawlers,
    /// Hosts that are asked now.
    Queues,
    /// Nodes of the fleet.
    Fleet,
    /// Pages and files to hand over.
    Reports,
    /// A question about a URL.
    Test,
    /// Configuration in force.
    Configuration,
}

impl DashboardSection {
    const ALL: [Self; 9] = [
        Self::Overview,
        Self::Decisions,
        Self::Hosts,
        Self::Crawlers,
        Self::Queues,
        Self::Fleet,
        Self::Reports,
        Self::Test,
        Self::Configuration,
    ];

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Decisions => "Decisions",
            Self::Hosts => "Hosts",
            Self::Crawlers => "Crawlers",
            Self::Queues => "Queues",
            Self::Fleet => "Fleet",
            Self::Reports => "Reports",
            Self::Test => "Test a URL",
            Self::Configuration => "Configuration",
        }
    }

    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Overview => "/",
            Self::Decisions => "/decisions",
            Self::Hosts => "/hosts",
            Self::Crawlers => "/crawlers",
            Self::Queues => "/queues",
            Self::Fleet => "/fleet",
            Self::Reports => "/reports",
            Self::Test => "/test",
            Self::Configuration => "/configuration",
        }
    }
}

/// Content of a page.
pub(super) struct DashboardPage {
    /// Title. External text in it has passed through `page::words::shown`.
    pub(super) title: String,
    /// Section of the page; `None` for the sign-in page and for errors.
    pub(super) section: Option<DashboardSection>,
    pub(super) body: Markup,
}

/// Lays out a page.
pub(super) fn layout(visit: &Visit, content: &DashboardPage) -> Response {
    let title = format!("{} – politesse", content.title);
    let document = Document {
        title: &title,
        theme: (visit.theme != Theme::System).then(|| visit.theme.as_str()),
        head: html! {
            link rel="icon" href=(visit.link(&ICON.path()));
            link rel="stylesheet" href=(visit.link(&STYLE.path()));
            script src=(visit.link(&SCRIPT.path())) defer {}
        },
    };
    let markup = document.html(&html! {
        a class="skip" href="#content" { "Skip to the content" }
        header class="top" {
            a class="brand" href=(visit.link("/")) { "politesse" }
            @if visit.form_token.is_some() || content.section.is_some() {
                (navigation(visit, content.section))
            }
        }
        @if visit.is_reporting {
            p class="banner" role="note" {
                b { "Report mode. " }
                "What robots.txt disallows is forwarded and recorded, not refused."
            }
        }
        // The skip link moves the focus here.
        main id="content" tabindex="-1" data-zone=(visit.zone.as_str()) data-now=(clock::now()) {
            h1 { bdi { (content.title) } }
            (content.body)
        }
        // Below the content, because on a phone it would push the content down.
        footer { (controls(visit)) }
    });
    page_response(markup)
}

/// Makes the response for a page, or for a part of one.
pub(super) fn page_response(markup: Markup) -> Response {
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    ([(header::CONTENT_TYPE, kind)], markup.into_string()).into_response()
}

fn navigation(visit: &Visit, current: Option<DashboardSection>) -> Markup {
    html! {
        nav aria-label="Pages" {
            ul {
                @let shown = |section: &DashboardSection| {
                    visit.has_fleet || *section != DashboardSection::Fleet
                };
                @for section in DashboardSection::ALL.into_iter().filter(shown) {
                    @let is_current = (current == Some(section)).then_some("page");
                    li {
                        a href=(visit.link(section.path())) aria-current=[is_current] {
                            (section.title())
                        }
                    }
                }
            }
        }
    }
}

/// Shows the theme and time zone switches, and the sign-out button.
fn controls(visit: &Visit) -> Markup {
    html! {
        div class="controls" {
            form method="post" action=(visit.link("/theme")) class="theme" {
                (form_token(visit))
                input type="hidden" name="to" value=(visit.here);
                fieldset {
                    legend { "Theme" }
                    @for theme in Theme::ALL {
                        // `aria-pressed` tells screen readers which button is pressed.
                        button name="theme" value=(theme.as_str())
                            aria-pressed=(visit.theme == theme) { (theme.as_str()) }
                    }
                }
            }
            // The server does not know the browser's time zone, so the script shows
            // this form.
            form method="post" action=(visit.link("/zone")) class="theme" data-scripted hidden {
                (form_token(visit))
                input type="hidden" name="to" value=(visit.here);
                fieldset {
                    legend { "Times" }
                    @for zone in ShownZone::ALL {
                        button name="zone" value=(zone.as_str())
                            aria-pressed=(visit.zone == zone) { (zone.as_str()) }
                    }
                }
            }
            @if visit.form_token.is_some() {
                form method="post" action=(visit.link("/logout")) {
                    (form_token(visit))
                    button { "Sign out" }
                }
            }
        }
    }
}

/// Makes the hidden field that proves that a form belongs to the session.
pub(super) fn form_token(visit: &Visit) -> Markup {
    html! {
        @if let Some(token) = &visit.form_token {
            input type="hidden" name=(FORM_TOKEN) value=(token);
        }
    }
}

/// Shows a time in a table: its age, or its date in UTC. The exact time is the title.
/// The script keeps both up to date, and shows them in the browser's zone if the reader
/// chose that.
pub(super) fn time(at: Timestamp) -> Markup {
    html! {
        time datetime=(at.to_string()) title=(exact(at)) {
            (distance(at, clock::now()).unwrap_or_else(|| minute(at)))
        }
    }
}

/// Shows a time in a sentence: the exact time and its age. The script updates it as for
/// [`time`].
pub(super) fn time_in_text(at: Timestamp) -> Markup {
    html! {
        time class="text" datetime=(at.to_string()) {
            (exact(at))
            @if let Some(distance) = distance(at, clock::now()) { " (" (distance) ")" }
        }
    }
}

/// Writes a time with its zone, to the second.
fn exact(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// Returns a page that explains an error.
pub(super) fn error_page(visit: &Visit, status: StatusCode, text: &str) -> Response {
    let content = DashboardPage {
        title: status.canonical_reason().unwrap_or("Error").to_owned(),
        section: None,
        body: html! {
            p { bdi { (text) } }
            p { a href=(visit.link("/")) { "To the overview" } }
        },
    };
    (status, layout(visit, &content)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    // Ours: a rule written twice would be changed in one place only.
    #[test]
    fn no_selector_has_two_rules_at_one_width() {
        let style = String::from_utf8(STYLE.content.to_vec()).unwrap();
        let mut place = String::new();
        let mut seen = BTreeSet::new();
        for line in style.lines() {
            let is_rule = line.contains('{') && !line.trim_start().starts_with("/*");
            if line == "}" {
                place.clear();
            } else if is_rule && line.starts_with('@') {
                // A media query on one line ends on that line.
                place = if line.ends_with('}') {
                    String::new()
                } else {
                    line.to_owned()
                };
            } else if is_rule {
                let (selector, _) = line.split_once('{').unwrap();
                let is_new = seen.insert((place.clone(), selector.trim().to_owned()));
                assert!(is_new, "{place} {selector}");
            }
        }
        assert!(seen.len() > 100, "{seen:?}");
    }

    // Ours: each colour has one name, and each name one colour.
    #[test]
    fn every_colour_is_defined_once() {
        let style = String::from_utf8(STYLE.content.to_vec()).unwrap();
        let is_name = |letter: char| letter.is_ascii_lowercase() || letter == '-';
        for (_, rest) in style
            .match_indices("var(--")
            .map(|(at, _)| style.split_at(at + 6))
        {
            let name = rest.split(|letter| !is_name(letter)).next().unwrap();
            let definition = format!("  --{name}: light-dark(");
            assert_eq!(style.matches(&definition).count(), 1, "{definition}");
        }
        assert_eq!(
            style.matches("light-dark(").count(),
            style.matches(": light-dark(").count()
        );
    }
}
