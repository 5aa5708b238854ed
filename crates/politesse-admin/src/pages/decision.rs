//! `/decisions/NUMBER`: everything about a decision, with the robots.txt that it is
//! based on and the line that decided. `/api/v1/decisions/NUMBER` returns the same as
//! JSON.
//!
//! Does not know how a decision is explained.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use maud::{Markup, html};
use serde_json::json;

use super::override_form::override_form;
use super::{Dashboard, PageFailure, QUERY_TIME_MAX, host_link, rows_link};
use crate::api::json;
use crate::decision_view::{answer, decision_address, facts_and_file, facts_and_line, rows_of};
use crate::filter_query::{DecisionQuery, RecordScope};
use crate::layout::{
    DashboardPage, DashboardSection, error_page, layout, page_response, time_in_text,
};
use crate::visit::Visit;
use politesse_base::clock;
use politesse_pages::explain::facts::sentence;
use politesse_pages::explain::{Explanation, RowContext};
use politesse_robots::origin::Target;

/// Shows a decision.
pub(crate) async fn page(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(visit): Extension<Visit>,
    Path(number): Path<String>,
    uri: Uri,
) -> Response {
    match find(&dashboard, &number, &uri).await {
        Ok(Some(explanation)) => {
            let in_force = dashboard.configuration.load();
            let query = uri.query().unwrap_or_default();
            let content = DashboardPage {
                title: format!("Decision {}", explanation.record.seq),
                section: Some(DashboardSection::Decisions),
                body: html! {
                    (answer(&explanation, ""))
                    p { (time_in_text(explanation.record.at)) }
                    (related(&visit, &explanation))
                    (override_form(&in_force, &visit, &explanation, query))
                    (facts_and_file(&explanation))
                    p class="small" {
                        @let api = visit.link("/api/v1");
                        a href=(decision_address(&api, &explanation.record, "")) { "All as JSON" }
                    }
                },
            };
            layout(&visit, &content)
        }
        Ok(None) => error_page(&visit, StatusCode::NOT_FOUND, NO_DECISION),
        Err(failure) => failure.answer(Some(&visit), DashboardSection::Decisions),
    }
}

/// Shows a decision below its row in a list.
pub(crate) async fn part(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(visit): Extension<Visit>,
    Path(number): Path<String>,
    uri: Uri,
) -> Response {
    match find(&dashboard, &number, &uri).await {
        Ok(Some(explanation)) => {
            let page = decision_address(&visit.link(""), &explanation.record, "");
            let markup = html! {
                (answer(&explanation, &page))
                p { (time_in_text(explanation.record.at)) }
                (related(&visit, &explanation))
                (facts_and_line(&explanation, &page))
            };
            page_response(markup)
        }
        Ok(None) => (StatusCode::NOT_FOUND, NO_DECISION).into_response(),
        Err(failure) => failure.answer(None, DashboardSection::Decisions),
    }
}

/// Returns a decision as JSON.
pub(crate) async fn api(
    State(dashboard): State<Arc<Dashboard>>,
    Path(number): Path<String>,
    uri: Uri,
) -> Response {
    match find(&dashboard, &number, &uri).await {
        Ok(Some(explanation)) => {
            let mut story = explanation.json();
            story["answer"] = json!(sentence(&explanation.record));
            json(&story)
        }
        Ok(None) => (StatusCode::NOT_FOUND, format!("{NO_DECISION}\n")).into_response(),
        Err(failure) => failure.answer(None, DashboardSection::Decisions),
    }
}

/// Time limit for counting other decisions about the URL. For a host with half a
/// million it would take seconds, and the page links to all of them anyway.
const COUNT_TIME: Duration = Duration::from_millis(30);

/// Maximum bytes of a URL in a link, where each byte may take three.
const LINKED_URL_MAX: usize = 16 << 10;

const NO_DECISION: &str = "The record has no decision with this number.";

async fn find(
    dashboard: &Dashboard,
    number: &str,
    uri: &Uri,
) -> Result<Option<Explanation>, PageFailure> {
    let Ok(seq) = number.parse() else {
        return Ok(None);
    };
    let query = DecisionQuery::parse(uri.query().unwrap_or_default());
    if query.scope == RecordScope::Archive {
        // Each node has its own numbers.
        let Some(node) = query.value("node") else {
            return Ok(None);
        };
        return Ok(dashboard.archive.decision(node, seq).await?);
    }
    let found = dashboard.audit.query(QUERY_TIME_MAX, move |reader| {
        let deadline = Some(clock::instant() + COUNT_TIME);
        let found = reader.decision(seq, deadline)?;
        Ok(found.map(|found| {
            let context = RowContext {
                is_as_written: Some(found.is_as_written),
                others: found.others,
            };
            Explanation::of_row(found.record, found.body.map(Bytes::from), context)
        }))
    });
    Ok(found.await?)
}

/// Links to the decisions that have something in common with this one.
fn related(visit: &Visit, explanation: &Explanation) -> Markup {
    let ruling = &explanation.record.ruling;
    let target = explanation.record.url.parse::<Target>().ok();
    let host = target.map(|target| target.origin.host().to_string());
    let all = || rows_of(&explanation.record);
    html! {
        p class="actions" {
            // Not for a redacted URL, which cannot be searched for, a URL ending in a
            // star, which would match many, or one too long for a request target.
            @let url = &explanation.record.url;
            @if !explanation.record.is_redacted() && !url.ends_with('*') && url.len() <= LINKED_URL_MAX {
                (rows_link(visit, &all().with("url", &explanation.record.url), "this URL"))
            }
            @if let Some(host) = &host {
                span { "host " (host_link(visit, host)) }
                (rows_link(visit, &all().with("host", host), "decisions at this host"))
                @if let Some(rule) = &ruling.rule {
                    (rows_link(visit, &all().with("host", host).with("rule", rule), "this rule at this host"))
                }
            }
            (rows_link(
                visit,
                &all().with("crawler", ruling.crawler.as_deref().unwrap_or("*")),
                "this crawler",
            ))
        }
    }
}
