//! `audit redact`: removes client and URL from decisions, through the running proxy or
//! in its place.
//!
//! Works in steps: each answer says where the next step begins, so that neither a
//! request to the proxy nor its record is held for long.

use clap::Args;
use jiff::Timestamp;

use super::arguments::time;
use super::order::{BY_COMMAND, ask_running, carry_out, reason, reason_of_user};
use crate::cli::output::{Exit, Usage, print};
use crate::config::Settings;
use politesse_record::filter::{InvalidUrlPattern, UrlPattern};
use politesse_record::{AuditLog, RedactionRequest, RedactionStep};

/// Arguments of `audit redact`.
#[derive(Debug, Args)]
pub(crate) struct RedactArguments {
    /// A URL, or the beginning of URLs followed by *.
    #[arg(long, value_parser = url)]
    url: Option<String>,
    /// Address of a client, as in `audit list --json`.
    #[arg(long, value_name = "ADDRESS")]
    client: Option<String>,
    /// Numbers of decisions.
    #[arg(long, value_name = "N", num_args = 1..)]
    seq: Vec<u64>,
    /// Decisions at or after this time.
    #[arg(long, value_name = "TIME", value_parser = time)]
    from: Option<Timestamp>,
    /// Decisions before this time.
    #[arg(long, value_name = "TIME", value_parser = time)]
    until: Option<Timestamp>,
    /// Reason, which stays on record with your user name.
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    why: String,
    /// Redacts the decisions; otherwise they are only counted.
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
            reason: reason_of_user(&self.why),
            after: 0,
            is_trial: !self.yes,
        }
    }
}

/// Reads a URL, or the beginning of one; any other text would match nothing.
fn url(text: &str) -> Result<String, InvalidUrlPattern> {
    text.parse::<UrlPattern>().map(|_| text.to_owned())
}

/// Redacts the selected decisions, or counts them.
pub(super) fn redact(asked: &RedactArguments, settings: &Settings) -> anyhow::Result<Exit> {
    let request = asked.request();
    if !request.has_condition() {
        let text = "no decisions are selected: --url, --client or --seq is wanted";
        return Err(Usage::Arguments(text.to_owned()).into());
    }
    let RedactionStep { count, damaged, .. } = carry_out(
        settings,
        async |log| redact_stopped(log, &request).await,
        || redact_running(settings, &request),
    )?;
    if !asked.yes {
        return print(&format!(
            "decisions that would be redacted: {count}; --yes redacts them\n"
        ));
    }
    let printed = print(&format!("decisions redacted: {count}\n"))?;
    if 0 < damaged {
        anyhow::bail!(
            "{damaged} decisions are not as they were written, and stay unchanged: see the \
             findings of `politesse audit verify`"
        );
    }
    Ok(printed)
}

/// Takes the steps of a redaction in turn, and sums up their results.
async fn redact_stopped(
    log: &AuditLog,
    request: &RedactionRequest,
) -> anyhow::Result<RedactionStep> {
    let mut next = request.clone();
    let mut sum = RedactionStep::default();
    loop {
        let step = log.redact(next.clone(), BY_COMMAND.to_owned()).await?;
        sum.add(step);
        match step.after {
            Some(after) => next.after = after,
            None => return Ok(sum),
        }
    }
}

/// Makes the running proxy redact.
fn redact_running(
    settings: &Settings,
    request: &RedactionRequest,
) -> anyhow::Result<RedactionStep> {
    let mut next = request.clone();
    let mut sum = RedactionStep::default();
    loop {
        let step: RedactionStep = ask_running(settings, "redact", &next)?;
        sum.add(step);
        match step.after {
            Some(after) => next.after = after,
            None => return Ok(sum),
        }
    }
}
