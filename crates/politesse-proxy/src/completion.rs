//! Completes the row of an exchange in the audit record with its outcome, and logs it.
//! Both happen once, when the response has ended.
//!
//! Does not know how the end of a response is detected; `body` does.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, StatusCode};
use tokio::time::Instant;

use super::socket::ConnectionActivity;
use politesse_base::clock;
use politesse_decision::decide::Evidence;
use politesse_decision::outcome::EndingClass;
use politesse_decision::record::{ExchangeEnd, Seen, StoredDenial};
use politesse_decision::withholding::Withholding;
use politesse_directives::Quotations;
use politesse_record::{AuditError, RecordEnding};

/// Log target of the line for each exchange, enabled by `log.exchanges`.
pub const EXCHANGES: &str = "politesse::exchanges";

/// Statements of a response about its own use, for its row in the audit record. Trailers
/// may add quotations.
#[derive(Debug)]
pub struct AnnotationSummary {
    /// Value of the annotation field, with all preferences.
    pub directives: String,
    /// Quoted statements from which `directives` follows.
    pub quotations: Quotations,
    /// Denials of the crawler's purposes that follow from these statements.
    pub denials: Vec<StoredDenial>,
}

/// Outcome of an exchange in progress. Once the decision has a row in the audit record,
/// [`RecordCompletion::end`] or the drop completes that row.
#[derive(Debug)]
pub struct RecordCompletion {
    /// Start of the exchange.
    started: Instant,
    /// Row to complete, and the evidence in it.
    pub(super) row: Option<(RecordEnding, Arc<Evidence>)>,
    /// Status sent to the client.
    pub(super) status: Option<u16>,
    /// Number of times that the request was handed to a connection.
    pub(super) sent: u32,
    /// Whether the site answered with a bot challenge.
    pub(super) is_challenge: bool,
    /// Statements of the response about its own use.
    pub(super) summary: Option<AnnotationSummary>,
    /// Bytes of the body passed on so far.
    pub(super) bytes: u64,
    /// Length of the body, if known.
    pub(super) expected_bytes: Option<u64>,
    /// Activity of the client's connection, which knows why a response is dropped.
    connection: Arc<ConnectionActivity>,
}

impl RecordCompletion {
    /// Starts an exchange on the connection of `activity`. It has no row yet.
    pub fn start(activity: &Arc<ConnectionActivity>) -> Self {
        Self {
            started: clock::instant(),
            row: None,
            status: None,
            sent: 0,
            is_challenge: false,
            summary: None,
            bytes: 0,
            expected_bytes: None,
            connection: Arc::clone(activity),
        }
    }

    /// Returns the time since the exchange started.
    pub fn elapsed(&self) -> Duration {
        clock::instant().duration_since(self.started)
    }

    /// Reports whether all expected bytes were passed on. hyper does not poll a body
    /// beyond its length, so it never sees the end.
    pub(super) fn is_complete(&self) -> bool {
        self.expected_bytes == Some(self.bytes)
    }

    /// Returns the class of the ending if the exchange ends with `error`.
    pub(super) fn class(&self, error: Option<&'static str>) -> EndingClass {
        EndingClass::of(self.status, self.error_term(error), self.sent.into())
    }

    /// Returns the error term of the ending if the exchange ends with `error`. A bot
    /// challenge takes precedence over an incomplete page, and withholding takes
    /// precedence over both.
    fn error_term(&self, error: Option<&'static str>) -> Option<&'static str> {
        match (self.is_challenge, error) {
            (true, error) if error != Some(Withholding::ERROR) => Some(EndingClass::BOT_CHALLENGE),
            (_, error) => error,
        }
    }

    /// Quotes the trailers named `name`, which origins may not use.
    pub(super) fn quote_forged(&mut self, trailers: &HeaderMap, name: &HeaderName) {
        if let Some(summary) = &mut self.summary {
            for value in trailers.get_all(name) {
                summary.quotations.add_forged(name, value);
            }
        }
    }

    /// Completes the row of a request that is retried. The next decision has its own row.
    pub fn end_before_retry(&mut self, status: StatusCode) {
        self.status = Some(status.as_u16());
        self.end(Some("retried"));
        (self.status, self.sent) = (None, 0);
    }

    /// Completes the row of a withheld response, and waits until it is on disk.
    ///
    /// # Errors
    ///
    /// The errors of [`RecordEnding::complete_on_disk`].
    pub async fn end_withheld(&mut self) -> Result<(), AuditError> {
        match self.take_end(Some(Withholding::ERROR)) {
            Some((row, end)) => row.complete_on_disk(end).await,
            None => Ok(()),
        }
    }

    /// Completes the row unless that was done before; `error` as in [`ExchangeEnd`].
    pub fn end(&mut self, error: Option<&'static str>) {
        if let Some((row, end)) = self.take_end(error) {
            row.complete(end);
        }
    }

    /// Takes the row with its ending, and logs the ending. Returns `None` after the first
    /// call, so that a drop after an explicit end writes nothing.
    fn take_end(&mut self, error: Option<&'static str>) -> Option<(RecordEnding, ExchangeEnd)> {
        let (row, evidence) = self.row.take()?;
        let term = self.error_term(error);
        let (inquiry, ruling) = (&evidence.inquiry, &evidence.ruling);
        tracing::info!(
            target: EXCHANGES,
            seq = row.seq(),
            method = inquiry.method,
            url = %inquiry.target,
            crawler = inquiry.crawler.token().map(tracing::field::display),
            verdict = ruling.verdict.as_str(),
            reason = ruling.reason.as_str(),
            overridden = ruling.is_overridden().then_some(true),
            reported = evidence.is_reported().then_some(true),
            status = self.status,
            bytes = self.bytes,
            ms = u64::try_from(self.elapsed().as_millis()).unwrap_or(u64::MAX),
            error = term,
            "exchange"
        );
        let end = ExchangeEnd {
            status: self.status,
            sent: self.sent,
            seen: self.summary.take().map(seen),
            bytes: self.bytes,
            error: term,
        };
        Some((row, end))
    }
}

impl Drop for RecordCompletion {
    fn drop(&mut self) {
        self.end(Some(self.connection.drop_reason()));
    }
}

fn seen(summary: AnnotationSummary) -> Seen {
    let quotations = summary.quotations;
    Seen {
        directives: summary.directives,
        said: (!quotations.is_empty()).then(|| quotations.json()),
        denials: summary.denials,
    }
}
