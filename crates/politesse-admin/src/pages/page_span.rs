//! Time that a page is about: whole minutes, hours or days up to now, as the address asks.
//!
//! Does not know what is counted in it.

use std::ops::RangeInclusive;

use axum::http::Uri;
use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};
use serde::Serialize;

use crate::api::query_value;
use crate::filter_query::SPANS;
use crate::layout::time_in_text;
use crate::visit::Visit;

/// Hours without a choice.
const USUAL_HOURS: u16 = 24;

/// Length of the buckets in which a page counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum BucketStep {
    /// A minute.
    Minute,
    /// An hour.
    Hour,
    /// A day, from midnight in UTC.
    Day,
}

impl BucketStep {
    fn seconds(self) -> i64 {
        match self {
            Self::Minute => 60,
            Self::Hour => 3600,
            Self::Day => 24 * 3600,
        }
    }

    /// Returns the noun for a bucket.
    pub(super) fn noun(self) -> &'static str {
        match self {
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
        }
    }

    /// Returns the number, since 1970, of the bucket in which `at` is.
    pub(super) fn number(self, at: Timestamp) -> i64 {
        at.as_second().div_euclid(self.seconds())
    }

    /// Returns the begin of a bucket.
    pub(super) fn begin(self, number: i64) -> Timestamp {
        Timestamp::from_second(number.saturating_mul(self.seconds())).unwrap_or_default()
    }
}

/// Time that a page is about. It begins with a whole bucket and ends now, so that the
/// newest bucket is not over yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct PageSpan {
    /// Hours that were asked for.
    pub(super) hours: u16,
    pub(super) from: Timestamp,
    pub(super) until: Timestamp,
    pub(super) step: BucketStep,
}

impl PageSpan {
    /// Makes the span of `hours` up to `until`: sixty minutes, 24 hours, or days.
    pub(super) fn new(hours: u16, until: Timestamp) -> Self {
        let (step, count) = match hours {
            1 => (BucketStep::Minute, 60),
            24 => (BucketStep::Hour, 24),
            _ => (BucketStep::Day, i64::from(hours / 24)),
        };
        Self {
            hours,
            from: step.begin(step.number(until) - count + 1),
            until,
            step,
        }
    }

    /// Returns the time before, of equal length, by its begin.
    pub(super) fn before(&self) -> Timestamp {
        let length = self.until.duration_since(self.from);
        self.from
            .checked_sub(length)
            .unwrap_or(Timestamp::UNIX_EPOCH)
    }

    /// Returns the length.
    pub(super) fn length(&self) -> SignedDuration {
        self.until.duration_since(self.from)
    }

    /// Returns the numbers of the buckets.
    pub(super) fn buckets(&self) -> RangeInclusive<i64> {
        self.step.number(self.from)..=self.step.number(self.until)
    }
}

/// Reads the hours that an address asks for.
pub(super) fn hours_asked(uri: &Uri) -> u16 {
    let query = uri.query().unwrap_or_default();
    let hours = query_value(query, "hours").and_then(|hours| hours.parse().ok());
    hours
        .filter(|hours| SPANS.contains(hours))
        .unwrap_or(USUAL_HOURS)
}

/// Makes the links to a page by the spans that can be chosen.
pub(super) fn span_links(visit: &Visit, path: &str, span: &PageSpan) -> Markup {
    html! {
        p class="actions" {
            @for hours in SPANS {
                @let is_current = (hours == span.hours).then_some("true");
                @let mark = if path.contains('?') { '&' } else { '?' };
                a href=(visit.link(&format!("{path}{mark}hours={hours}")))
                    aria-current=[is_current] { (span_text(hours)) }
            }
            span class="small" {
                (time_in_text(span.from)) " to " (time_in_text(span.until))
            }
        }
    }
}

fn span_text(hours: u16) -> String {
    match hours {
        1 => "last hour".to_owned(),
        hours if hours <= 24 => format!("last {hours} hours"),
        hours => format!("last {} days", hours / 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours.
    #[test]
    fn a_span_has_whole_buckets_up_to_now() {
        let now = "2026-11-29T20:15:30Z".parse().unwrap();
        for (hours, from, buckets) in [
            (1, "2026-11-29T19:16:00Z", 60),
            (24, "2026-11-28T21:00:00Z", 24),
            (168, "2026-11-23T00:00:00Z", 7),
            (720, "2026-10-31T00:00:00Z", 30),
        ] {
            let span = PageSpan::new(hours, now);
            assert_eq!(span.from.to_string(), from);
            assert_eq!(span.buckets().count(), buckets, "{hours}");
            assert_eq!(span.from.duration_since(span.before()), span.length());
        }
    }
}
