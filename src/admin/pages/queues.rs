//! `/queues`: hosts at which requests wait, are in flight, or that are left alone.
//! `/api/v1/pace` is the same as JSON.
//!
//! Does not know why a host is asked slowly; the scheduler names the cause.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};
use tokio::task::spawn_blocking;

use super::{Dashboard, host_link};
use crate::admin::layout::{DashboardPage, DashboardSection, error_page, layout, time};
use crate::admin::visit::Visit;
use crate::pace::host_pace::{HostPace, HostPaces};
use crate::page::words::{foreign, number};

/// Hosts that are shown.
const HOSTS_MAX: usize = 200;

/// Shows the queues.
pub(crate) async fn page(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(visit): Extension<Visit>,
) -> Response {
    let paces = dashboard.pace.clone();
    // Hundreds of thousands of hosts take a while.
    let gathered = spawn_blocking(move || HostPaces::first((paces.0)(), HOSTS_MAX));
    let Ok(paces) = gathered.await else {
        let text = "The hosts cannot be listed now.";
        return error_page(&visit, StatusCode::SERVICE_UNAVAILABLE, text);
    };
    let content = DashboardPage {
        title: "Queues".to_owned(),
        section: Some(DashboardSection::Queues),
        body: markup(&visit, &paces),
    };
    layout(&visit, &content)
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
            table class="rows" {
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
                            td class="n" { (number(host.queued.into())) }
                            td class="n" { (number(host.in_flight.into())) }
                            td class="t" { @if let Some(next) = host.next_start { (time(next)) } }
                            td { @if let Some(cause) = &host.cause { (foreign(cause)) } }
                            td class="t" {
                                @if let Some(until) = host.backoff_until { (time(until)) }
                            }
                        }
                    }
                }
            }
        }
        // Ending one is an order with a reason, which the command line asks for.
        p class="small" {
            "A back-off is ended with " code { "politesse pace release HOST --reason TEXT" } "."
        }
    }
}
