//! Charts as SVG inside a page: bars with labels, and parts in the order of the legend.
//!
//! Does not know what the bars count.

use maud::{Markup, html};

use super::words::{number, shown};
use politesse_decision::class::DecisionClass;

/// Size of the chart over time, in units of its own; it is scaled to the page.
const WIDTH: u64 = 720;
const HEIGHT: u64 = 220;
/// Room for the numbers on the left and the times below.
const LEFT: u64 = 56;
const BELOW: u64 = 24;
const ABOVE: u64 = 8;
/// Lines across the chart, the lowest left out.
const LINES: u64 = 4;
/// Width of a bar, in tenths: one alone is not to fill the chart.
const BAR_MAX: u64 = 600;
/// Times that are written below the chart.
const TIMES: usize = 6;

/// Height of a bar of the chart by name, with the room below it.
const ROW: u64 = 22;
/// Room for names in the chart by name.
const NAMES: u64 = 230;
/// Room for what is said behind a bar.
const BEHIND: u64 = 200;

/// Part of the bars of a chart: its name in the legend, and its colour.
#[derive(Debug, Clone, Copy)]
pub struct ChartPart {
    /// Name in the legend.
    pub name: &'static str,
    /// Class of its colour.
    pub class: &'static str,
}

impl ChartPart {
    /// Returns the name and the colour that a class of decisions has on every page.
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
            // The class `error` is that of messages on pages.
            DecisionClass::Error => ("errors", "failed"),
        };
        Self { name, class }
    }
}

/// Bar of the chart over time.
#[derive(Debug, Clone)]
pub struct TimeBar {
    /// Time that stands below it.
    pub label: String,
    /// Counts, in the order of the legend.
    pub counts: Vec<u64>,
}

/// Bar of the chart by name.
#[derive(Debug, Clone)]
pub struct NamedBar {
    /// Name at the left.
    pub name: String,
    /// The number.
    pub count: u64,
    /// Text to the right of the bar.
    pub note: String,
}

/// Draws bars over time, of parts on top of each other.
pub fn time_chart(title: &str, parts: &[ChartPart], bars: &[TimeBar]) -> Markup {
    let highest = bars.iter().map(|bar| bar.counts.iter().sum()).max();
    let top = round_up(highest.unwrap_or(1));
    let inner = HEIGHT - ABOVE - BELOW;
    let height = |count: u64| scaled(count, inner, top);
    let step = tenths(WIDTH - LEFT) / bars.len().max(1) as u64;
    let place = |at: usize| tenths(LEFT) + at as u64 * step;
    let label_every = bars.len().div_ceil(TIMES).max(1);
    html! {
        figure {
            svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-label=(title) {
                @for line in 0..=LINES {
                    @let count = top * line / LINES;
                    @let y = decimal(tenths(HEIGHT - BELOW) - height(count));
                    line class="grid" x1=(LEFT) x2=(WIDTH) y1=(y) y2=(y) {}
                    text class="axis" x=(LEFT - 6) y=(y) dy="0.32em" text-anchor="end" {
                        (number(count))
                    }
                }
                @for (at, bar) in bars.iter().enumerate() {
                    g {
                        title { (bar_title(parts, bar)) }
                        @for (part, rect) in stacked(bar, &height) {
                            @if let Some(part) = parts.get(part) {
                                // Nine tenths of the step, so that bars stand apart.
                                rect class=(part.class) x=(decimal(place(at)))
                                    width=(decimal((step * 9 / 10).clamp(5, BAR_MAX)))
                                    y=(decimal(rect.y)) height=(decimal(rect.height)) {}
                            }
                        }
                    }
                    @if at % label_every == 0 {
                        text class="axis" x=(decimal(place(at))) y=(HEIGHT - 6) { (bar.label) }
                    }
                }
            }
            (legend(parts, bars))
        }
    }
}

/// Draws a bar for each name, the first at the top.
pub fn named_chart(title: &str, class: &str, bars: &[NamedBar]) -> Markup {
    let highest = bars.iter().map(|bar| bar.count).max().unwrap_or(1).max(1);
    let height = ROW * bars.len() as u64;
    let width = |count: u64| scaled(count, WIDTH - NAMES - BEHIND, highest).max(5);
    html! {
        figure {
            svg viewBox=(format!("0 0 {WIDTH} {height}")) role="img" aria-label=(title) {
                @for (at, bar) in bars.iter().enumerate() {
                    @let y = ROW * at as u64;
                    text class="name" x=(NAMES - 8) y=(y + 14) text-anchor="end" {
                        (shown(&bar.name, 34))
                    }
                    rect class=(class) x=(NAMES) y=(y + 3) width=(decimal(width(bar.count)))
                        height=(ROW - 7) {}
                    text class="axis" x=(decimal(tenths(NAMES + 6) + width(bar.count))) y=(y + 14) {
                        (bar.note)
                    }
                }
            }
        }
    }
}

/// Part of a bar, in tenths.
struct StackedPart {
    y: u64,
    height: u64,
}

/// Places the parts of a bar on top of each other, the first at the bottom.
fn stacked(bar: &TimeBar, height: &impl Fn(u64) -> u64) -> Vec<(usize, StackedPart)> {
    let mut below = 0;
    let mut parts = Vec::new();
    for (part, count) in bar.counts.iter().enumerate() {
        let (begin, end) = (height(below), height(below + count));
        below += count;
        if 0 < *count {
            // A single request among thousands is seen, too.
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
    format!("{}: {}", bar.label, texts.join(", "))
}

/// Draws the legend: each part with its sum. A part without a count is left out.
fn legend(parts: &[ChartPart], bars: &[TimeBar]) -> Markup {
    let sum = |at: usize| -> u64 { bars.iter().filter_map(|bar| bar.counts.get(at)).sum() };
    html! {
        figcaption {
            @for (at, part) in parts.iter().enumerate() {
                @if 0 < sum(at) {
                    span class="legend" {
                        svg class="key" viewBox="0 0 10 10" aria-hidden="true" {
                            rect class=(part.class) width="10" height="10" {}
                        }
                        (part.name) ": " (number(sum(at)))
                    }
                }
            }
        }
    }
}

/// Returns the top of the scale: the least of 4, 8, 12, 20, 40, 80, 120, 200 and so on
/// that is not below `count`. Four lines divide each into round numbers.
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

/// Scales `count` of `all` to a part of `length`, in tenths of a unit.
fn scaled(count: u64, length: u64, all: u64) -> u64 {
    let part = u128::from(count) * u128::from(tenths(length)) / u128::from(all.max(1));
    u64::try_from(part).unwrap_or_default().min(tenths(length))
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

    // Ours: bars are within the chart, whatever is counted.
    #[test]
    fn charts_hold_any_counts() {
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
            counts: counts.to_vec(),
        };
        let text = time_chart(
            "x",
            &parts,
            &[bar(&[0, 0]), bar(&[1, 1_000_000]), bar(&[7, 0])],
        );
        assert_eq!(text.0.matches("<rect").count(), 3 + 2, "{}", text.0);
        assert!(
            text.0.contains("10:00: 1 sent, 1,000,000 refused"),
            "{}",
            text.0
        );
        for empty in [time_chart("x", &parts, &[]), named_chart("x", "sent", &[])] {
            assert!(empty.0.contains("<svg"), "{}", empty.0);
        }
        let names = [NamedBar {
            name: "<b>\u{202e}".to_owned(),
            count: 3,
            note: "n".to_owned(),
        }];
        let text = named_chart("x", "sent", &names);
        assert!(text.0.contains("&lt;b&gt;\\u{202e}"), "{}", text.0);
    }
}
