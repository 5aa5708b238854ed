//! News of the last day on the overview: hosts and crawlers that came on record for the
//! first time, and robots.txt files that changed, with their new rules. `/api/v1/news`
//! returns the same as JSON.
//!
//! Does not know how new names are recognised.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};
use serde::Serialize;

use super::changes::{change_link, file_of, host_of};
use super::{Dashboard, QUERY_TIME_MAX, host_link, query_failed, refuse_archive, rows_link};
use crate::api::{error_text, json};
use crate::filter_query::DecisionQuery;
use crate::layout::{time, time_in_text};
use crate::visit::Visit;
use politesse_base::clock;
use politesse_pages::page::words::{code, counted, number, shown};
use politesse_record::first_seen::{FirstSeen, FirstSeenBounds, new_crawlers, new_hosts};
use politesse_record::reader::AuditReader;
use politesse_record::robots_changes::{ChangeBounds, RobotsChange};
use politesse_record::{AuditError, AuditLog};
use politesse_robots::{RecordKind, RobotsTxt, RuleKind};

/// Maximum number of hosts, crawlers and changes listed, and of rules listed per
/// change.
const ROWS: usize = 10;
const RULES: usize = 5;

/// Time for finding each kind of news.
const SEARCH_TIME: Duration = Duration::from_millis(300);

/// Longest time that the overview waits for all kinds.
const SECTION_TIME_MAX: Duration = Duration::from_millis(400);

/// News since a point in time.
#[derive(Debug, Serialize)]
struct News {
    since: Timestamp,
    hosts: NewNames,
    crawlers: NewNames,
    /// Changes of robots.txt files.
    changes: Vec<NewRules>,
    /// Whether there may be more changes.
    changes_are_cut: bool,
}

/// Names that came on record for the first time.
#[derive(Debug, Serialize)]
struct NewNames {
    count: usize,
    /// Whether there may be more than `count`.
    is_cut: bool,
    /// The newest names.
    names: Vec<String>,
}

/// Change of a robots.txt.
#[derive(Debug, Serialize)]
struct NewRules {
    number: u64,
    host: String,
    /// Token of the crawler that it was fetched for; `None` if it is for all.
    token: Option<String>,
    time: Timestamp,
    /// Paths of Disallow rules that the previous file did not have.
    disallowed: Vec<String>,
    /// Number of such paths that are not listed.
    left_out: usize,
}

/// Returns the news as JSON.
pub(crate) async fn api(State(dashboard): State<Arc<Dashboard>>, uri: Uri) -> Response {
    if let Some(refusal) = refuse_archive(&uri) {
        return refusal;
    }
    match News::gather(&dashboard.audit, QUERY_TIME_MAX).await {
        Ok(news) => json(&news),
        Err(error) => query_failed(None, &error),
    }
}

/// Makes the section of the overview.
pub(super) async fn section(dashboard: &Dashboard, visit: &Visit) -> Markup {
    let found = match dashboard.news.recent() {
        Some(news) => Ok(news),
        None => {
            let found = News::gather(&dashboard.audit, SECTION_TIME_MAX).await;
            found.map(|news| news.markup(visit))
        }
    };
    if matches!(found, Err(AuditError::QueryTimeout)) {
        search_beside(dashboard, visit);
    }
    html! {
        section {
            h2 { "New since yesterday" }
            @match &found {
                Ok(news) => (news),
                Err(AuditError::QueryTimeout) => p class="small" {
                    "The record is long and still being searched. Load the page again in a few \
                     seconds."
                },
                // The rest of the overview is still valid.
                Err(error) => p class="error" { (error_text(error)) },
            }
        }
    }
}

/// Starts a search for news in the background, unless one is running.
fn search_beside(dashboard: &Dashboard, visit: &Visit) {
    let (audit, kept) = (Arc::clone(&dashboard.audit), Arc::clone(&dashboard.news));
    let Ok(place) = Arc::clone(&kept.search).try_acquire_owned() else {
        return;
    };
    let visit = visit.clone();
    dashboard.tracker.spawn(async move {
        match News::gather(&audit, QUERY_TIME_MAX).await {
            Ok(news) => kept.keep(news.markup(&visit)),
            Err(error) => tracing::debug!(%error, "what is new was not found"),
        }
        drop(place);
    });
}

impl News {
    async fn gather(audit: &AuditLog, time_max: Duration) -> Result<Self, AuditError> {
        let since = clock::now()
            .checked_sub(SignedDuration::from_hours(24))
            .unwrap_or(Timestamp::UNIX_EPOCH);
        let gathered = audit.query(time_max, move |reader| Self::read(reader, since));
        gathered.await
    }

    fn read(reader: &AuditReader, since: Timestamp) -> Result<Self, AuditError> {
        // Each kind has its own time limit, so that a slow search does not hide the
        // others.
        let bounds = || FirstSeenBounds {
            from: since,
            deadline: clock::instant() + SEARCH_TIME,
        };
        let hosts = new_hosts(reader, &bounds())?;
        let crawlers = new_crawlers(reader, &bounds())?;
        let list = reader.robots_changes(&ChangeBounds {
            before: None,
            from: Some(since),
            rows: ROWS,
            deadline: bounds().deadline,
        })?;
        let read = |change| NewRules::read(reader, change);
        Ok(Self {
            since,
            hosts: NewNames::from(hosts),
            crawlers: NewNames::from(crawlers),
            changes: list.changes.iter().map(read).collect::<Result<_, _>>()?,
            changes_are_cut: list.next.is_some(),
        })
    }

    fn markup(&self, visit: &Visit) -> Markup {
        html! {
            p class="small" { "Since " (time_in_text(self.since)) "." }
            div class="columns" {
                section {
                    h3 { "Hosts" }
                    (self.hosts.markup("host", |name| host_link(visit, name)))
                }
                section {
                    h3 { "Crawlers" }
                    (self.crawlers.markup("crawler", |name| {
                        let rows = DecisionQuery::default().with("crawler", name);
                        rows_link(visit, &rows, &shown(name, 100))
                    }))
                }
                section { h3 { "Changed robots.txt" } (self.changes(visit)) }
            }
        }
    }

    fn changes(&self, visit: &Visit) -> Markup {
        html! {
            @if self.changes.is_empty() { p class="small" { "None." } } @else {
                ul {
                    @for change in &self.changes { li { (change.markup(visit)) } }
                }
            }
            @if self.changes_are_cut { p class="small" { "There are more." } }
            p { a href=(visit.link("/hosts/changes")) { "All changes of robots.txt" } }
        }
    }
}

impl NewNames {
    /// Shows the number and the names. `noun` is the kind of thing named; `link` shows
    /// one name.
    fn markup(&self, noun: &str, link: impl Fn(&str) -> Markup) -> Markup {
        html! {
            p {
                @if self.is_cut { "At least " }
                b { (counted(self.count as u64, &format!("new {noun}"))) }
                @if self.names.len() < self.count { "; the newest are:" }
            }
            @if !self.names.is_empty() {
                ul { @for name in &self.names { li { (link(name)) } } }
            }
        }
    }
}

impl NewRules {
    fn read(reader: &AuditReader, change: &RobotsChange) -> Result<Self, AuditError> {
        // By path in any group: a rule that was moved is not new.
        let before = disallowed(file_of(reader, &change.before)?);
        let known: HashSet<&String> = before.iter().collect();
        let mut appeared = disallowed(file_of(reader, &change.after)?);
        appeared.retain(|path| !known.contains(path));
        let left_out = appeared.len().saturating_sub(RULES);
        appeared.truncate(RULES);
        Ok(Self {
            number: change.number,
            host: host_of(&change.after.origin),
            token: change.after.token.clone(),
            time: change.after.fetched_at,
            disallowed: appeared,
            left_out,
        })
    }

    fn markup(&self, visit: &Visit) -> Markup {
        html! {
            (change_link(visit, self.number, &shown(&self.host, 100))) " "
            (time(self.time))
            @if let Some(token) = &self.token { " for " (shown(token, 100)) }
            @if self.disallowed.is_empty() { ": no new Disallow" }
            @for path in &self.disallowed { br; (code(&format!("Disallow: {path}"))) }
            @if 0 < self.left_out { br; "and " (number(self.left_out as u64)) " more" }
        }
    }
}

impl From<FirstSeen> for NewNames {
    fn from(mut seen: FirstSeen) -> Self {
        let count = seen.names.len();
        seen.names.truncate(ROWS);
        Self {
            count,
            is_cut: seen.is_cut,
            names: seen.names,
        }
    }
}

/// Lists the paths of the Disallow rules of a file, each once, in order. Empty paths
/// are skipped, because they disallow nothing.
fn disallowed(body: Vec<u8>) -> Vec<String> {
    // The dialects differ in the effect of rules, and hardly in what counts as a rule.
    let robots = RobotsTxt::in_dialect(Bytes::from(body), Default::default());
    let records = robots.records();
    let rules = records.filter(|record| record.kind == RecordKind::Rule(RuleKind::Disallow));
    let mut known = HashSet::new();
    rules
        .map(|rule| rule.value.into_owned())
        .filter(|path| !path.is_empty() && known.insert(path.clone()))
        .collect()
}
