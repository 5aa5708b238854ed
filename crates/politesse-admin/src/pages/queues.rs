//! `/queues`: the hosts that the scheduler remembers, those with waiting requests or a
//! back-off first, and the button that ends a back-off. `/api/v1/pace` has the same data
//! as JSON.
//!
//! Does not know what delays a request; the scheduler names the cause.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use tokio::task::spawn_blocking;

use super::back_offs::{self, ReleaseOutcome, release_form, release_note, release_status};
use super::{Dashboard, host_link};
use crate::layout::{DashboardPage, DashboardSection, error_page, layout, time};
use crate::visit::Visit;
use politesse_pace::host_pace::{HostPace, HostPaces};
use politesse_pages::page::words::{counted, foreign, number};

/// Maximum number of hosts on the page. The totals on the page are theirs, too.
const HOSTS_MAX: usize = 200;

/// Answers `GET /queues`.
pub(crate) async fn page(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(visit): Extension<Visit>,
) -> Response {
    respond(&dashboard, &visit, None).await
}

/// Answers `POST /queues`: ends the back-off of the host in the form, and shows the
/// page with the outcome. `access` has already checked the form's token.
pub(crate) async fn release(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(visit): Extension<Visit>,
    request: Request,
) -> Response {
    match back_offs::release(&dashboard, request).await {
        Ok(outcome) => {
            let status = release_status(&outcome);
            (status, respond(&dashboard, &visit, Some(outcome)).await).into_response()
        }
        Err(answer) => answer,
    }
}

/// Makes the page, with the outcome of a release if one was requested.
async fn respond(
    dashboard: &Dashboard,
    visit: &Visit,
    outcome: Option<ReleaseOutcome>,
) -> Response {
    let source = dashboard.pace.clone();
    // Selecting from hundreds of thousands of hosts would block other requests.
    let gathered = spawn_blocking(move || HostPaces::first(source.hosts(), HOSTS_MAX));
    let Ok(paces) = gathered.await else {
        let text = "The hosts cannot be listed now.";
        return error_page(visit, StatusCode::SERVICE_UNAVAILABLE, text);
    };
    let content = DashboardPage {
        title: "Queues".to_owned(),
        section: Some(DashboardSection::Queues),
        body: html! {
            @if let Some(outcome) = &outcome { (release_note(outcome)) }
            (markup(visit, &paces))
        },
    };
    layout(visit, &content)
}

fn markup(visit: &Visit, paces: &HostPaces) -> Markup {
    // Sums of the hosts on the page, not of all.
    let sum = |count: fn(&HostPace) -> u32| -> u64 {
        let counts = paces.hosts.iter().map(count);
        counts.map(u64::from).sum()
    };
    html! {
        p {
            (number(paces.hosts.len() as u64)) " of " (number(paces.total as u64))
            " hosts are listed, with "
            (counted(sum(|host| host.queued), "request")) " waiting and "
            (number(sum(|host| host.in_flight))) " in flight."
        }
        div class="scroll" {
            table class="cards" {
                caption {
                    "Hosts with waiting requests or a back-off come first. Times in UTC."
                    @if paces.hosts.is_empty() { " No requests are waiting or in flight." }
                }
                thead {
                    tr {
                        th scope="col" { "host" }
                        th scope="col" class="n" { "waiting" }
                        th scope="col" class="n" { "in flight" }
                        th scope="col" { "next start" }
                        th scope="col" { "reason" }
                        th scope="col" { "back-off ends" }
                    }
                }
                tbody {
                    @for host in &paces.hosts {
                        tr {
                            th scope="row" { (host_link(visit, &host.host)) }
                            td class="n" data-label="waiting" { (number(host.queued.into())) }
                            td class="n" data-label="in flight" {
                                (number(host.in_flight.into()))
                            }
                            td class="t" data-label="next start" {
                                @if let Some(next) = host.next_start { (time(next)) }
                            }
                            td data-label="reason" {
                                @if let Some(cause) = &host.cause { (foreign(cause)) }
                            }
                            td class="t" data-label="back-off ends" {
                                @if let Some(until) = host.backoff_until {
                                    (time(until)) (release_form(visit, &host.host, "/queues"))
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
