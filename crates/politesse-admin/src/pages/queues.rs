//! `/queues`: hosts with requests that wait or are in flight, or in a back-off, and the
//! button that ends a back-off. `/api/v1/pace` has the same data as JSON.
//!
//! Does not know what delays a request; the scheduler names the cause.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use tokio::task::spawn_blocking;

use super::{Dashboard, host_link};
use crate::layout::{DashboardPage, DashboardSection, error_page, form_token, layout, time};
use crate::orders::{HostOrder, OrderRefusal, REASON_BYTES_MAX};
use crate::visit::Visit;
use politesse_decision::back_off::ReleaseOrder;
use politesse_pace::host_pace::{HostPace, HostPaces};
use politesse_pages::page::words::{foreign, number};
use politesse_robots::origin::Host;

/// Most hosts on the page.
const HOSTS_MAX: usize = 200;

/// Outcome of ending a back-off: its host, or why it was not ended.
type ReleaseOutcome = Result<Host, OrderRefusal>;

/// Answers `GET /queues`.
pub(crate) async fn page(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(visit): Extension<Visit>,
) -> Response {
    respond(&dashboard, &visit, None).await
}

/// Answers `POST /queues`: ends the back-off of the host in the form, and shows the page
/// with the outcome. The form's token was checked by `access`.
pub(crate) async fn release(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(visit): Extension<Visit>,
    request: Request,
) -> Response {
    let order = match HostOrder::of_form(request).await {
        Ok(order) => order,
        Err(refusal) => return refusal,
    };
    let HostOrder { host, by, reason } = order;
    let outcome = dashboard
        .release
        .release(&host, ReleaseOrder { by, reason });
    let status = match &outcome {
        Ok(_) => StatusCode::OK,
        Err(refusal) => refusal.status(),
    };
    (status, respond(&dashboard, &visit, Some(outcome)).await).into_response()
}

async fn respond(
    dashboard: &Dashboard,
    visit: &Visit,
    outcome: Option<ReleaseOutcome>,
) -> Response {
    let paces = dashboard.pace.clone();
    // Sorting hundreds of thousands of hosts would block other requests.
    let gathered = spawn_blocking(move || HostPaces::first((paces.0)(), HOSTS_MAX));
    let Ok(paces) = gathered.await else {
        let text = "The hosts cannot be listed now.";
        return error_page(visit, StatusCode::SERVICE_UNAVAILABLE, text);
    };
    let content = DashboardPage {
        title: "Queues".to_owned(),
        section: Some(DashboardSection::Queues),
        body: html! {
            @match outcome {
                Some(Ok(host)) => p class="note" role="status" {
                    "The back-off of " (foreign(&host.to_string()))
                    " is ended, and that is on record."
                },
                Some(Err(refusal)) => p class="error" role="alert" {
                    (foreign(&refusal.to_string()))
                },
                None => {},
            }
            (markup(visit, &paces))
        },
    };
    layout(visit, &content)
}

fn markup(visit: &Visit, paces: &HostPaces) -> Markup {
    let sum = |count: fn(&HostPace) -> u32| -> u64 {
        let counts = paces.hosts.iter().map(count);
        counts.map(u64::from).sum()
    };
    html! {
        p {
            (number(sum(|host| host.queued))) " requests wait, "
            (number(sum(|host| host.in_flight))) " are in flight, at "
            (number(paces.hosts.len() as u64)) " of " (number(paces.total as u64)) " hosts."
        }
        div class="scroll" {
            table class="cards" {
                caption {
                    "Hosts with requests that wait or a back-off first; times in UTC."
                    @if paces.hosts.is_empty() { " No host is being asked." }
                }
                thead {
                    tr {
                        th scope="col" { "host" }
                        th scope="col" class="n" { "waiting" }
                        th scope="col" class="n" { "in flight" }
                        th scope="col" { "next start" }
                        th scope="col" { "because of" }
                        th scope="col" { "back-off until" }
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
                            td data-label="because of" {
                                @if let Some(cause) = &host.cause { (foreign(cause)) }
                            }
                            td class="t" data-label="back-off until" {
                                @if let Some(until) = host.backoff_until {
                                    (time(until)) (release_form(visit, &host.host))
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Makes the form that ends the back-off of a host.
fn release_form(visit: &Visit, host: &str) -> Markup {
    html! {
        // The form is folded, so that one wrong click does not end a back-off.
        details class="release" {
            summary { "End it" }
            form method="post" action=(visit.link("/queues")) {
                (form_token(visit))
                input type="hidden" name="host" value=(host);
                label {
                    "Reason, for the record "
                    input name="reason" required maxlength=(REASON_BYTES_MAX);
                }
                button { "End the back-off" }
            }
        }
    }
}
