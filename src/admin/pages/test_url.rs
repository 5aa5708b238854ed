//! `/test`: what would be decided about a URL, by the robots.txt in the cache, by one
//! that is fetched now, or by one that is pasted. `POST /api/v1/check` answers the
//! same of many URLs as JSON.
//!
//! Does not know how a decision is made.

use std::sync::Arc;

use axum::Extension;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use maud::{Markup, html};
use politesse_robots::RobotsTxt;
use politesse_robots::crawler::Crawler;
use politesse_robots::origin::Target;

use super::Dashboard;
use crate::admin::arrival::AdminArrival;
use crate::admin::layout::{DashboardPage, DashboardSection, form_token, layout};
use crate::admin::robots_view::{LineMark, robots_lines};
use crate::admin::visit::Visit;
use crate::decision::record::StoredRuling;
use crate::decision::snapshot::AccessResult;
use crate::explain::facts::meaning;
use crate::inert::inert;
use crate::page::words::{code, foreign};
use crate::proxy::plan::{Plan, PlanRequest, RobotsSource};

/// Bytes of a form: a robots.txt of 500 KiB, each byte of which may be escaped by
/// three.
const FORM_BYTES_MAX: usize = 2 << 20;

/// Question about a URL.
#[derive(Default)]
struct TestQuery {
    agent: String,
    url: String,
    /// Text of a robots.txt in place of the site's.
    robots: String,
    /// Whether the site may be asked.
    fetch: Option<()>,
}

impl TestQuery {
    fn parse(form: &[u8]) -> Self {
        let mut query = Self::default();
        for (name, value) in form_urlencoded::parse(form) {
            match &*name {
                "agent" => query.agent = value.trim().to_owned(),
                "url" => query.url = value.trim().to_owned(),
                "robots" => query.robots = value.into_owned(),
                "fetch" => query.fetch = Some(()),
                _ => {}
            }
        }
        query
    }
}

/// Shows the form, and the answer from the cache if the address has a question. Asks
/// no site: a GET may be sent by a browser on its own.
pub(crate) async fn page(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(visit): Extension<Visit>,
    Extension(arrival): Extension<AdminArrival>,
    uri: Uri,
) -> Response {
    let query = TestQuery {
        fetch: None,
        ..TestQuery::parse(uri.query().unwrap_or_default().as_bytes())
    };
    respond(&dashboard, &visit, &arrival, &query).await
}

/// Answers the question of a form.
pub(crate) async fn ask(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(visit): Extension<Visit>,
    Extension(arrival): Extension<AdminArrival>,
    request: Request,
) -> Response {
    let Ok(form) = to_bytes(request.into_body(), FORM_BYTES_MAX).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let query = TestQuery::parse(&form);
    respond(&dashboard, &visit, &arrival, &query).await
}

async fn respond(
    dashboard: &Dashboard,
    visit: &Visit,
    arrival: &AdminArrival,
    query: &TestQuery,
) -> Response {
    let answer = match query.url.is_empty() {
        true => html! {},
        false => answer(dashboard, arrival, query)
            .await
            .unwrap_or_else(|problem| {
                html! { p class="error" role="alert" { bdi { (inert(&problem)) } } }
            }),
    };
    let content = DashboardPage {
        title: "Test a URL".to_owned(),
        section: Some(DashboardSection::Test),
        body: html! {
            (form(visit, query))
            (answer)
        },
    };
    layout(visit, &content)
}

fn form(visit: &Visit, query: &TestQuery) -> Markup {
    html! {
        // By POST: it may have a site asked, and a robots.txt is too long for an address.
        form method="post" action=(visit.link("/test")) class="sign-in" {
            (form_token(visit))
            label for="agent" { "Crawler: a product token, or a whole User-Agent" }
            input id="agent" name="agent" value=(query.agent) required placeholder="FooBot/2.1";
            label for="url" { "URL" }
            input id="url" name="url" value=(query.url) required placeholder="https://site.example/a";
            label {
                input type="checkbox" name="fetch" checked[query.fetch.is_some()];
                " Ask the site for its robots.txt if it is not in the cache"
            }
            details open[!query.robots.is_empty()] {
                summary { "By another robots.txt" }
                label for="robots" { "Its text" }
                textarea id="robots" name="robots" spellcheck="false" { (query.robots) }
            }
            button class="primary" { "Test" }
        }
    }
}

/// Answers a question.
///
/// # Errors
///
/// What is wrong with it, in words.
async fn answer(
    dashboard: &Dashboard,
    arrival: &AdminArrival,
    query: &TestQuery,
) -> Result<Markup, String> {
    let target: Target = query.url.parse().map_err(|error| format!("URL: {error}"))?;
    if !query.robots.trim().is_empty() {
        let body = Bytes::copy_from_slice(query.robots.as_bytes());
        // By RFC 9309: what was pasted is of no site that the operator has set one for.
        let robots = RobotsTxt::in_dialect(body, Default::default());
        let crawler = Crawler::parse(&query.agent);
        return Ok(by_text(&robots, &crawler, &target));
    }
    let user_agent = HeaderValue::from_str(&query.agent);
    let asked = PlanRequest {
        user_agent: user_agent.map_err(|_| "The crawler has no such name.".to_owned())?,
        sharer: dashboard.clients.at(arrival.client),
        address: arrival.client,
        source: match query.fetch {
            Some(()) => RobotsSource::Origin,
            None => RobotsSource::Cache,
        },
        targets: vec![target.clone()],
    };
    let planned = (dashboard.plan.0)(asked).await;
    let plans = planned.map_err(|error| format!("Crawler: {error}"))?;
    Ok(plans
        .first()
        .map_or_else(|| html! {}, |plan| by_plan(plan, &target)))
}

/// Shows what the proxy would decide now.
fn by_plan(plan: &Plan, target: &Target) -> Markup {
    let Some(decision) = &plan.decision else {
        return html! {
            p class="answer" {
                b { "Not known. " }
                "The robots.txt of this site is not in the cache. Have the site asked, or paste one."
            }
        };
    };
    let evidence = decision.evidence();
    let ruling = StoredRuling::of(evidence);
    let snapshot = evidence.snapshot.as_ref();
    // What is not a file has no lines to show; the reason tells what it is.
    let file = match snapshot.map(|snapshot| &snapshot.result) {
        Some(AccessResult::Successful(file)) => Some(&file.robots),
        Some(_) | None => None,
    };
    html! {
        p class=(format!("answer {}", verdict_class(&ruling.verdict))) role="status" {
            b { (foreign(&ruling.verdict)) } ": " (foreign(&ruling.reason)) ", "
            (meaning(&ruling.reason))
            @if let (Some(line), Some(rule)) = (ruling.line, &ruling.rule) {
                ": " a href=(format!("#L{line}")) { "line " (line) } ", " (code(rule))
            }
        }
        @if let Some(start) = &plan.start {
            p { "A request could start in " (start.wait.as_secs()) " s." }
        }
        @if let Some(robots) = file {
            (rules(robots, &evidence.inquiry.crawler, target))
        }
    }
}

/// Shows what a pasted robots.txt says.
fn by_text(robots: &RobotsTxt, crawler: &Crawler, target: &Target) -> Markup {
    let binding = robots.binding(crawler);
    let judgement = binding.judge(target.path_and_query());
    let verdict = if judgement.allows() {
        "allow"
    } else {
        "disallow"
    };
    html! {
        p class=(format!("answer {verdict}")) role="status" {
            b { (verdict) } " by the robots.txt that was pasted"
            @if let Some(rule) = judgement.rule() {
                ": " a href=(format!("#L{}", rule.line())) { "line " (rule.line()) }
            } @else {
                ": no rule decides"
            }
            ". The path is judged as it is written, without the operator's overrides."
        }
        (rules(robots, crawler, target))
    }
}

/// Shows the file with the rule that decides and those that it outranks.
fn rules(robots: &RobotsTxt, crawler: &Crawler, target: &Target) -> Markup {
    let binding = robots.binding(crawler);
    let path = target.path_and_query();
    let mut marks = Vec::new();
    let judgement = binding.judge(path);
    if let Some(rule) = judgement.rule() {
        marks.push(LineMark {
            line: rule.line(),
            note: html! { b { "◀ decides" } },
        });
    }
    for (rule, why) in binding.outranked(path) {
        marks.push(LineMark {
            line: rule.line(),
            note: html! { span class="small" { "◁ matches, but does not count: " (why) } },
        });
    }
    html! {
        h2 { "robots.txt" }
        (robots_lines(robots, &marks))
    }
}

fn verdict_class(verdict: &str) -> &'static str {
    match verdict {
        "allow" => "allow",
        "disallow" => "disallow",
        _ => "later",
    }
}
