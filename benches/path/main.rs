//! Instructions, allocations and system calls of a request, by part of the program.
//! Guards the forward path against changes that timings do not show.
//!
//! `cargo bench --bench path`. The proxy runs in a process of its own, first under
//! callgrind and then under strace; the clients and the origin run in this process.
//! Each kind of exchange runs twice with different numbers of requests. The difference
//! in cost, divided by the difference in requests, leaves out start and stop. The bench
//! fails if a figure exceeds its budget (`benches/README.md`) by a fifth. `-- write`
//! writes new budgets; `-- page` measures the kinds with "page" in their names.

#![expect(clippy::print_stdout, reason = "its output is its result")]

mod budgets;
mod callgrind;
mod kinds;
mod load;
mod origin;
mod parts;
mod syscalls;
mod tls;
mod watched;

use std::collections::{BTreeMap, HashMap};
use std::process::ExitCode;

use budgets::{Budgets, Figures, display};
use callgrind::{Cost, Profile};
use kinds::{ExchangeKind, KINDS};
use load::{HOST, Target};
use parts::Part;
use syscalls::{CallGroup, SystemCalls};
use tls::OriginTls;
use watched::{Site, Tool, WatchedProxy};

/// Rows of the table below those of the parts.
const SUM: &str = "all";
const ALLOCATIONS: &str = "allocations";
const SYSTEM_CALLS: &str = "system calls";

/// Requests under strace for each one under callgrind, which is slower. System calls
/// vary with the batches of the record, so they need more requests.
const STRACE_TIMES: usize = 4;

/// Cost of one request of a kind.
struct Measurement {
    parts: HashMap<Part, Cost>,
    system_calls: SystemCalls,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with("--"))
        .collect();
    match run(&arguments).await {
        Ok(exceeded) if exceeded.is_empty() => ExitCode::SUCCESS,
        Ok(exceeded) => {
            println!("{}", exceeded.join("\n"));
            ExitCode::FAILURE
        }
        Err(error) => {
            println!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Measures the kinds that the arguments name, and returns a sentence for each budget
/// that is exceeded.
async fn run(arguments: &[String]) -> anyhow::Result<Vec<String>> {
    Tool::Callgrind.check().await?;
    Tool::Strace.check().await?;
    let writes = arguments.iter().any(|argument| argument == "write");
    let budgets = Budgets::read()?;
    let mut found = BTreeMap::new();
    let mut exceeded = Vec::new();
    for kind in &KINDS {
        if !writes
            && !arguments.is_empty()
            && !arguments
                .iter()
                .any(|name| kind.name.contains(name.as_str()))
        {
            continue;
        }
        let measurement = measure(kind).await?;
        print(kind, &measurement, &budgets);
        let figures = measurement.figures();
        exceeded.extend(budgets.exceeded(kind.name, &figures));
        found.insert(kind.name, figures);
    }
    if writes {
        let parts = Part::ALL.iter().map(|part| part.name());
        let rows: Vec<_> = parts.chain([SUM, ALLOCATIONS, SYSTEM_CALLS]).collect();
        budgets::write(&rows, &found)?;
        exceeded.clear();
    }
    Ok(exceeded)
}

async fn measure(kind: &'static ExchangeKind) -> anyhow::Result<Measurement> {
    let tls = OriginTls::make(HOST)?;
    let site = Site {
        kind,
        origin: origin::serve(tls.server, kind.clients).await?,
        authority_pem: &tls.authority_pem,
    };
    let (few, many) = (kind.warm_up, kind.warm_up + kind.counted);
    let requests = (kind.counted * kind.clients) as f64;
    let shorter = Profile::parse(&count(Tool::Callgrind, &site, few).await?);
    let longer = Profile::parse(&count(Tool::Callgrind, &site, many).await?);
    let mut parts = longer.less(&shorter).parts();
    for cost in parts.values_mut() {
        cost.divide(requests);
    }
    let many = kind.warm_up + STRACE_TIMES * kind.counted;
    let shorter = SystemCalls::parse(&count(Tool::Strace, &site, few).await?);
    let longer = SystemCalls::parse(&count(Tool::Strace, &site, many).await?);
    Ok(Measurement {
        parts,
        system_calls: longer.less(&shorter, requests * STRACE_TIMES as f64),
    })
}

/// Runs a proxy under a tool while each client sends `requests` requests. Returns the
/// tool's output.
async fn count(tool: Tool, site: &Site<'_>, requests: usize) -> anyhow::Result<String> {
    let proxy = WatchedProxy::start(tool, site).await?;
    let target = Target {
        proxy: proxy.address,
        tls: tls::client(&proxy.authority_pem)?,
        kind: site.kind,
    };
    target.load(requests).await?;
    proxy.stop().await
}

impl Measurement {
    /// Returns the figures that can have a budget, by row.
    fn figures(&self) -> Figures {
        let of_part = |part: &Part| {
            let cost = self.parts.get(part).copied().unwrap_or_default();
            (part.name().to_owned(), cost.instructions)
        };
        let mut figures: Figures = Part::ALL.iter().map(of_part).collect();
        let sum = self.sum();
        figures.insert(SUM.to_owned(), sum.instructions);
        figures.insert(ALLOCATIONS.to_owned(), sum.allocations);
        let beside = self.system_calls.of_group(CallGroup::Beside);
        figures.insert(SYSTEM_CALLS.to_owned(), beside);
        figures
    }

    fn sum(&self) -> Cost {
        let mut sum = Cost::default();
        for cost in self.parts.values() {
            sum.add(cost, 1.0);
        }
        sum
    }
}

fn print(kind: &ExchangeKind, measurement: &Measurement, budgets: &Budgets) {
    let sum = measurement.sum();
    println!("{}", kind.name);
    println!(
        "  {:<20} {:>13} {:>6} {:>11} {:>12} {:>9}",
        "part", "instructions", "share", "budget", "allocations", "copying"
    );
    let row = |name: &str, cost: &Cost| {
        let share = 100.0 * cost.instructions / sum.instructions;
        let budget = budgets
            .of(kind.name, name)
            .map_or_else(String::new, display);
        let (instructions, copies) = (
            display(cost.instructions.round()),
            display(cost.copies.round()),
        );
        println!(
            "  {name:<20} {instructions:>13} {share:>5.1}% {budget:>11} {:>12.1} {copies:>9}",
            cost.allocations
        );
    };
    for part in Part::ALL {
        row(
            part.name(),
            &measurement.parts.get(&part).copied().unwrap_or_default(),
        );
    }
    row(SUM, &sum);
    println!("  system calls:");
    for group in CallGroup::ALL {
        let calls = measurement.system_calls.of_group(group);
        let list = measurement.system_calls.describe(group);
        println!("    {:<18} {calls:>5.2}  {list}", group.name());
    }
    println!();
}
