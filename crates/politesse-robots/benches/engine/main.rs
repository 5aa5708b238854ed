//! Benchmarks of the engine and of other engines in the same process: time of decisions and
//! of parsing, memory, and agreement.
//!
//! `cargo bench -p politesse-robots`. Times are medians over rounds on one core. If
//! `POLITESSE_CORPUS` names a folder of real files, the corpus rows use these, otherwise
//! generated files of similar shape. `-- quick` stops after the first table; `-- agreement`
//! only compares.

#![expect(clippy::print_stdout, reason = "its output is its result")]

mod agreement;
mod engines;
mod files;
#[path = "../../tests/reference/mod.rs"]
mod reference;

use std::hint::black_box;
use std::time::{Duration, Instant};

use politesse_robots::RobotsTxt;

use engines::{Asked, ENGINES, Engine, Ready};
use files::Case;

const ROUNDS: usize = 9;
const ROUND: Duration = Duration::from_millis(20);

fn main() {
    let corpus = agreement::corpus();
    if std::env::args().any(|argument| argument == "agreement") {
        return agreement::report(&corpus);
    }
    decisions();
    if std::env::args().any(|argument| argument == "quick") {
        return;
    }
    given_up();
    over_files(&corpus);
    reading(&corpus);
    memory(&corpus);
    allocations(&corpus);
    agreement::report(&corpus);
}

/// Reads the clock of this benchmark.
#[allow(clippy::disallowed_methods)]
fn now() -> Instant {
    Instant::now()
}

/// Returns the time of a step in nanoseconds: the median over the rounds.
pub(crate) fn time(rounds: usize, mut step: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..rounds)
        .map(|_| {
            let began = now();
            let mut count = 0_u32;
            while count == 0 || now().duration_since(began) < ROUND {
                step();
                count += 1;
            }
            now().duration_since(began).as_nanos() as f64 / f64::from(count)
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn asked(case: &Case) -> Vec<Asked> {
    case.urls.iter().map(|url| Asked::new(url)).collect()
}

fn per_decision(ready: &mut dyn Ready, asked: &[Asked], rounds: usize) -> f64 {
    let all = time(rounds, || {
        for url in asked {
            black_box(ready.allows(black_box(url)));
        }
    });
    all / asked.len() as f64
}

/// Prints a row with the time of each engine, and its ratio to ours.
fn row(name: &str, times: &[(&Engine, Option<f64>)]) {
    print!("{name:<36}");
    let ours = times.first().and_then(|(_, time)| *time).unwrap_or(1.0);
    for (_, time) in times {
        match time {
            Some(time) => print!(
                " {:>12} {:>7}",
                in_units(*time),
                format!("{:.1}x", time / ours)
            ),
            None => print!(" {:>12} {:>7}", "-", ""),
        }
    }
    println!();
}

fn in_units(nanoseconds: f64) -> String {
    match nanoseconds {
        ns if ns < 10_000.0 => format!("{ns:.0} ns"),
        ns if ns < 10_000_000.0 => format!("{:.1} us", ns / 1e3),
        ns => format!("{:.1} ms", ns / 1e6),
    }
}

fn header(title: &str) {
    print!("\n{title:<36}");
    for engine in &ENGINES {
        print!(" {:>20}", engine.name);
    }
    println!();
}

fn decisions() {
    header("decision, from the full URL");
    for case in files::cases() {
        let asked = asked(&case);
        let times: Vec<_> = ENGINES
            .iter()
            .map(|engine| {
                let rounds = if engine.reads_anew { 1 } else { ROUNDS };
                // A single decision would take minutes.
                let hopeless = engine.reads_anew && case.name.starts_with("hostile");
                let ready = (!hopeless).then(|| (engine.ready)(&case.body)).flatten();
                let time = ready.map(|mut ready| per_decision(&mut *ready, &asked, rounds));
                (engine, time)
            })
            .collect();
        row(&case.name, &times);
    }
}

/// Measures files that no engine can judge in time. Ours detects that and refuses.
fn given_up() {
    println!("\nfiles made to be given up: the first judgement compiles what it needs");
    for case in files::endless() {
        let asked = asked(&case);
        let mut ours = engines::Ours::new(&case.body);
        let began = now();
        let allows = ours.allows(&asked[0]);
        let first = now().duration_since(began).as_nanos() as f64;
        let later = per_decision(&mut ours, &asked, ROUNDS);
        let [first, later] = [first, later].map(in_units);
        println!(
            "  {:<34} first {first:>9}, later {later:>9}, allowed: {allows}",
            case.name
        );
    }
}

/// Measures decisions with a warm cache, as the mean of each file.
fn over_files(corpus: &[Case]) {
    header(&format!("decision, {} files, hot", corpus.len()));
    let files: Vec<_> = corpus.iter().map(|case| (case, asked(case))).collect();
    let mut columns = Vec::new();
    for engine in &ENGINES {
        let mut means: Vec<f64> = Vec::new();
        for (case, asked) in files.iter().filter(|_| !engine.reads_anew) {
            let Some(mut ready) = (engine.ready)(&case.body) else {
                continue;
            };
            means.push(hot(&mut *ready, asked));
        }
        means.sort_by(f64::total_cmp);
        columns.push((engine, means));
    }
    type Take = fn(&[f64]) -> f64;
    let rows: [(&str, Take); 4] = [
        ("  mean", |means| {
            means.iter().sum::<f64>() / means.len() as f64
        }),
        ("  median", |means| means[means.len() / 2]),
        ("  99th of 100", |means| means[means.len() * 99 / 100]),
        ("  slowest", |means| means[means.len() - 1]),
    ];
    for (name, take) in rows {
        let times: Vec<_> = columns
            .iter()
            .map(|(engine, means)| (*engine, (!means.is_empty()).then(|| take(means))))
            .collect();
        row(name, &times);
    }
}

/// Returns the minimum of a few passes, in nanoseconds. Quick, because there are thousands
/// of files.
fn hot(ready: &mut dyn Ready, asked: &[Asked]) -> f64 {
    let mut least = f64::MAX;
    for _ in 0..5 {
        let began = now();
        for _ in 0..20 {
            for url in asked {
                black_box(ready.allows(black_box(url)));
            }
        }
        let took = now().duration_since(began).as_nanos() as f64;
        least = least.min(took / (20 * asked.len()) as f64);
    }
    least
}

fn reading(corpus: &[Case]) {
    header("reading and compiling for one agent");
    let bytes: usize = corpus.iter().map(|case| case.body.len()).sum();
    let mut columns = Vec::new();
    for engine in &ENGINES {
        let mut times: Vec<f64> = corpus
            .iter()
            .map(|case| {
                let least = |_| {
                    let began = now();
                    black_box((engine.ready)(black_box(&case.body)));
                    now().duration_since(began).as_nanos() as f64
                };
                (0..7).map(least).fold(f64::MAX, f64::min)
            })
            .collect();
        times.sort_by(f64::total_cmp);
        columns.push((engine, times));
    }
    let median = columns
        .iter()
        .map(|(engine, times)| (*engine, Some(times[times.len() / 2])));
    row("  median file", &median.collect::<Vec<_>>());
    let megabyte = columns.iter().map(|(engine, times)| {
        (
            *engine,
            Some(times.iter().sum::<f64>() / bytes as f64 * 1e6),
        )
    });
    row("  a megabyte of files", &megabyte.collect::<Vec<_>>());
    for case in files::cases() {
        let times: Vec<_> = ENGINES
            .iter()
            .map(|engine| {
                (
                    engine,
                    Some(time(3, || drop(black_box((engine.ready)(&case.body))))),
                )
            })
            .collect();
        row(&format!("  {}", case.name), &times);
    }
}

/// Returns the allocated bytes, without the file itself, which is shared with its owner, and
/// the number of rules.
fn held(body: &[u8]) -> (usize, usize) {
    let shared: bytes::Bytes = body.to_vec().into();
    let mut kept = None;
    let info = allocation_counter::measure(|| {
        let robots = RobotsTxt::in_dialect(shared.clone(), Default::default());
        let binding = robots.binding(engines::crawler());
        kept = Some((robots, binding));
    });
    let rules = kept.map_or(0, |(_, binding)| binding.rules().count());
    (usize::try_from(info.bytes_current).unwrap_or(0), rules)
}

fn memory(corpus: &[Case]) {
    println!("\nmemory of a file made ready, beside its bytes");
    let all: Vec<_> = corpus.iter().map(|case| held(&case.body)).collect();
    let bytes: usize = all.iter().map(|(bytes, _)| bytes).sum();
    let rules: usize = all.iter().map(|(_, rules)| rules).sum();
    println!(
        "  mean over {} files: {} bytes",
        all.len(),
        bytes / all.len()
    );
    println!(
        "  a rule that binds, over all of them: {:.1} bytes",
        bytes as f64 / rules as f64
    );
    for case in files::cases() {
        let (bytes, rules) = held(&case.body);
        println!(
            "  {}: {bytes} bytes, {:.1} a rule",
            case.name,
            bytes as f64 / rules as f64
        );
    }
}

fn allocations(corpus: &[Case]) {
    let (mut count, mut decisions) = (0, 0);
    for case in corpus.iter().chain(&files::cases()) {
        let asked = asked(case);
        let mut ours = engines::Ours::new(&case.body);
        asked.iter().for_each(|url| {
            black_box(ours.allows(url));
        });
        let info = allocation_counter::measure(|| {
            for url in &asked {
                black_box(ours.allows(url));
            }
        });
        count += info.count_total;
        decisions += asked.len();
    }
    println!("\nallocations in {decisions} decisions: {count}");
}
