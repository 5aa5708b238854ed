//! `/hosts/changes`: robots.txt files that changed, with the effect of each change on
//! the newest URLs of its host. `/hosts/changes/NUMBER`: one change, with its lines.
//! `/api/v1/hosts/changes` and `/api/v1/hosts/changes/NUMBER` return the same as JSON.
//!
//! Does not know how changes are found, or how URLs are decided again.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use maud::{Markup, html};
use serde::Serialize;
use tokio::time::Instant;

use super::{
    Dashboard, QUERY_TIME_MAX, host_link, node_alone, query_failed, refuse_archive, rows_link,
};
use crate::api::{json, query_value};
use crate::filter_query::DecisionQuery;
use crate::layout::{DashboardPage, DashboardSection, error_page, layout, time, time_in_text};
use crate::robots_view::diff_line;
use crate::visit::Visit;
use politesse_base::clock;
use politesse_decision::record::RecordedSnapshot;
use politesse_pages::page::line_diff::LineDiff;
use politesse_pages::page::words::{code, counted, foreign, number, shown};
use politesse_record::AuditError;
use politesse_record::change_effect::{
    ChangeEffect, CrawlerUrl, EffectBounds, EffectCounts, change_effect,
};
use politesse_record::reader::AuditReader;
use politesse_record::robots_changes::{ChangeBounds, RobotsChange};
use politesse_robots::origin::Target;

/// Number of changes on one page.
const ROWS: usize = 20;

/// Number of URLs that a change is tested against; deciding them takes some tenths of a
/// second.
const URLS_MAX: usize = 10_000;

/// Number of example URLs of each kind.
const EXAMPLES: usize = 20;

/// Time for finding the changes of a page, and for examining one change or all changes
/// of a list. The sum is shorter than the time limit of a query.
const SEARCH_TIME: Duration = Duration::from_secs(1);
const EXAMINATION_TIME: Duration = Duration::from_secs(2);

const NO_CHANGE: &str = "The record has no robots.txt change with this number.";

/// Data of the list and of its JSON.
#[derive(Serialize)]
struct ChangesPage {
    changes: Vec<ChangeJson>,
    /// Number below which the next page looks; `None` on the last page.
    next: Option<u64>,
    /// Whether older changes may be missing on this page.
    is_cut: bool,
}

/// Change of a robots.txt.
#[derive(Serialize)]
struct ChangeJson {
    /// Number of the change: that of the first fetch of the new answer.
    number: u64,
    host: String,
    origin: String,
    /// Token of the crawler that it was fetched for; `None` if it is for all.
    token: Option<String>,
    /// When the new answer was first fetched.
    time: Timestamp,
    before: AnswerJson,
    after: AnswerJson,
    /// `None` if there was no time to compare the files.
    lines: Option<ChangedLinesJson>,
    /// `None` if there was no time, or if a file is not on record as fetched.
    effect: Option<EffectJson>,
}

/// Result of fetching a robots.txt.
#[derive(Serialize)]
struct AnswerJson {
    /// Result, as a word.
    result: String,
    /// Status of the response, if there was one.
    status: Option<u16>,
    /// Digest of the file, if the response had one.
    sha256: Option<String>,
    fetched_at: Timestamp,
}

/// Numbers of lines that a change added and removed.
#[derive(Clone, Copy, Serialize)]
struct ChangedLinesJson {
    added: usize,
    removed: usize,
}

/// Effect of a change on the newest URLs of its host.
#[derive(Serialize)]
struct EffectJson {
    #[serde(flatten)]
    counts: UrlCountsJson,
    /// Decisions whose URL is not on record or cannot be decided again.
    left_out: u64,
    /// Whether the time ran out before all URLs were decided.
    is_cut: bool,
}

/// Numbers of URLs by the effect of a change. A URL requested by two crawlers counts
/// twice.
#[derive(Clone, Copy, Serialize)]
struct UrlCountsJson {
    /// URLs that were decided by both answers.
    urls: u64,
    /// URLs that only the new answer disallows.
    newly_disallowed: u64,
    /// URLs that only the old answer disallows.
    newly_allowed: u64,
    /// URLs that both answers disallow.
    still_disallowed: u64,
}

/// One change, as its page shows it.
#[derive(Serialize)]
struct ChangeStory {
    #[serde(flatten)]
    change: ChangeJson,
    /// Lines that differ, in the unified format.
    difference: String,
    crawlers: Vec<CrawlerEffectJson>,
    newly_disallowed_urls: Vec<CrawlerUrlJson>,
    newly_allowed_urls: Vec<CrawlerUrlJson>,
}

/// Effect of a change on the URLs of one crawler.
#[derive(Serialize)]
struct CrawlerEffectJson {
    /// First name of the crawler; `None` if it has none.
    name: Option<String>,
    #[serde(flatten)]
    counts: UrlCountsJson,
}

/// URL that a crawler requested.
#[derive(Serialize)]
struct CrawlerUrlJson {
    /// First name of the crawler; `None` if it has none.
    crawler: Option<String>,
    url: String,
}

/// Lists the changes.
pub(crate) async fn page(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(visit): Extension<Visit>,
    uri: Uri,
) -> Response {
    match ChangesPage::gather(&dashboard, before(&uri)).await {
        Ok(changes) => {
            let content = DashboardPage {
                title: "Changed robots.txt".to_owned(),
                section: Some(DashboardSection::Hosts),
                body: html! {
                    (node_alone(&dashboard, &visit, &DecisionQuery::default()))
                    (changes.markup(&visit))
                },
            };
            layout(&visit, &content)
        }
        Err(error) => query_failed(Some(&visit), &error),
    }
}

/// Returns the changes as JSON.
pub(crate) async fn api(State(dashboard): State<Arc<Dashboard>>, uri: Uri) -> Response {
    if let Some(refusal) = refuse_archive(&uri) {
        return refusal;
    }
    match ChangesPage::gather(&dashboard, before(&uri)).await {
        Ok(changes) => json(&changes),
        Err(error) => query_failed(None, &error),
    }
}

/// Shows one change.
pub(crate) async fn story_page(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(visit): Extension<Visit>,
    Path(number): Path<String>,
) -> Response {
    match ChangeStory::gather(&dashboard, &number).await {
        Ok(Some(story)) => {
            let content = DashboardPage {
                title: format!("robots.txt of {} changed", shown(&story.change.host, 100)),
                section: Some(DashboardSection::Hosts),
                body: story.markup(&visit),
            };
            layout(&visit, &content)
        }
        Ok(None) => error_page(&visit, StatusCode::NOT_FOUND, NO_CHANGE),
        Err(error) => query_failed(Some(&visit), &error),
    }
}

/// Returns one change as JSON.
pub(crate) async fn story_api(
    State(dashboard): State<Arc<Dashboard>>,
    Path(number): Path<String>,
) -> Response {
    match ChangeStory::gather(&dashboard, &number).await {
        Ok(Some(story)) => json(&story),
        Ok(None) => (StatusCode::NOT_FOUND, format!("{NO_CHANGE}\n")).into_response(),
        Err(error) => query_failed(None, &error),
    }
}

/// Makes a link with `text` to the page of the change `number`.
pub(super) fn change_link(visit: &Visit, number: u64, text: &str) -> Markup {
    html! { a href=(visit.link(&format!("/hosts/changes/{number}"))) { (text) } }
}

/// Returns the host of an origin, as written in the record.
pub(super) fn host_of(origin: &str) -> String {
    let target = origin.parse::<Target>();
    // Someone may have edited the record so that the origin is invalid.
    target.map_or_else(
        |_| origin.to_owned(),
        |target| target.origin.host().to_string(),
    )
}

/// Reads the file of a fetch result; empty if the fetch got no file or the file is no
/// longer on record.
pub(super) fn file_of(
    reader: &AuditReader,
    answer: &RecordedSnapshot,
) -> Result<Vec<u8>, AuditError> {
    let body = answer
        .sha256
        .map(|sha256| reader.body(sha256))
        .transpose()?;
    Ok(body.flatten().unwrap_or_default())
}

/// Reads the number below which the request asks for changes.
fn before(uri: &Uri) -> Option<u64> {
    // An invalid number gives the newest changes, as for decisions.
    query_value(uri.query()?, "before")?.parse().ok()
}

impl ChangesPage {
    async fn gather(dashboard: &Dashboard, before: Option<u64>) -> Result<Self, AuditError> {
        let gathered = dashboard.audit.query(QUERY_TIME_MAX, move |reader| {
            let begin = clock::instant();
            let list = reader.robots_changes(&ChangeBounds {
                before,
                from: None,
                rows: ROWS,
                deadline: begin + SEARCH_TIME,
            })?;
            // One deadline for all changes, so that the page as a whole stays in time.
            let deadline = begin + SEARCH_TIME + EXAMINATION_TIME;
            let mut changes = Vec::new();
            for change in &list.changes {
                changes.push(Examination::new(reader, change, deadline)?.json(change));
            }
            Ok(Self {
                changes,
                next: list.next,
                is_cut: list.is_cut,
            })
        });
        gathered.await
    }

    fn markup(&self, visit: &Visit) -> Markup {
        html! {
            p class="small" {
                "A change is an answer that differs from the one before, for the same origin and \
                 crawler. Outages are not counted. Each change is tested against the newest "
                (number(URLS_MAX as u64)) " URLs of its host that are on record."
            }
            @if self.changes.is_empty() { p { "None on record." } } @else { (self.table(visit)) }
            @if self.is_cut {
                p class="note" { "The search was cut short: there may be older changes." }
            }
            @if let Some(next) = self.next {
                p {
                    a rel="next" href=(visit.link(&format!("/hosts/changes?before={next}"))) {
                        "Older changes"
                    }
                }
            }
        }
    }

    fn table(&self, visit: &Visit) -> Markup {
        html! {
            div class="scroll" {
                table class="cards" {
                    caption { "The newest first; times in UTC" }
                    thead {
                        tr {
                            th scope="col" { "host" }
                            th scope="col" { "time" }
                            th scope="col" { "for" }
                            th scope="col" { "answer" }
                            th scope="col" { "lines" }
                            th scope="col" { "newly disallows" }
                            th scope="col" { "newly allows" }
                        }
                    }
                    tbody {
                        @for change in &self.changes { (change.row(visit)) }
                    }
                }
            }
        }
    }
}

impl ChangeJson {
    fn row(&self, visit: &Visit) -> Markup {
        let effect = |count: fn(&UrlCountsJson) -> u64| {
            self.effect.as_ref().map(|effect| {
                let urls = number(effect.counts.urls);
                format!("{} of {urls}", number(count(&effect.counts)))
            })
        };
        html! {
            tr {
                th scope="row" { (host_link(visit, &self.host)) }
                td data-label="time" class="t" {
                    a href=(visit.link(&format!("/hosts/changes/{}", self.number))) {
                        (time(self.time))
                    }
                }
                td data-label="for" { (self.asked_for()) }
                td data-label="answer" { (self.before.markup()) " → " (self.after.markup()) }
                td data-label="lines" {
                    @if let Some(lines) = self.lines { "+" (lines.added) " −" (lines.removed) }
                }
                td data-label="newly disallows" {
                    @let text = effect(|counts| counts.newly_disallowed);
                    (change_link(visit, self.number, text.as_deref().unwrap_or("look")))
                }
                td data-label="newly allows" {
                    @let text = effect(|counts| counts.newly_allowed);
                    (change_link(visit, self.number, text.as_deref().unwrap_or("look")))
                }
            }
        }
    }

    /// Shows the crawler that the file was fetched for.
    fn asked_for(&self) -> Markup {
        foreign(self.token.as_deref().unwrap_or("every crawler"))
    }
}

impl AnswerJson {
    fn markup(&self) -> Markup {
        html! {
            @match (&self.sha256, self.status) {
                (Some(_), _) => { "file" }
                (None, Some(status)) => { "none (" (status) ")" }
                (None, None) => { (foreign(&self.result)) }
            }
        }
    }
}

/// Difference and effect of one change.
#[derive(Default)]
struct Examination {
    lines: Option<ChangedLinesJson>,
    /// Lines that differ, in the unified format.
    difference: String,
    /// `None` if a file is not on record as fetched.
    effect: Option<ChangeEffect>,
}

impl Examination {
    /// Compares the files of `change`, and decides URLs with them until `deadline`.
    /// Does nothing if `deadline` has passed.
    fn new(
        reader: &AuditReader,
        change: &RobotsChange,
        deadline: Instant,
    ) -> Result<Self, AuditError> {
        // Two files without a common line take half a second, and a list has twenty
        // changes.
        if deadline <= clock::instant() {
            return Ok(Self::default());
        }
        let (before, after) = (
            file_of(reader, &change.before)?,
            file_of(reader, &change.after)?,
        );
        let diff = LineDiff::new(&before, &after);
        let bounds = EffectBounds {
            urls: URLS_MAX,
            examples: EXAMPLES,
            deadline,
        };
        let answers = change.answers(reader)?;
        let decide = |answers| change_effect(reader, &answers, &bounds);
        Ok(Self {
            lines: Some(ChangedLinesJson {
                added: diff.added(),
                removed: diff.removed(),
            }),
            difference: diff.unified(),
            effect: answers.map(decide).transpose()?,
        })
    }

    fn json(&self, change: &RobotsChange) -> ChangeJson {
        let after = &change.after;
        ChangeJson {
            number: change.number,
            host: host_of(&after.origin),
            origin: after.origin.clone(),
            token: after.token.clone(),
            time: after.fetched_at,
            before: AnswerJson::from(&change.before),
            after: AnswerJson::from(after),
            lines: self.lines,
            effect: self.effect.as_ref().map(EffectJson::from),
        }
    }
}

impl ChangeStory {
    async fn gather(dashboard: &Dashboard, number: &str) -> Result<Option<Self>, AuditError> {
        let Ok(number) = number.parse() else {
            return Ok(None);
        };
        let gathered = dashboard.audit.query(QUERY_TIME_MAX, move |reader| {
            let Some(change) = reader.robots_change(number)? else {
                return Ok(None);
            };
            let deadline = clock::instant() + EXAMINATION_TIME;
            let examination = Examination::new(reader, &change, deadline)?;
            Ok(Some(Self::of(&change, examination)))
        });
        gathered.await
    }

    fn of(change: &RobotsChange, examination: Examination) -> Self {
        let json = examination.json(change);
        let effect = examination.effect.unwrap_or_default();
        let crawlers = effect.crawlers.into_iter();
        // Without an effect the page explains why, and shows no list.
        let urls = |urls: Vec<CrawlerUrl>| urls.into_iter().map(CrawlerUrlJson::from).collect();
        Self {
            change: json,
            difference: examination.difference,
            crawlers: crawlers
                .map(|(name, counts)| CrawlerEffectJson {
                    name,
                    counts: UrlCountsJson::from(&counts),
                })
                .collect(),
            newly_disallowed_urls: urls(effect.newly_disallowed),
            newly_allowed_urls: urls(effect.newly_allowed),
        }
    }

    fn markup(&self, visit: &Visit) -> Markup {
        let change = &self.change;
        html! {
            p {
                (host_link(visit, &change.host)) " answered "
                (foreign(change.token.as_deref().unwrap_or("every crawler")))
                " at " (time_in_text(change.time)) " with a different robots.txt than at "
                (time_in_text(change.before.fetched_at)) ": "
                (change.before.markup()) " → " (change.after.markup()) "."
            }
            h2 { "Effect" }
            (self.effect(visit))
            (self.urls("Newly disallowed", &self.newly_disallowed_urls, visit))
            (self.urls("Newly allowed", &self.newly_allowed_urls, visit))
            h2 { "What changed" }
            @if let Some(lines) = change.lines {
                p {
                    (counted(lines.added as u64, "line")) " added, "
                    (number(lines.removed as u64)) " removed."
                }
            }
            pre tabindex="0" { @for line in self.difference.lines() { (diff_line(line)) } }
            p { a href=(visit.link("/hosts/changes")) { "All changes" } }
        }
    }

    fn effect(&self, visit: &Visit) -> Markup {
        let Some(effect) = &self.change.effect else {
            return html! {
                p { "One of the files is not on record as fetched, so the effect is unknown." }
            };
        };
        let counts = &effect.counts;
        html! {
            p {
                "Of the newest " (counted(counts.urls, "URL")) " on record, each counted for each \
                 crawler, the new answer disallows "
                b { (number(counts.newly_disallowed)) " more" } " and allows "
                b { (number(counts.newly_allowed)) " more" } "; "
                (number(counts.still_disallowed)) " are disallowed by both. Nothing was fetched \
                 again: crawler, policy and time are those of the recorded requests."
            }
            @if effect.is_cut {
                p class="note" { "There was no time for older URLs." }
            }
            @if 0 < effect.left_out {
                p class="small" {
                    (counted(effect.left_out, "decision"))
                    " left out: the URL is not on record, or cannot be decided again."
                }
            }
            @if !self.crawlers.is_empty() { (self.crawler_table(visit)) }
        }
    }

    fn crawler_table(&self, visit: &Visit) -> Markup {
        html! {
            div class="scroll" {
                table class="cards" {
                    caption { "URLs by the crawler that asked for them" }
                    thead {
                        tr {
                            th scope="col" { "crawler" }
                            th scope="col" class="n" { "URLs" }
                            th scope="col" class="n" { "newly disallowed" }
                            th scope="col" class="n" { "newly allowed" }
                            th scope="col" class="n" { "still disallowed" }
                        }
                    }
                    tbody {
                        @for CrawlerEffectJson { name, counts } in &self.crawlers {
                            @let rows = DecisionQuery::default()
                                .with("host", &self.change.host)
                                .with("crawler", name.as_deref().unwrap_or("*"));
                            @let name = name.as_deref().unwrap_or("without a name");
                            tr {
                                th scope="row" { (rows_link(visit, &rows, &shown(name, 100))) }
                                td class="n" data-label="URLs" { (number(counts.urls)) }
                                td class="n" data-label="newly disallowed" {
                                    (number(counts.newly_disallowed))
                                }
                                td class="n" data-label="newly allowed" {
                                    (number(counts.newly_allowed))
                                }
                                td class="n" data-label="still disallowed" {
                                    (number(counts.still_disallowed))
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    fn urls(&self, title: &str, urls: &[CrawlerUrlJson], visit: &Visit) -> Markup {
        html! {
            @if !urls.is_empty() {
                h3 { (title) }
                ul {
                    @for CrawlerUrlJson { crawler, url } in urls {
                        @let rows = DecisionQuery::default().with("url", url);
                        li {
                            a href=(visit.link(&rows.behind("/decisions"))) { (code(url)) }
                            " " (foreign(crawler.as_deref().unwrap_or("without a name")))
                        }
                    }
                }
                @if urls.len() == EXAMPLES { p class="small" { "The newest of them." } }
            }
        }
    }
}

impl From<&RecordedSnapshot> for AnswerJson {
    fn from(answer: &RecordedSnapshot) -> Self {
        Self {
            result: answer.result.clone(),
            status: answer.status,
            sha256: answer.sha256.map(|digest| digest.to_string()),
            fetched_at: answer.fetched_at,
        }
    }
}

impl From<&ChangeEffect> for EffectJson {
    fn from(effect: &ChangeEffect) -> Self {
        Self {
            counts: UrlCountsJson::from(&effect.all),
            left_out: effect.left_out,
            is_cut: effect.is_cut,
        }
    }
}

impl From<&EffectCounts> for UrlCountsJson {
    fn from(counts: &EffectCounts) -> Self {
        Self {
            urls: counts.urls,
            newly_disallowed: counts.newly_disallowed,
            newly_allowed: counts.newly_allowed,
            still_disallowed: counts.still_disallowed,
        }
    }
}

impl From<CrawlerUrl> for CrawlerUrlJson {
    fn from(url: CrawlerUrl) -> Self {
        Self {
            crawler: url.crawler,
            url: url.url,
        }
    }
}
