//! `/configuration`: the values in force and their sources, overrides, health, and the
//! authority with the settings for each client. `/api/v1/configuration` returns the
//! same as JSON.
//!
//! Does not know secrets: it receives none.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use jiff::Timestamp;
use maud::{Markup, html};
use serde::Serialize;

use super::health::{ProcessHealth, ReachedListeners, RecordHealth};
use super::{Dashboard, QUERY_TIME_MAX, crawler_link, rows_link};
use crate::api::json;
use crate::client::AdminLocal;
use crate::filter_query::DecisionQuery;
use crate::in_force::{ConfigurationInForce, FailedReload, ShownKey, ShownOverride};
use crate::layout::{DashboardPage, DashboardSection, layout, time, time_in_text};
use crate::visit::Visit;
use politesse_base::clock;
use politesse_base::command_line::command;
use politesse_decision::digest::Digest;
use politesse_decision::overrides::{Origins, Override};
use politesse_pages::page::words::{breakable, code, counted, foreign, shown};
use politesse_proxy::ca::Ca;
use politesse_proxy::client_pages::{ClientPages, with_colons};

/// Maximum number of characters shown of a value or a problem.
const VALUE_MAX: usize = 4096;

/// Query that selects only the keys that were set.
const SET: &str = "keys=set";

/// Data of the page.
struct ConfigurationPage {
    in_force: Arc<ConfigurationInForce>,
    overrides: Vec<OverrideState>,
    record: RecordHealth,
    process: ProcessHealth,
    guide: ClientPages,
}

/// Override, and whether it is still in force.
struct OverrideState {
    shown: ShownOverride,
    has_ended: bool,
}

/// The page as JSON.
#[derive(Serialize)]
struct ConfigurationJson<'a> {
    in_force_since: Timestamp,
    file: Option<String>,
    sha256: String,
    policy: String,
    failed_reload: Option<&'a FailedReload>,
    keys: &'a [ShownKey],
    overrides: Vec<OverrideJson<'a>>,
    record: &'a RecordHealth,
    process: &'a ProcessHealth,
    ca: Option<CaJson>,
}

#[derive(Serialize)]
struct OverrideJson<'a> {
    #[serde(rename = "override")]
    entry: &'a Override,
    in_force: bool,
    place: &'a str,
}

/// Authority that clients have to trust.
#[derive(Serialize)]
struct CaJson {
    sha256: String,
    valid_from: Option<Timestamp>,
    valid_until: Option<Timestamp>,
}

impl From<&Ca> for CaJson {
    fn from(ca: &Ca) -> Self {
        let time = |second: i64| Timestamp::from_second(second).ok();
        Self {
            sha256: ca.root().fingerprint().to_string(),
            valid_from: ca.begins_at().and_then(time),
            valid_until: ca.ends_at().and_then(time),
        }
    }
}

/// Shows the configuration.
pub(crate) async fn page(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(visit): Extension<Visit>,
    local: Option<Extension<AdminLocal>>,
    uri: Uri,
) -> Response {
    let found = ConfigurationPage::gather(&dashboard, local).await;
    let content = DashboardPage {
        title: "Configuration".to_owned(),
        section: Some(DashboardSection::Configuration),
        body: found.markup(&visit, KeyChoice::of(&uri)),
    };
    layout(&visit, &content)
}

/// Returns the configuration as JSON.
pub(crate) async fn api(
    State(dashboard): State<Arc<Dashboard>>,
    local: Option<Extension<AdminLocal>>,
) -> Response {
    json(&ConfigurationPage::gather(&dashboard, local).await.json())
}

/// Keys to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyChoice {
    /// All keys.
    All,
    /// Keys whose value is not the default.
    Set,
}

impl KeyChoice {
    fn of(uri: &Uri) -> Self {
        match uri.query() {
            Some(SET) => Self::Set,
            _ => Self::All,
        }
    }

    fn lists(self, key: &ShownKey) -> bool {
        self == Self::All || is_set(key)
    }
}

fn is_set(key: &ShownKey) -> bool {
    key.source != "default"
}

impl ConfigurationPage {
    async fn gather(dashboard: &Dashboard, local: Option<Extension<AdminLocal>>) -> Self {
        let local = local.map(|Extension(AdminLocal(local))| local);
        let guide = (dashboard.client_pages.0)(local);
        let numbers = dashboard
            .audit
            .query(QUERY_TIME_MAX, |reader| reader.seq_range())
            .await;
        let reached = ReachedListeners {
            proxies: guide.proxies.iter().map(ToString::to_string).collect(),
            admin: local,
        };
        let in_force = dashboard.configuration.load_full();
        // The current time, because an override ends without a reload.
        let now = clock::now();
        let overrides = in_force.overrides.iter().map(|shown| OverrideState {
            has_ended: shown.entry.has_ended(now),
            shown: shown.clone(),
        });
        Self {
            overrides: overrides.collect(),
            record: RecordHealth::gather(dashboard, numbers).await,
            process: ProcessHealth::gather(dashboard, reached).await,
            in_force,
            guide,
        }
    }

    fn json(&self) -> ConfigurationJson<'_> {
        let in_force = &self.in_force;
        let overrides = self.overrides.iter().map(|state| OverrideJson {
            entry: &state.shown.entry,
            in_force: !state.has_ended,
            place: &state.shown.place,
        });
        ConfigurationJson {
            in_force_since: in_force.since,
            file: in_force
                .file
                .as_ref()
                .map(|file| file.display().to_string()),
            sha256: in_force.sha256.to_string(),
            policy: in_force.policy.to_string(),
            failed_reload: in_force.failed_reload.as_ref(),
            keys: &in_force.keys,
            overrides: overrides.collect(),
            record: &self.record,
            process: &self.process,
            ca: self.guide.ca.as_deref().map(CaJson::from),
        }
    }

    fn markup(&self, visit: &Visit, choice: KeyChoice) -> Markup {
        html! {
            (self.summary())
            // The keys come last, because there are more than a hundred.
            nav aria-label="On this page" {
                p class="actions" {
                    a href="#overrides" { "Overrides" }
                    a href="#health" { "Health" }
                    a href="#clients" { "Authority and clients" }
                    a href="#keys" { "Keys" }
                }
            }
            h2 id="overrides" { "Overrides" }
            (self.overrides(visit))
            h2 id="health" { "Health" }
            div class="columns" {
                section aria-label="The record" { h3 { "The record" } (self.record.markup(visit)) }
                section aria-label="The process" { h3 { "The process" } (self.process.markup(visit)) }
            }
            h2 id="clients" { "Authority and clients" }
            (self.authority(visit))
            h2 id="keys" { "Keys" }
            (self.keys(visit, choice))
            p class="small" {
                a href=(visit.link("/api/v1/configuration")) { "All as JSON" }
            }
        }
    }

    /// Shows the source of the configuration, and a failed reload.
    fn summary(&self) -> Markup {
        let in_force = &self.in_force;
        html! {
            @if let Some(failed) = &in_force.failed_reload { (failure(failed)) }
            dl {
                dt { "file" }
                dd {
                    @match &in_force.file {
                        Some(file) => { (code(&file.display().to_string())) }
                        None => { "none; only defaults, environment and command line" }
                    }
                }
                dt { "in force since" } dd { (time_in_text(in_force.since)) }
                dt { "SHA-256 of its values" } dd { (digest(&in_force.sha256)) }
                dt { "SHA-256 of the policy" } dd { (digest(&in_force.policy)) }
            }
            p class="small" {
                "The record names each configuration by the first (" code { "sha256" }
                "), each decision its policy by the second: "
                code { (command("audit events --kind configuration")) } " lists them."
            }
        }
    }

    fn overrides(&self, visit: &Visit) -> Markup {
        if self.overrides.is_empty() {
            return html! { p { "None: every robots.txt applies as it is." } };
        }
        html! {
            div class="scroll" {
                table class="cards" {
                    caption {
                        "Entries of " code { "robots.override" }
                        ", in the order in which they are tried; times in UTC."
                    }
                    thead {
                        tr {
                            th scope="col" class="w" { "origin" }
                            th scope="col" { "state" }
                            th scope="col" { "action" }
                            th scope="col" { "crawler" }
                            th scope="col" class="w" { "path" }
                            th scope="col" { "until" }
                            th scope="col" class="w" { "reason" }
                            th scope="col" class="w" { "from" }
                        }
                    }
                    tbody { @for state in &self.overrides { (override_row(visit, state)) } }
                }
            }
        }
    }

    fn authority(&self, visit: &Visit) -> Markup {
        let guide = |text: &str| html! { a href=(visit.link("/client")) { (text) } };
        let Some(ca) = self.guide.ca.as_deref() else {
            return html! {
                p {
                    "HTTPS is refused (" code { "https.mode" } "), and there is no authority to trust. "
                    (guide("How to point a client here")) "."
                }
            };
        };
        let facts = CaJson::from(ca);
        html! {
            dl {
                dt { "certificate" } dd { a href=(visit.link("/ca.pem")) download { "ca.pem" } }
                dt { "SHA-256" }
                dd {
                    code { (facts.sha256) }
                    p class="small" { "as openssl and browsers write it: " code {
                        (breakable(&with_colons(&ca.root().fingerprint())))
                    } }
                }
                @if let (Some(from), Some(until)) = (facts.valid_from, facts.valid_until) {
                    dt { "valid" } dd { (time_in_text(from)) " to " (time_in_text(until)) }
                }
            }
            p {
                "Compare the SHA-256 with what " code { (command("ca show")) }
                " prints on the machine of the proxy. " (guide("The page for clients"))
                " needs no sign-in; you can send it to anyone who runs a crawler."
            }
            // As on the page for clients, the lines use the first listener.
            @if let Some(&proxy) = self.guide.proxies.first() {
                details {
                    summary { "A line for each client" }
                    div class="scroll" { (self.guide.client_lines(proxy)) }
                }
            }
        }
    }

    fn keys(&self, visit: &Visit, choice: KeyChoice) -> Markup {
        let keys = &self.in_force.keys;
        let set = keys.iter().filter(|key| is_set(key)).count();
        let is_current = |this: KeyChoice| (this == choice).then_some("true");
        html! {
            p class="actions" {
                a href=(visit.link("/configuration#keys")) aria-current=[is_current(KeyChoice::All)] {
                    "All " (counted(keys.len() as u64, "value"))
                }
                a href=(visit.link(&format!("/configuration?{SET}#keys")))
                    aria-current=[is_current(KeyChoice::Set)] {
                    (counted(set as u64, "value")) " set explicitly"
                }
            }
            p class="small" {
                "An ellipsis (…) stands for a secret. " code { (command("config show")) }
                " prints whole values to users who may read the file."
            }
            @for table in keys.chunk_by(|one, other| one.table == other.table) {
                (key_table(table, choice))
            }
        }
    }
}

fn failure(failed: &FailedReload) -> Markup {
    html! {
        div class="error" role="alert" {
            p {
                b { "The last reload failed" } ", " (time_in_text(failed.at))
                ". The previous configuration is still in force."
            }
            ul { @for problem in &failed.problems { li { bdi { (shown(problem, VALUE_MAX)) } } } }
        }
    }
}

fn digest(digest: &Digest) -> Markup {
    html! { code { (digest) } }
}

/// Shows the keys of one table of the file.
fn key_table(keys: &[ShownKey], choice: KeyChoice) -> Markup {
    let listed: Vec<_> = keys.iter().filter(|key| choice.lists(key)).collect();
    let Some(name) = listed.first().map(|key| key.table) else {
        return html! {};
    };
    let id = format!("keys-{name}");
    html! {
        h3 id=(id) {
            @if name.is_empty() { "Outside every table" } @else { code { "[" (name) "]" } }
        }
        div class="scroll" {
            table class="keys cards" aria-labelledby=(id) {
                thead {
                    tr {
                        th scope="col" { "key" }
                        th scope="col" { "value" }
                        th scope="col" { "from" }
                    }
                }
                tbody {
                    @for key in listed {
                        tr {
                            th scope="row" { code { (key.name) } }
                            td data-label="value" {
                                code { bdi { (shown(&key.value, VALUE_MAX)) } }
                                @if key.is_partial { span class="small" { " not whole" } }
                            }
                            td data-label="from" {
                                @if is_set(key) { (foreign(&key.place)) }
                                @else { span class="small" { (key.place) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn override_row(visit: &Visit, state: &OverrideState) -> Markup {
    let Override {
        origin,
        agent,
        path,
        action,
        reason,
    } = &state.shown.entry;
    html! {
        tr {
            // The row begins with its subject, which on a phone becomes its heading.
            th scope="row" { (foreign(&origin.to_string())) (decisions_link(visit, origin)) }
            td data-label="state" {
                @if state.has_ended {
                    span class="verdict later" { "over" }
                } @else {
                    span class="verdict allow" { "in force" }
                }
            }
            td data-label="action" { (action.as_str()) }
            td data-label="crawler" {
                @if let Some(agent) = agent { (crawler_link(visit, Some(agent.as_str()))) }
                @else { "all" }
            }
            td data-label="path" { @if let Some(path) = path { (code(path.as_str())) } @else { "all" } }
            td class="t" data-label="until" {
                @match action.until() {
                    Some(until) => { (time(until)) }
                    None => { "without end" }
                }
            }
            td data-label="reason" { (foreign(reason)) }
            td data-label="from" { (foreign(&state.shown.place)) }
        }
    }
}

/// Links an override to the decisions about its host. There is no link to the host's
/// page, since the host may never have been requested.
fn decisions_link(visit: &Visit, origin: &Origins) -> Markup {
    // The record can search by host, but not by the suffix of a name.
    let Origins::One(origin) = origin else {
        return html! {};
    };
    let host = origin.host().to_string();
    let rows = DecisionQuery::default().with("host", &host);
    html! {
        span class="small" { " (" (rows_link(visit, &rows, "decisions")) ")" }
    }
}
