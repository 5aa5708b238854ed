//! Cost of a whole decision: evaluating the rules, collecting evidence for the record,
//! and judging every reading of a URL.
//!
//! `cargo bench --bench decide`. Times are medians over rounds on one core.

#![expect(clippy::print_stdout, reason = "its output is its result")]

#[path = "../../crates/politesse-robots/benches/engine/files.rs"]
#[expect(dead_code, reason = "the bench of the engine asks for more files")]
mod files;
mod readings;
mod whole;

use std::time::Duration;

use politesse_base::clock;

const ROUNDS: usize = 9;
const ROUND: Duration = Duration::from_millis(20);

fn main() {
    whole::decisions();
    readings::readings();
}

/// Returns the nanoseconds that a step takes: the median over the rounds.
pub(crate) fn time(rounds: usize, mut step: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..rounds)
        .map(|_| {
            let began = clock::instant();
            let mut count = 0_u32;
            while count == 0 || clock::instant().duration_since(began) < ROUND {
                step();
                count += 1;
            }
            clock::instant().duration_since(began).as_nanos() as f64 / f64::from(count)
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn in_units(nanoseconds: f64) -> String {
    match nanoseconds {
        ns if ns < 10_000.0 => format!("{ns:.0} ns"),
        ns if ns < 10_000_000.0 => format!("{:.1} us", ns / 1e3),
        ns => format!("{:.1} ms", ns / 1e6),
    }
}
