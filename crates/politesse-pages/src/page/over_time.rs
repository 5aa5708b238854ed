//! Chart of requests over time: a bar for each hour, or for several hours if there
//! would be too many bars.
//!
//! Does not know what the parts of a bar count.

use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};

use super::charts::{ChartPart, ChartUsage, TimeBar, TimeChart};

/// Seconds of an hour.
const HOUR_SECONDS: i64 = 3600;

/// Maximum number of bars: more would be too thin to tell apart.
const BARS_MAX: i64 = 100;

/// Hours that a bar may cover: parts of a day, or days.
const BAR_HOURS: [i64; 9] = [1, 3, 6, 12, 24, 48, 168, 720, 8760];

/// Requests of an hour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HourCounts {
    /// Hours since 1970.
    pub hour: i64,
    /// Counts, in the order of the parts of the chart.
    pub counts: Vec<u64>,
}

/// Time span of a chart. If an end is unknown, the chart begins or ends with the
/// requests.
#[derive(Debug, Clone, Copy, Default)]
pub struct ChartRange {
    /// Beginning.
    pub from: Option<Timestamp>,
    /// End, exclusive.
    pub until: Option<Timestamp>,
}

/// Draws the requests over time, from hours in order. Bars cover all of `range`,
/// including times without requests.
pub fn over_time(parts: &[ChartPart], hours: &[HourCounts], range: ChartRange) -> Markup {
    let (Some(first), Some(last)) = (hours.first(), hours.last()) else {
        return html! {};
    };
    let hour_of = |at: Timestamp| at.as_second().div_euclid(HOUR_SECONDS);
    // An end on the hour belongs to the hour before.
    let end = range
        .until
        .map(|until| hour_of(until - SignedDuration::from_micros(1)));
    let last_hour = end.map_or(last.hour, |end| end.max(last.hour));
    let first_hour = range
        .from
        .map_or(first.hour, |from| hour_of(from).min(first.hour));
    let span = last_hour - first_hour + 1;
    let fits = |hours: &&i64| span <= BARS_MAX * **hours;
    // The shortest step with which all bars fit on the page.
    let step = BAR_HOURS
        .iter()
        .find(fits)
        .copied()
        .unwrap_or(span / BARS_MAX + 1);
    // Bars begin at round times, so that two reports can be compared.
    let begin = first_hour - first_hour.rem_euclid(step);
    let mut bars: Vec<TimeBar> = Vec::new();
    let mut rest = hours;
    for at in 0..=(last_hour - begin) / step {
        let end = begin + (at + 1) * step;
        // Hours are in order, so each is visited once.
        let (within, behind) = rest.split_at(rest.partition_point(|entry| entry.hour < end));
        rest = behind;
        let mut counts = vec![0; parts.len()];
        for (sum, count) in within
            .iter()
            .flat_map(|entry| entry.counts.iter().enumerate())
        {
            if let Some(found) = counts.get_mut(sum) {
                *found += count;
            }
        }
        let time = hour_begin(begin + at * step);
        // A bar of a day or more has no hour of its own.
        let form = if step < 24 { "%m-%d %H:%M" } else { "%Y-%m-%d" };
        let label = time.strftime(form).to_string();
        bars.push(TimeBar {
            time: label.clone(),
            label,
            counts,
        });
    }
    let each = match step {
        1 => "each hour".to_owned(),
        24 => "each day".to_owned(),
        hours if hours < 24 => format!("every {hours} hours"),
        hours => format!("every {} days", hours / 24),
    };
    let chart = TimeChart {
        title: "Requests over time",
        parts,
        bars: &bars,
        usage: ChartUsage::Still,
    };
    html! {
        h2 { "Requests " (each) }
        (chart.html())
        p class="small" {
            "A request is one attempt to fetch an address. Times are UTC."
        }
    }
}

/// Returns the beginning of an hour since 1970.
pub fn hour_begin(hour: i64) -> Timestamp {
    Timestamp::from_second(hour.saturating_mul(HOUR_SECONDS)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours: every request is in exactly one bar, for any time span.
    #[test]
    fn every_request_is_in_one_bar_for_any_span() {
        let parts = [ChartPart {
            name: "sent",
            class: "sent",
        }];
        for (last, step) in [
            (0, "each hour"),
            (99, "each hour"),
            (100, "every 3 hours"),
            (2399, "each day"),
            (1_000_000, "every"),
        ] {
            let hours: Vec<_> = [0, last / 2, last]
                .map(|hour| HourCounts {
                    hour,
                    counts: vec![7],
                })
                .into();
            let page = over_time(&parts, &hours, ChartRange::default()).0;
            assert!(page.contains(&format!("Requests {step}")), "{last}: {page}");
            assert!(page.contains("sent: 21"), "{last}: {page}");
        }
        let nothing = over_time(&parts, &[], ChartRange::default());
        assert_eq!(nothing.0, "");
    }

    // Ours: a report about a day shows the whole day, regardless of when its requests
    // came.
    #[test]
    fn bars_cover_the_whole_requested_span() {
        let hours = [HourCounts {
            hour: 30,
            counts: vec![7],
        }];
        let range = ChartRange {
            from: Some(hour_begin(24)),
            until: Some(hour_begin(48)),
        };
        let parts = [ChartPart {
            name: "sent",
            class: "sent",
        }];
        let page = over_time(&parts, &hours, range).0;
        assert_eq!(page.matches("<title>").count(), 24, "{page}");
        assert!(page.contains("<title>01-02 23:00: </title>"), "{page}");
        assert!(
            page.contains("<title>01-02 06:00: 7 sent</title>"),
            "{page}"
        );
    }
}
