//! Summary of a command's requests, as lines for users: how many were allowed, refused
//! and put off, and how many bypassed the proxy.
//!
//! Does not know where the counts come from.

use std::time::Duration;

use politesse_base::command_line::command;
use politesse_pages::page::words::counted;
use politesse_proxy::tally::{TallyAction, Totals};

/// Count of the requests that bypassed the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bypass {
    /// Unknown: the command could reach everything that this machine reaches.
    Unknown,
    /// Number of attempts, all of which failed; `None` if they could not be counted.
    Counted(Option<u64>),
}

/// Returns the lines printed at the end of a run. `totals` are absent if the proxy
/// could not be asked for them.
pub(super) fn lines(totals: Option<&Totals>, bypass: Bypass) -> Vec<String> {
    let mut lines = match totals {
        Some(totals) => counts(totals),
        None => vec![format!(
            "no counts: the proxy stopped before the command; its decisions: {}",
            command("audit list")
        )],
    };
    match bypass {
        Bypass::Unknown => lines.extend(totals.and_then(warning_of_silence)),
        Bypass::Counted(Some(count)) => lines.push(format!(
            "{count} {} to connect or look up a name went round the proxy, and reached nothing",
            if count == 1 { "attempt" } else { "attempts" }
        )),
        Bypass::Counted(None) => lines.push(
            "attempts to go round the proxy reached nothing, and could not be counted".to_owned(),
        ),
    }
    lines
}

fn counts(totals: &Totals) -> Vec<String> {
    let seconds = |ms: u64| Duration::from_millis(ms).as_secs_f64();
    let some = |count: u64, what: &str| match count {
        0 => String::new(),
        count => format!(", {count} {what}"),
    };
    let mut lines = vec![format!(
        "{} asked, {} allowed, {} refused{}{}{}{}; waited {:.1} s in all, {:.1} s at most",
        totals.asked(),
        totals.allowed,
        totals.refused,
        some(totals.put_off, "put off"),
        some(totals.reported, "reported (enforcement.mode)"),
        some(totals.withheld, "withheld"),
        some(totals.refused_by_site, "refused by the site"),
        seconds(totals.wait_ms),
        seconds(totals.longest_wait_ms)
    )];
    lines.extend(totals.reasons.iter().map(|reason| {
        let done = match reason.action {
            TallyAction::PutOff => "put off",
            TallyAction::Refuse => "refused",
            TallyAction::Report => "would refuse",
        };
        format!("{done} {} × {}", reason.count, reason.reason)
    }));
    if totals.further_reasons > 0 {
        lines.push(format!(
            "and by {} more rules: {}",
            totals.further_reasons,
            command("audit list --verdict disallow")
        ));
    }
    if totals.urls_put_off > 0 {
        let urls = counted(totals.urls_put_off, "URL");
        lines.push(format!(
            "warning: {urls} ended in 429 (Too Many Requests): the command gave up before it was \
             their turn. The manual shows how a client retries after Retry-After (docs/clients.md, \
             \"Pages that are put off\")"
        ));
    }
    // This explains certificate errors that the command reports.
    if totals.handshakes_failed > 0 {
        lines.push(format!(
            "warning: {} TLS connections were broken off by the command: it does not trust the \
             certificate of this proxy (`{}`)",
            totals.handshakes_failed,
            command("ca show")
        ));
    }
    lines
}

/// Returns a warning with a likely reason if the command sent no request. Used only if
/// the command was free to bypass the proxy.
fn warning_of_silence(totals: &Totals) -> Option<String> {
    // A failed handshake has its own warning, and shows that the client found the
    // proxy.
    if totals.asked() > 0 || totals.handshakes_failed > 0 {
        return None;
    }
    let text = if totals.connections > 0 {
        "warning: the command connected to the proxy, and sent no request that the proxy could \
         decide"
    } else {
        "warning: nothing came through the proxy. Some clients ignore the variables that name it \
         (fetch of Node.js before 24, Crawlee, got, Mechanize, HTTrack over HTTPS): what they \
         fetched went round it, unseen. `politesse run --sealed -- CMD` leaves them no other way"
    };
    Some(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use politesse_proxy::tally::ReasonCount;

    // ours: requests that the site refuses were allowed and sent.
    #[test]
    fn requests_sent_without_a_usable_response_are_listed() {
        let totals = Totals {
            allowed: 5,
            withheld: 1,
            refused_by_site: 2,
            ..Totals::default()
        };
        assert_eq!(
            lines(Some(&totals), Bypass::Unknown),
            [
                "5 asked, 5 allowed, 0 refused, 1 withheld, 2 refused by the site; waited 0.0 s in all, 0.0 s at most"
            ]
        );
    }

    // ours: requests put off are neither allowed nor refused, and are not counted under
    // the rule that allowed them.
    #[test]
    fn requests_put_off_are_counted_by_reason() {
        let totals = Totals {
            allowed: 1,
            put_off: 2,
            wait_ms: 4500,
            longest_wait_ms: 1500,
            reasons: vec![ReasonCount {
                action: TallyAction::PutOff,
                reason: "backoff".to_owned(),
                count: 2,
            }],
            ..Totals::default()
        };
        assert_eq!(
            lines(Some(&totals), Bypass::Unknown),
            [
                "3 asked, 1 allowed, 0 refused, 2 put off; waited 4.5 s in all, 1.5 s at most",
                "put off 2 × backoff",
            ]
        );
    }

    // ours: a client that ignores the variables fetches silently.
    #[test]
    fn a_run_without_requests_warns_and_names_the_seal() {
        let told = lines(Some(&Totals::default()), Bypass::Unknown).join("\n");
        assert!(
            told.contains("warning") && told.contains("--sealed"),
            "{told}"
        );
        let sealed = lines(Some(&Totals::default()), Bypass::Counted(Some(5)));
        assert_eq!(
            sealed[1],
            "5 attempts to connect or look up a name went round the proxy, and reached nothing"
        );
        assert_eq!(sealed.len(), 2);
    }

    // ours: a client that does not trust the certificate did find the proxy.
    #[test]
    fn an_untrusted_certificate_is_reported_as_such() {
        let totals = Totals {
            connections: 1,
            handshakes_failed: 1,
            ..Totals::default()
        };
        let told = lines(Some(&totals), Bypass::Unknown).join("\n");
        assert!(told.contains("does not trust"), "{told}");
        assert!(!told.contains("--sealed"), "{told}");
    }
}
