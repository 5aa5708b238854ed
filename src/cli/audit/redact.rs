//! `audit redact`: takes client and URL away from decisions, by the proxy that runs
//! or in its place.
//!
//! Goes step by step: each answer says where the next one begins, so that neither a
//! request to the proxy nor its record is held for long.

use clap::Args;
use http::Method;
use jiff::Timestamp;
use tokio_util::task::TaskTracker;

use super::arguments::time;
use crate::admin::{REASON_BYTES_MAX, is_reason};
use crate::audit::filter::{InvalidUrlPattern, UrlPattern};
use crate::audit::{AuditError, AuditLog, Options, RedactionRequest, RedactionStep, check_in_use};
use crate::cli::admin_api::{ApiError, ApiRequest, ask, escape};
use crate::cli::output::{Exit, Usage, print};
use crate::cli::process::runtime;
use crate::config::Settings;

/// Arguments of `audit redact`.
#[derive(Debug, Args)]
pub(crate) struct RedactArguments {
    /// A URL, or with * at its end all that begin so.
    #[arg(long, value_parser = url)]
    url: Option<String>,
    /// A client, by its address as `audit list --json` has it.
    #[arg(long, value_name = "ADDRESS")]
    client: Option<String>,
    /// Decisions by their numbers.
    #[arg(long, value_name = "N", num_args = 1..)]
    seq: Vec<u64>,
    /// Decisions from this time on.
    #[arg(long, value_name = "TIME", value_parser = time)]
    from: Option<Timestamp>,
    /// Decisions before this time.
    #[arg(long, value_name = "TIME", value_parser = time)]
    until: Option<Timestamp>,
    /// Reason, which stays on record.
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    why: String,
    /// Redacts; without it the decisions are only counted.
    #[arg(long)]
    yes: bool,
}

impl RedactArguments {
    fn request(&self) -> RedactionRequest {
        let micros = |time: Option<Timestamp>| time.map(Timestamp::as_microsecond);
        RedactionRequest {
            url: self.url.clone(),
            client: self.client.clone(),
            numbers: self.seq.clone(),
            from_us: micros(self.from),
            until_us: micros(self.until),
            why: self.why.clone(),
            after: 0,
            is_trial: !self.yes,
        }
    }
}

/// Reads a URL, or the beginning of one: another text would choose nothing.
fn url(text: &str) -> Result<String, InvalidUrlPattern> {
    text.parse::<UrlPattern>().map(|_| text.to_owned())
}

fn reason(text: &str) -> Result<String, String> {
    match is_reason(text) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "one line of 1 to {REASON_BYTES_MAX} bytes is wanted"
        )),
    }
}

/// Redacts the decisions that are asked for, or counts them.
pub(super) fn redact(asked: &RedactArguments, settings: &Settings) -> anyhow::Result<Exit> {
    let request = asked.request();
    if !request.has_condition() {
        let text = "which decisions: --url, --client or --seq is wanted";
        return Err(Usage::Arguments(text.to_owned()).into());
    }
    let stopped = runtime()?.block_on(redact_stopped(&settings.audit, &request));
    let done = match stopped {
        Err(AuditError::Locked(_)) => {
            check_in_use(&settings.audit.path)?;
            redact_running(settings, &request)?
        }
        stopped => stopped?,
    };
    let RedactionStep { count, damaged, .. } = done;
    if !asked.yes {
        return print(&format!(
            "decisions that would be redacted: {count}; --yes redacts them\n"
        ));
    }
    let printed = print(&format!("decisions redacted: {count}\n"))?;
    if 0 < damaged {
        anyhow::bail!(
            "{damaged} decisions are not as they were written, and stay as they are: see what \
             `politesse audit verify` finds"
        );
    }
    Ok(printed)
}

/// Redacts in a record to which no proxy writes, and waits until nothing is left of
/// the values.
async fn redact_stopped(
    options: &Options,
    request: &RedactionRequest,
) -> Result<RedactionStep, AuditError> {
    let tracker = TaskTracker::new();
    let log = AuditLog::open_for_command(options, &tracker)?;
    // Closed in any case: else the lock would last as long as this process.
    let redaction = async {
        let mut next = request.clone();
        let mut sum = RedactionStep::default();
        loop {
            let step = log.redact(next.clone(), "command".to_owned()).await?;
            sum.add(step);
            match step.after {
                Some(after) => next.after = after,
                None => break,
            }
        }
        log.settled().await?;
        Ok(sum)
    };
    let sum = redaction.await;
    log.close();
    tracker.close();
    tracker.wait().await;
    sum
}

/// Has the proxy that runs redact.
fn redact_running(
    settings: &Settings,
    request: &RedactionRequest,
) -> anyhow::Result<RedactionStep> {
    let mut next = request.clone();
    let mut sum = RedactionStep::default();
    loop {
        let json = serde_json::to_string(&next)?;
        let answer = ask(
            settings,
            &ApiRequest {
                method: Method::POST,
                target: format!("/api/v1/audit/redact?request={}", escape(&json)),
            },
        )?;
        let foreign = |error| ApiError::Foreign(settings.admin.listen, error);
        let step: RedactionStep = serde_json::from_slice(&answer).map_err(foreign)?;
        sum.add(step);
        match step.after {
            Some(after) => next.after = after,
            None => return Ok(sum),
        }
    }
}
