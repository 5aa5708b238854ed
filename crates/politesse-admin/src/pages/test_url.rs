//! `/test`: the decision about a URL with the robots.txt in the cache, a newly fetched
//! one, the one in force at a given time, or a pasted one. `POST /api/v1/check` answers
//! the first two for many URLs as JSON.
//!
//! Does not know how a decision is made.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Extension;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use jiff::Timestamp;
use maud::{Markup, html};
use politesse_robots::crawler::Crawler;
use politesse_robots::origin::{Origin, Target};
use politesse_robots::{Dialect, FileSource};

use super::{Dashboard, QUERY_TIME_MAX};
use crate::arrival::AdminArrival;
use crate::decision_view::{self, facts_and_file};
use crate::filter_query::time;
use crate::layout::{DashboardPage, DashboardSection, form_token, layout, time_in_text};
use crate::visit::Visit;
use politesse_base::clock;
use politesse_base::inert::inert;
use politesse_decision::access::Cause;
use politesse_decision::decide::Decision;
use politesse_decision::record::Effect;
use politesse_decision::snapshot::{AccessResult, CacheKey, RobotsFile, Snapshot};
use politesse_pages::explain::Explanation;
use politesse_proxy::plan::{GivenRobots, Plan, PlanRequest, RobotsSource};
use politesse_record::robots_history::robots_for;

/// Maximum bytes of a form: a robots.txt of 500 KiB, in which each byte may be escaped
/// as three.
const FORM_BYTES_MAX: usize = 2 << 20;

/// Query about a URL.
#[derive(Default)]
struct TestQuery {
    agent: String,
    url: String,
    /// Text of a robots.txt to use in place of the site's.
    robots: String,
    /// Time whose robots.txt on record is used; empty for now.
    at: String,
    /// Whether the site may be contacted.
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
                "at" => query.at = value.trim().to_owned(),
                "fetch" => query.fetch = Some(()),
                _ => {}
            }
        }
        query
    }
}

/// Shows the form, and the result from the cache if the address contains a query.
/// Contacts no site, because a browser may send a GET on its own.
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

/// Answers the query of a form.
pub(crate) async fn ask(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(visit): Extension<Visit>,
    Extension(arrival): Extension<AdminArrival>,
    request: Request,
) -> Response {
    let Ok(form) = to_bytes(request.into_body(), FORM_BYTES_MAX).await else {
        let text = format!("a form has {FORM_BYTES_MAX} bytes at most\n");
        return (StatusCode::PAYLOAD_TOO_LARGE, text).into_response();
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
        // A POST, because it may contact a site, and a robots.txt is too long for an
        // address.
        form method="post" action=(visit.link("/test")) class="sign-in" {
            (form_token(visit))
            label for="agent" { "Crawler: a product token, or a whole User-Agent" }
            input id="agent" name="agent" value=(query.agent) required placeholder="FooBot/2.1";
            label for="url" { "URL" }
            input id="url" name="url" value=(query.url) required placeholder="https://site.example/a";
            label for="at" { "Time (UTC), to decide by the robots.txt that was in force then" }
            input id="at" name="at" value=(query.at) placeholder="now; else 2026-11-22T10:00, or 7d: seven days ago";
            label {
                input type="checkbox" name="fetch" checked[query.fetch.is_some()];
                " Ask the site for its robots.txt if it is not in the cache"
            }
            details open[!query.robots.is_empty()] {
                summary { "With another robots.txt" }
                label for="robots" { "Its text" }
                textarea id="robots" name="robots" spellcheck="false" { (query.robots) }
            }
            button class="primary" { "Test" }
        }
    }
}

/// Makes the result for the form.
///
/// # Errors
///
/// A sentence about the invalid field.
async fn answer(
    dashboard: &Dashboard,
    arrival: &AdminArrival,
    query: &TestQuery,
) -> Result<Markup, String> {
    let target: Target = query.url.parse().map_err(|error| format!("URL: {error}"))?;
    let user_agent = HeaderValue::from_str(&query.agent);
    let files = query.files(dashboard, &target.origin).await?;
    let asked = PlanRequest {
        user_agent: user_agent.map_err(|_| "This is not a valid crawler name.".to_owned())?,
        sharer: dashboard.clients.at(arrival.client),
        address: arrival.client,
        source: files.source.clone(),
        targets: vec![target],
    };
    let planned = (dashboard.plan.0)(asked).await;
    let plans = planned.map_err(|error| format!("Crawler: {error}"))?;
    Ok(html! {
        @for plan in &plans {
            @match (&plan.decision, query.fetch) {
                (Some(decision), _) => { (by_decision(plan, decision, &files)) }
                (None, Some(())) => {
                    p class="answer" {
                        b { "Not known. " }
                        "The site was asked for its robots.txt and has not answered yet. Test again \
                         in a while, or paste one."
                    }
                }
                (None, None) => {
                    p class="answer" {
                        b { "Not known. " }
                        "The robots.txt of this site is not in the cache. Ask the site for it, or \
                         paste one."
                    }
                }
            }
        }
    })
}

/// Files to decide with, and a note about them.
struct TestFiles {
    source: RobotsSource,
    /// Time for computing the age of a file; `None` if it was not fetched.
    asked_at: Option<Timestamp>,
    /// Sentence about the files; empty for the proxy's current ones.
    note: Markup,
}

impl TestQuery {
    /// Finds the files to decide with.
    ///
    /// # Errors
    ///
    /// A sentence with the reason why there are none.
    async fn files(&self, dashboard: &Dashboard, origin: &Origin) -> Result<TestFiles, String> {
        let at = match &*self.at {
            "" => None,
            text => Some(time(text).map_err(|wanted| format!("Time: {wanted}"))?),
        };
        // A site's future file cannot be known.
        if at.is_some_and(|at| clock::now() < at) {
            return Err("Time: a time in the past is wanted.".to_owned());
        }
        if !self.robots.trim().is_empty() {
            return Ok(self.pasted(origin, at.unwrap_or_else(clock::now)));
        }
        if let Some(at) = at {
            return self.past(dashboard, origin, at).await;
        }
        Ok(TestFiles {
            source: match self.fetch {
                Some(()) => RobotsSource::Origin,
                None => RobotsSource::Cache,
            },
            asked_at: Some(clock::now()),
            note: html! {},
        })
    }

    /// Uses the pasted text as the file of the origin.
    fn pasted(&self, origin: &Origin, at: Timestamp) -> TestFiles {
        let body = Bytes::copy_from_slice(self.robots.as_bytes());
        let source = FileSource::new(origin, None);
        let file = RobotsFile::from_source(body, Dialect::default(), source);
        let key = CacheKey::new(origin.clone(), None);
        let snapshot = Snapshot {
            status: Some(200),
            result: AccessResult::Successful(Arc::new(file)),
            ..Snapshot::unreachable(key, Cause::Internal, at)
        };
        TestFiles {
            source: given(Arc::new(snapshot), at),
            asked_at: None,
            note: html! {
                p {
                    "With the robots.txt that was pasted, and the readings and overrides of "
                    "this proxy."
                }
            },
        }
    }

    /// Finds the file that was in force for the crawler at `at`.
    async fn past(
        &self,
        dashboard: &Dashboard,
        origin: &Origin,
        at: Timestamp,
    ) -> Result<TestFiles, String> {
        let crawler = Crawler::parse(&self.agent);
        let wanted = origin.clone();
        let query = dashboard.audit.query(QUERY_TIME_MAX, move |reader| {
            robots_for(reader, &wanted, &crawler, at)
        });
        let Some(past) = query.await.map_err(|error| error.to_string())? else {
            return Err(format!(
                "No robots.txt of {origin} is on record by {at:.0}. Only files that a decision \
                 is based on are recorded."
            ));
        };
        let restored = past.snapshot(origin.clone(), Dialect::default());
        let snapshot = restored.map_err(|error| format!("It cannot be read again: {error}"))?;
        Ok(TestFiles {
            note: html! {
                p {
                    "With the robots.txt that was in force at " (time_in_text(at)) ", fetched at "
                    (time_in_text(snapshot.fetched_at))
                    ", and the overrides that this proxy has now for that time."
                }
            },
            source: given(snapshot, at),
            asked_at: Some(at),
        })
    }
}

/// Makes a source with one file.
fn given(snapshot: Arc<Snapshot>, at: Timestamp) -> RobotsSource {
    RobotsSource::Given(GivenRobots {
        at,
        snapshots: HashMap::from([(snapshot.key.origin.clone(), snapshot)]),
    })
}

/// Shows the decision that the proxy would make with `files`.
fn by_decision(plan: &Plan, decision: &Decision, files: &TestFiles) -> Markup {
    let evidence = decision.evidence();
    let explanation = Explanation::of_evidence(evidence, &evidence.policy, files.asked_at);
    html! {
        (decision_view::answer(&explanation, ""))
        @if plan.effect() == Some(Effect::Reported) {
            p class="note" { "Report mode: the request is still forwarded, and recorded with this verdict." }
        }
        (files.note)
        @if let Some(start) = &plan.start {
            p { "A request could start in " (start.wait.as_secs()) " s." }
        }
        (facts_and_file(&explanation))
    }
}
