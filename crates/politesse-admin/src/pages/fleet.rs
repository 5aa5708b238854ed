//! `/fleet`: the nodes that act as one crawler with this proxy, their store, and
//! whether their configurations match. `/api/v1/fleet` returns the same as JSON.
//!
//! Does not know how nodes communicate.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};

use super::Dashboard;
use crate::api::json;
use crate::layout::{DashboardPage, DashboardSection, layout, time};
use crate::visit::Visit;
use politesse_fleet::status::{FleetAnswer, FleetNode, FleetStanding, FleetStatus, NodeState};
use politesse_pages::page::words::{foreign, number};

/// Number of digits of a digest shown in a table; enough to tell digests apart.
const SHOWN_DIGITS: usize = 12;

/// Shows the fleet.
pub(crate) async fn page(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(visit): Extension<Visit>,
) -> Response {
    let content = DashboardPage {
        title: "Fleet".to_owned(),
        section: Some(DashboardSection::Fleet),
        body: match (dashboard.fleet.0)() {
            Some(fleet) => markup(&fleet),
            None => html! {
                p {
                    "This proxy is in no fleet. With " code { "fleet.store" }
                    " several proxies keep one pace at each host."
                }
            },
        },
    };
    layout(&visit, &content)
}

/// Returns the fleet as JSON.
pub(crate) async fn api(State(dashboard): State<Arc<Dashboard>>) -> Response {
    let fleet = (dashboard.fleet.0)();
    json(&FleetAnswer { fleet })
}

fn markup(fleet: &FleetStatus) -> Markup {
    let is_missing = |node: &&FleetNode| node.state == NodeState::Missing;
    let missing = fleet.nodes.iter().filter(is_missing);
    let missing_names: Vec<_> = missing.map(|node| node.node.as_str()).collect();
    html! {
        @match fleet.mode {
            FleetStanding::Joined => {},
            FleetStanding::Alone => p class="error" {
                b { "The store does not answer. " }
                "This node goes on with the pauses of all nodes."
            },
            FleetStanding::Closed => p class="error" {
                b { "The store does not answer. " } "Nothing is sent until it does."
            },
        }
        @if fleet.is_unopened() {
            p class="error" {
                b { "The store begins the fleet again and again. " }
                "It restarts, its clock is set, its address leads to several servers, or it hears \
                 a node that does not hear its answers. Requests wait until that ends."
            }
        }
        @if !missing_names.is_empty() {
            p class="error" {
                b { "No heartbeat from: " } (foreign(&missing_names.join(", "))) ". "
                "The other nodes leave room for requests that it may be sending."
            }
        }
        @if fleet.has_namesake {
            p class="error" {
                b { "Another process has the name of this node. " }
                "The fleet counts both as one. Give each a name of its own (fleet.node)."
            }
        }
        (difference(fleet))
        dl {
            dt { "fleet" } dd { (foreign(&fleet.fleet)) }
            dt { "this node" } dd { (foreign(&fleet.node)) ", " (fleet.mode.as_str()) }
            dt { "store" }
            dd {
                @match &fleet.store {
                    Some(store) => {
                        (foreign(&store.address)) ", answers in " (format!("{:.1}", store.latency_ms))
                        " ms, generation " (store.generation)
                    }
                    None => "none answers",
                }
            }
            dt { "robots.txt" }
            dd {
                @if fleet.shares_robots { "fetched once for all nodes" }
                @else { "fetched by each node: there is no fleet.key" }
            }
        }
        (nodes(fleet))
    }
}

/// Shows which live nodes have a different configuration.
fn difference(fleet: &FleetStatus) -> Markup {
    let found = fleet.difference();
    let parts: Vec<_> = found.parts.into_iter().collect();
    html! {
        @if !parts.is_empty() {
            p class="error" {
                b { "Not all nodes have the same configuration. " }
                "The configuration of " (foreign(&found.nodes.join(", ")))
                " differs from that of this node in: " (foreign(&parts.join(", "))) "."
            }
        }
    }
}

fn nodes(fleet: &FleetStatus) -> Markup {
    html! {
        div class="scroll" {
            table class="cards" {
                caption {
                    "Nodes; times in UTC."
                    @if fleet.nodes.is_empty() { " None was read from the store yet." }
                }
                thead {
                    tr {
                        th scope="col" { "node" }
                        th scope="col" { "state" }
                        th scope="col" class="n" { "heard of" }
                        th scope="col" { "version" }
                        th scope="col" { "since" }
                        th scope="col" class="n" { "hosts leased" }
                        th scope="col" { "configuration" }
                        th scope="col" { "differs in" }
                    }
                }
                tbody { @for node in &fleet.nodes { (row(node)) } }
            }
        }
    }
}

fn row(node: &FleetNode) -> Markup {
    let configuration = node.configuration.as_deref().unwrap_or_default();
    html! {
        tr {
            th scope="row" { (foreign(&node.node)) }
            td data-label="state" { (node.state.as_str()) }
            td class="n" data-label="heard of" { (seconds_ago(node)) }
            td data-label="version" { @if let Some(version) = &node.version { (foreign(version)) } }
            td class="t" data-label="since" { @if let Some(started) = node.started { (time(started)) } }
            td class="n" data-label="hosts leased" { @if let Some(hosts) = node.hosts { (number(hosts)) } }
            td data-label="configuration" {
                code { (foreign(configuration.get(..SHOWN_DIGITS).unwrap_or(configuration))) }
            }
            td data-label="differs in" {
                @if !node.differs.is_empty() { (foreign(&node.differs.join(", "))) }
            }
        }
    }
}

fn seconds_ago(node: &FleetNode) -> String {
    format!("{} s ago", number(node.heartbeat_ms / 1000))
}
