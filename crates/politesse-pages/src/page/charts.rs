//! Charts on a page: labelled bars, with parts in the order of the legend. Bars are
//! SVG, and text keeps its usual size at any width.
//!
//! Does not know what the bars count.

use maud::{Markup, html};

use super::words::{number, shown};
use politesse_decision::class::DecisionClass;

/// Height of the chart over time, in pixels. It is as wide as the page: horizontal
/// positions are percentages, so that text keeps its size on a phone.
const HEIGHT: u64 = 220;
/// Room for the times below the bars, and for half a number above them.
const BELOW: u64 = 24;
const ABOVE: u64 = 8;
/// Horizontal lines of the chart, not counting the lowest.
const LINES: u64 = 4;
/// Width of the chart, in hundredths of a percent.
const WIDTH: u64 = 10_000;
/// Maximum width of a bar, so that a single bar does not fill the chart.
const BAR_MAX: u64 = 800;
/// Number of times written below the chart. Every second one is left out on a phone.
const TIMES: usize = 6;

/// Part of the bars of a chart: its name in the legend, and its colour.
#[derive(Debug, Clone, Copy)]
pub struct ChartPart {
    /// Name in the legend.
    pub name: &'static str,
    /// CSS class for its colour.
    pub class: &'static str,
}

impl ChartPart {
    /// Returns the name and the colour of a class of decisions, the same on every page.
    pub fn of_class(class: DecisionClass) -> Self {
        let (name, class) = match class {
            DecisionClass::Sent => ("sent", "sent"),
            DecisionClass::Rule => ("refused by a rule", "refused"),
            DecisionClass::Operator => ("refused by the operator", "operator"),
            DecisionClass::Preference => ("refused by a preference", "preference"),
            DecisionClass::Withheld => ("withheld", "withheld"),
            DecisionClass::Unreachable => ("robots.txt unreachable", "unreachable"),
            DecisionClass::PutOff => ("put off", "later"),
            DecisionClass::RefusedBySite => ("refused by the site", "site"),
            // Messages on pages already use the CSS class `error`.
            DecisionClass::Error => ("errors", "failed"),
        };
        Self { name, class }
    }
}

/// Bar of the chart over time.
#[derive(Debug, Clone)]
pub struct TimeBar {
    /// Short form of its time, shown below it.
    pub label: String,
    /// Its time, shown when the reader points at the bar.
    pub time: String,
    /// Counts, in the order of the legend.
    pub counts: Vec<u64>,
}

/// Chart over time: bars with stacked parts.
#[derive(Debug, Clone)]
pub struct TimeChart<'a> {
    /// Title, for readers who cannot see the chart.
    pub title: &'a str,
    /// Parts, in the order of the legend.
    pub parts: &'a [ChartPart],
    /// Bars, the earliest first.
    pub bars: &'a [TimeBar],
    /// Use of the chart.
    pub usage: ChartUsage,
}

/// Use of a chart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChartUsage {
    /// The chart stays as it is.
    Still,
    /// A script adds to the newest bar: the legend has a hidden entry for each part.
    Live,
}

/// Bar of a chart by name.
#[derive(Debug, Clone)]
pub struct NamedBar {
    /// Name at the left.
    pub name: String,
    /// The number.
    pub count: u64,
    /// Text to the right of the bar.
    pub note: String,
}

impl TimeChart<'_> {
    /// Draws the chart with its legend.
    pub fn html(&self) -> Markup {
        let (bars, top) = (self.bars, self.top());
        let inner = HEIGHT - ABOVE - BELOW;
        let label_every = bars.len().div_ceil(TIMES).max(1);
        html! {
            figure {
                svg class="over-time" role="img" aria-label=(self.title) data-top=(top)
                    data-inner=(inner) data-bottom=(HEIGHT - BELOW) {
                    @for line in 0..=LINES {
                        @let count = top * line / LINES;
                        @let y = decimal(tenths(HEIGHT - BELOW) - scaled(count, inner, top));
                        line class="grid" x1="0" x2="100%" y1=(y) y2=(y) {}
                        text class="axis" x="-6" y=(y) dy="0.32em" text-anchor="end" {
                            (number(count))
                        }
                    }
                    @for (at, bar) in bars.iter().enumerate() { (self.bar(at, bar)) }
                    @for (place, at) in (0..bars.len()).step_by(label_every).enumerate() {
                        text.axis.minor[place % 2 == 1] x=(self.place(at)) y=(HEIGHT - 6) {
                            @if let Some(bar) = bars.get(at) { (bar.label) }
                        }
                    }
                }
                (self.legend())
            }
        }
    }

    /// Returns the count at the top of the scale.
    fn top(&self) -> u64 {
        let highest = self.bars.iter().map(|bar| bar.counts.iter().sum()).max();
        round_up(highest.unwrap_or(1))
    }

    /// Returns the left edge of the bar number `at`.
    fn place(&self, at: usize) -> String {
        percents(at as u64 * WIDTH / self.bars.len().max(1) as u64)
    }

    fn bar(&self, at: usize, bar: &TimeBar) -> Markup {
        // Nine tenths of the step, to leave gaps between the bars.
        let width = percents((WIDTH * 9 / 10 / self.bars.len().max(1) as u64).min(BAR_MAX));
        let top = self.top();
        let is_newest = self.usage == ChartUsage::Live && at + 1 == self.bars.len();
        let counts: Vec<_> = bar.counts.iter().map(u64::to_string).collect();
        html! {
            g data-time=[is_newest.then_some(&bar.time)] data-x=[is_newest.then(|| self.place(at))]
                data-width=[is_newest.then_some(&width)]
                data-counts=[is_newest.then(|| counts.join(" "))] {
                title { (bar_title(self.parts, bar)) }
                @for (part, rect) in stacked(bar, top) {
                    @if let Some(part) = self.parts.get(part) {
                        rect class=(part.class) x=(self.place(at)) width=(width)
                            y=(decimal(rect.y)) height=(decimal(rect.height)) {}
                    }
                }
            }
        }
    }

    /// Draws the legend: each part with its sum. A part with a count of zero is left
    /// out, or hidden until it has a count.
    fn legend(&self) -> Markup {
        let sum = |at: usize| -> u64 {
            let counts = self.bars.iter().filter_map(|bar| bar.counts.get(at));
            counts.sum()
        };
        html! {
            figcaption {
                @for (at, part) in self.parts.iter().enumerate() {
                    @if 0 < sum(at) || self.usage == ChartUsage::Live {
                        span class="legend" hidden[sum(at) == 0] data-name=(part.name)
                            data-sum=(sum(at)) {
                            svg class="key" viewBox="0 0 10 10" aria-hidden="true" {
                                rect class=(part.class) width="10" height="10" {}
                            }
                            @if 0 < sum(at) { (part.name) ": " (number(sum(at))) }
                        }
                    }
                }
            }
        }
    }
}

/// Draws a bar for each name, the first at the top.
pub fn named_chart(title: &str, class: &str, bars: &[NamedBar]) -> Markup {
    let highest = bars.iter().map(|bar| bar.count).max().unwrap_or(1).max(1);
    // Even the shortest bar must be visible.
    let width = |count: u64| percents(part_of(count, WIDTH, highest).max(50));
    html! {
        figure {
            ul class="bars" aria-label=(title) {
                @for bar in bars {
                    li {
                        span { (shown(&bar.name, 34)) }
                        span class="small" { (bar.note) }
                        svg aria-hidden="true" {
                            rect class=(class) width=(width(bar.count)) height="100%" {}
                        }
                    }
                }
            }
        }
    }
}

/// Position of a part of a bar, in tenths of the chart's unit.
struct StackedPart {
    /// Distance of the upper edge from the top of the chart.
    y: u64,
    /// Height of the part.
    height: u64,
}

/// Stacks the parts of a bar, the first at the bottom.
fn stacked(bar: &TimeBar, top: u64) -> Vec<(usize, StackedPart)> {
    let height = |count| scaled(count, HEIGHT - ABOVE - BELOW, top);
    let mut below = 0;
    let mut parts = Vec::new();
    for (part, count) in bar.counts.iter().enumerate() {
        let (begin, end) = (height(below), height(below + count));
        below += count;
        if 0 < *count {
            // A single request among thousands must be visible, too.
            let height = (end - begin).max(5);
            let y = tenths(HEIGHT - BELOW).saturating_sub(begin + height);
            parts.push((part, StackedPart { y, height }));
        }
    }
    parts
}

fn bar_title(parts: &[ChartPart], bar: &TimeBar) -> String {
    let counts = parts.iter().zip(&bar.counts);
    let texts: Vec<_> = counts
        .filter(|(_, count)| 0 < **count)
        .map(|(part, count)| format!("{} {}", number(*count), part.name))
        .collect();
    format!("{}: {}", bar.time, texts.join(", "))
}

/// Returns the top of the scale: the smallest of 4, 8, 12, 20, 40, 80, 120, 200 and so
/// on that is at least `count`. Four lines divide each of these into round numbers.
fn round_up(count: u64) -> u64 {
    let mut power: u64 = 1;
    loop {
        for first in [4, 8, 12, 20] {
            let number = power.saturating_mul(first);
            if count <= number || number == u64::MAX {
                return number;
            }
        }
        power = power.saturating_mul(10);
    }
}

/// Scales `count` out of `all` to a part of `length`, in tenths of a unit.
fn scaled(count: u64, length: u64, all: u64) -> u64 {
    part_of(count, tenths(length), all)
}

/// Returns the share of `length` that corresponds to `count` out of `all`.
fn part_of(count: u64, length: u64, all: u64) -> u64 {
    let part = u128::from(count) * u128::from(length) / u128::from(all.max(1));
    u64::try_from(part).unwrap_or_default().min(length)
}

/// Writes hundredths of a percent as a length.
fn percents(hundredths: u64) -> String {
    format!("{}.{:02}%", hundredths / 100, hundredths % 100)
}

fn tenths(units: u64) -> u64 {
    units * 10
}

/// Writes tenths as a decimal number.
fn decimal(tenths: u64) -> String {
    format!("{}.{}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours.
    #[test]
    fn scales_end_at_numbers_that_four_lines_divide() {
        for (count, top) in [
            (0, 4),
            (4, 4),
            (5, 8),
            (9, 12),
            (13, 20),
            (21, 40),
            (4_001, 8_000),
        ] {
            assert_eq!(round_up(count), top, "{count}");
        }
        assert!(u64::MAX / 2 < round_up(u64::MAX));
    }

    // Ours: no two classes look alike.
    #[test]
    fn each_class_has_a_name_and_a_colour_of_its_own() {
        let parts = DecisionClass::ALL.map(ChartPart::of_class);
        for (at, part) in parts.iter().enumerate() {
            let others = parts.iter().skip(at + 1);
            for other in others {
                assert_ne!(part.name, other.name);
                assert_ne!(part.class, other.class);
            }
            for style in [".figures .", "svg ."] {
                let rule = format!("{style}{} {{", part.class);
                assert!(crate::page::document::DATA_STYLE.contains(&rule), "{rule}");
            }
        }
    }

    // Ours: bars stay within the chart for any counts.
    #[test]
    fn bars_stay_within_the_chart_for_any_counts() {
        let parts = [
            ChartPart {
                name: "sent",
                class: "sent",
            },
            ChartPart {
                name: "refused",
                class: "refused",
            },
        ];
        let bar = |counts: &[u64]| TimeBar {
            label: "10:00".to_owned(),
            time: "11-29 10:00".to_owned(),
            counts: counts.to_vec(),
        };
        let chart = |bars: &[TimeBar], usage| {
            let (title, parts) = ("x", &parts);
            TimeChart {
                title,
                parts,
                bars,
                usage,
            }
            .html()
        };
        let bars = [bar(&[0, 0]), bar(&[1, 1_000_000]), bar(&[7, 0])];
        let text = chart(&bars, ChartUsage::Still);
        assert_eq!(text.0.matches("<rect").count(), 3 + 2, "{}", text.0);
        assert!(
            text.0.contains("10:00: 1 sent, 1,000,000 refused"),
            "{}",
            text.0
        );
        let live = chart(&[bar(&[7, 0])], ChartUsage::Live);
        assert!(live.0.contains("data-counts=\"7 0\""), "{}", live.0);
        assert_eq!(live.0.matches("hidden data-name").count(), 1, "{}", live.0);
        let empty = chart(&[], ChartUsage::Still);
        assert!(empty.0.contains("<svg"), "{}", empty.0);
        let names = [NamedBar {
            name: "<b>\u{202e}".to_owned(),
            count: 3,
            note: "n".to_owned(),
        }];
        let text = named_chart("x", "sent", &names);
        assert!(text.0.contains("&lt;b&gt;\\u{202e}"), "{}", text.0);
    }
}
