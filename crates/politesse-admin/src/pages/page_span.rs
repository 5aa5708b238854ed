//! Time span of a page: whole minutes, hours or days up to now, as selected by the
//! address.
//!
//! Does not know what is counted.

use std::ops::RangeInclusive;

use axum::http::Uri;
use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};
use serde::Serialize;

use crate::api::query_value;
use crate::filter_query::SPANS;
use crate::layout::time_in_text;
use crate::visit::Visit;

/// Default number of hours.
const USUAL_HOURS: u16 = 24;

/// Length of the buckets of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum BucketStep {
    /// A minute.
    Minute,
    /// An hour.
    Hour,
    /// A day, beginning at midnight UTC.
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

    /// Returns the number, since 1970, of the bucket that contains `at`.
    pub(super) fn number(self, at: Timestamp) -> i64 {
        at.as_second().div_euclid(self.seconds())
    }

    /// Returns the beginning of a bucket.
    pub(super) fn begin(self, number: i64) -> Timestamp {
        Timestamp::from_second(number.saturating_mul(self.seconds())).unwrap_or_default()
    }
}

/// Time span of a page. It begins with a whole bucket and ends now, so the newest
/// bucket is not over yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct PageSpan {
    /// Number of hours requested.
    pub(super) hours: u16,
    pub(super) from: Timestamp,
    pub(super) until: Timestamp,
    /// Length of the buckets.
    pub(super) step: BucketStep,
}

impl PageSpan {
    /// Makes the span of `hours` up to `until`: sixty minutes, 24 hours, or whole days.
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

    /// Returns the beginning of the preceding span of equal length.
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

/// Reads the number of hours that an address selects.
pub(super) fn hours_asked(uri: &Uri) -> u16 {
    let query = uri.query().unwrap_or_default();
    let hours = query_value(query, "hours").and_then(|hours| hours.parse().ok());
    hours
        .filter(|hours| SPANS.contains(hours))
        .unwrap_or(USUAL_HOURS)
}

/// Makes links to the page for each available span.
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
