//! Budgets from the table in `benches/README.md`: a row for each part, a column for
//! each kind of exchange.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use anyhow::Context as _;

use crate::kinds::KINDS;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/README.md");

/// First cell of the table, which marks where it starts.
const CORNER: &str = "| a request |";

/// Factor by which a figure may exceed its budget: the work of timers, batches and
/// wake-ups differs from run to run.
const TOLERANCE: f64 = 1.2;

/// Share of all instructions by which a part may exceed its budget: on a busy machine,
/// a body of 1 MiB arrives in more pieces.
const NOISE: f64 = 0.005;

/// Smallest budget of instructions. Smaller figures are noise.
const SMALLEST: f64 = 500.0;

/// Rows without budgets: the number of requests that share a commit depends on the
/// disk, and on how much valgrind slows the program.
const UP_TO_THE_DISK: [&str; 4] = ["record", "sqlite3", "all", "system calls"];

/// Figures of one kind of exchange by row: the instructions of each part, their sum,
/// allocations, and system calls.
pub(crate) type Figures = BTreeMap<String, f64>;

/// Budgets by kind of exchange.
pub(crate) struct Budgets(BTreeMap<String, Figures>);

impl Budgets {
    /// Reads the table from `benches/README.md`.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or has no table.
    pub(crate) fn read() -> anyhow::Result<Self> {
        Self::parse(&fs::read_to_string(FILE)?)
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let mut table = text.lines().skip_while(|line| !line.starts_with(CORNER));
        let header = table.next().context("benches/README.md has no budgets")?;
        let kinds: Vec<_> = cells(header).skip(1).collect();
        let mut budgets = BTreeMap::new();
        // Skip the separator below the header.
        for line in table.skip(1).take_while(|line| line.starts_with('|')) {
            let mut row = cells(line);
            let Some(name) = row.next() else { continue };
            for (kind, cell) in kinds.iter().zip(row) {
                let figures: &mut Figures = budgets.entry((*kind).to_owned()).or_default();
                if let Ok(budget) = cell.replace(',', "").parse() {
                    figures.insert(name.to_owned(), budget);
                }
            }
        }
        Ok(Self(budgets))
    }

    /// Returns the budget of a row.
    pub(crate) fn of(&self, kind: &str, row: &str) -> Option<f64> {
        self.0.get(kind)?.get(row).copied()
    }

    /// Returns a sentence for each figure that exceeds its budget.
    pub(crate) fn exceeded(&self, kind: &str, figures: &Figures) -> Vec<String> {
        // The figure and not the budget, which some kinds do not have for this row.
        let all = figures.get("all").copied().unwrap_or_default();
        let over = figures.iter().filter_map(|(row, &found)| {
            let budget = self.of(kind, row)?;
            let noise = match row.as_str() {
                "allocations" => 0.0,
                _ => all * NOISE,
            };
            (found > budget * TOLERANCE && found > budget + noise).then(|| {
                let (found, budget) = (display(found), display(budget));
                format!("{kind}: {row} takes {found} a request; the budget is {budget}")
            })
        });
        over.collect()
    }
}

/// Replaces the table in `benches/README.md` with budgets for the figures found.
///
/// # Errors
///
/// If the file cannot be read or written, or has no table.
pub(crate) fn write(rows: &[&str], found: &BTreeMap<&str, Figures>) -> anyhow::Result<()> {
    let text = fs::read_to_string(FILE)?;
    let start = text
        .find(CORNER)
        .context("benches/README.md has no budgets")?;
    let length = text[start..]
        .split_inclusive('\n')
        .take_while(|line| line.starts_with('|'))
        .map(str::len)
        .sum::<usize>();
    let mut table = CORNER.to_owned();
    for kind in &KINDS {
        let _ = write!(table, " {} |", kind.name);
    }
    let _ = writeln!(table, "\n|---|{}", "---|".repeat(KINDS.len()));
    for row in rows.iter().filter(|row| !UP_TO_THE_DISK.contains(row)) {
        let _ = write!(table, "| {row} |");
        for kind in &KINDS {
            let figures = found.get(kind.name);
            let found = figures.and_then(|figures| figures.get(*row));
            let budget = found.map_or_else(String::new, |found| display(budget(row, *found)));
            let _ = write!(table, " {budget} |");
        }
        table.push('\n');
    }
    let (before, after) = (&text[..start], &text[start + length..]);
    Ok(fs::write(FILE, format!("{before}{table}{after}"))?)
}

/// Returns the budget for a figure: the figure rounded up, instructions to two digits.
fn budget(row: &str, found: f64) -> f64 {
    match row {
        "allocations" => found.ceil(),
        "system calls" => (found * 2.0).ceil().max(1.0) / 2.0,
        _ => {
            let unit = 10_f64.powi(found.max(1.0).log10().floor() as i32 - 1);
            ((found / unit).ceil() * unit).max(SMALLEST)
        }
    }
}

/// Formats a figure: `27,000`, `0.5`.
pub(crate) fn display(figure: f64) -> String {
    if figure.abs() < 20.0 && figure.fract() != 0.0 {
        return format!("{figure:.1}");
    }
    let digits = format!("{:.0}", figure.max(0.0));
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn cells(line: &str) -> impl Iterator<Item = &str> {
    line.trim_matches('|').split('|').map(str::trim)
}
