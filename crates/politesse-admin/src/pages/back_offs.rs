//! Hosts in back-off after a 429 or 503: the time left, and the form that ends the
//! back-off.
//!
//! Does not know the pages that contain the form.

use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};

use super::{Dashboard, host_link};
use crate::layout::form_token;
use crate::orders::{HostOrder, OrderRefusal, REASON_BYTES_MAX};
use crate::visit::Visit;
use politesse_decision::back_off::ReleaseOrder;
use politesse_pace::host_pace::HostPace;
use politesse_pages::page::words::{foreign, number};
use politesse_robots::origin::Host;

/// Outcome of ending a back-off: its host, or the reason why it was not ended.
pub(super) type ReleaseOutcome = Result<Host, OrderRefusal>;

/// Ends the back-off of the host in the form sent by `request`. `access` has already
/// checked the form's token.
///
/// # Errors
///
/// A response, if the form is too long.
pub(super) async fn release(
    dashboard: &Dashboard,
    request: Request,
) -> Result<ReleaseOutcome, Response> {
    let HostOrder { host, by, reason } = HostOrder::of_form(request).await?;
    let order = ReleaseOrder { by, reason };
    Ok(dashboard.release.release(&host, order))
}

/// Returns the status of the page that shows `outcome`.
pub(super) fn release_status(outcome: &ReleaseOutcome) -> StatusCode {
    match outcome {
        Ok(_) => StatusCode::OK,
        Err(refusal) => refusal.status(),
    }
}

/// Shows whether a back-off was ended, or why not.
pub(super) fn release_note(outcome: &ReleaseOutcome) -> Markup {
    match outcome {
        Ok(host) => html! {
            p class="note" role="status" {
                "The back-off of " (foreign(&host.to_string()))
                " has ended. The record shows who ended it and why."
            }
        },
        Err(refusal) => html! {
            p class="error" role="alert" { (foreign(&refusal.to_string())) }
        },
    }
}

/// Makes the form that ends the back-off of `host`. The page at `path` receives it and
/// shows the outcome.
pub(super) fn release_form(visit: &Visit, host: &str, path: &str) -> Markup {
    html! {
        // Folded, so that one wrong click does not end a back-off.
        details class="release" {
            summary { "End it" }
            form method="post" action=(visit.link(path)) {
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

/// Lists the `hosts` that make requests wait at the time `now`, for the page at `path`.
pub(super) fn delaying_hosts(
    visit: &Visit,
    hosts: &[HostPace],
    now: Timestamp,
    path: &str,
) -> Markup {
    html! {
        h2 { "Hosts in back-off or with a queue" }
        @if hosts.is_empty() { p class="small" { "None now." } } @else {
            div class="scroll" {
                table class="cards" {
                    caption { "Now, those in back-off first" }
                    thead {
                        tr {
                            th scope="col" { "host" }
                            th scope="col" { "back-off" }
                            th scope="col" class="n" { "waiting" }
                        }
                    }
                    tbody {
                        @for host in hosts {
                            tr {
                                th scope="row" { (host_link(visit, &host.host)) }
                                td data-label="back-off" {
                                    @match host.backoff_until {
                                        Some(until) => {
                                            (countdown(until, now))
                                            (release_form(visit, &host.host, path))
                                        }
                                        None => { "–" }
                                    }
                                }
                                td class="n" data-label="waiting" { (number(host.queued.into())) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Shows the time from `now` to `until`. The script counts it down.
fn countdown(until: Timestamp, now: Timestamp) -> Markup {
    html! {
        span data-until=(until.to_string()) title=(until.strftime("%Y-%m-%d %H:%M:%S UTC")) {
            "ends in " (length_text(until.duration_since(now)))
        }
    }
}

/// Writes a duration in its two largest units, rounded up to a second: `4 min 10 s`.
pub(super) fn length_text(length: SignedDuration) -> String {
    let seconds = length.as_secs() + i64::from(0 < length.subsec_nanos());
    let units = [("days", 86_400), ("h", 3600), ("min", 60), ("s", 1)];
    let mut rest = seconds.max(0);
    let mut texts = Vec::new();
    for (unit, size) in units {
        let count = rest / size;
        rest %= size;
        if 0 < count {
            texts.push(match (unit, count) {
                ("days", 1) => "1 day".to_owned(),
                _ => format!("{count} {unit}"),
            });
        }
    }
    texts.truncate(2);
    match texts.is_empty() {
        true => "0 s".to_owned(),
        false => texts.join(" "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours.
    #[test]
    fn a_length_has_its_two_largest_units() {
        for (millis, text) in [
            (-1, "0 s"),
            (1, "1 s"),
            (249_001, "4 min 10 s"),
            (3_600_000, "1 h"),
            (93_780_000, "1 day 2 h"),
        ] {
            let length = SignedDuration::from_millis(millis);
            assert_eq!(length_text(length), text, "{millis}");
        }
    }
}
