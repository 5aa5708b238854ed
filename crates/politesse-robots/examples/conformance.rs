//! Runs the cases of this crate against any robots.txt engine.
//!
//! `cargo run -p politesse-robots --example conformance -- FILE… -- PROGRAM ARGUMENT…`
//!
//! Each `FILE` is one of `cases/*.jsonl`. `PROGRAM` reads JSON Lines from its
//! standard input, one question each: `id`, `robots` (or `robots_b64`), `agent`,
//! `url`, `dialect`. It answers each with a line: `id`, `verdict` (`allow` or
//! `disallow`) and, if it knows it, `line`. The order does not matter. `politesse
//! check --batch -` is such a program; another engine needs a loop of its own
//! around these lines.
//!
//! Prints every case that is not met, and exits with 1 if there is one.

#![expect(clippy::print_stdout, reason = "its output is its result")]

use std::collections::HashMap;
use std::error::Error;
use std::io::Write as _;
use std::process::{Command, ExitCode, Stdio};
use std::thread;

use serde_json::Value;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut parts = arguments.splitn(2, |argument| argument == "--");
    let (Some(files @ [_, ..]), Some([program, options @ ..])) = (parts.next(), parts.next())
    else {
        return Err("wanted: FILE… -- PROGRAM ARGUMENT…".into());
    };
    let mut cases = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(file)?;
        // Some cases hold characters that `lines` would not split at, but other
        // readers do: a case ends at LF alone.
        for line in text.split('\n').filter(|line| !line.is_empty()) {
            cases.push(serde_json::from_str::<Value>(line)?);
        }
    }
    let answers = answers(program, options, &cases)?;
    let missed = cases.iter().filter(|case| !is_met(case, &answers)).count();
    println!("{} cases, {missed} not met", cases.len());
    Ok(if missed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Asks the program about all cases, and collects its answers by their id.
fn answers(
    program: &str,
    options: &[String],
    cases: &[Value],
) -> Result<HashMap<String, Value>, Box<dyn Error>> {
    let mut child = Command::new(program)
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut input = child.stdin.take().ok_or("no standard input")?;
    let questions: String = cases.iter().map(|case| format!("{case}\n")).collect();
    // In a thread of its own: a program may answer before it has read all, and
    // would wait for us to read while we wait for it.
    let writer = thread::spawn(move || input.write_all(questions.as_bytes()));
    let output = child.wait_with_output()?;
    writer
        .join()
        .map_err(|_| "the questions were not written")??;
    let mut answers = HashMap::new();
    for line in output
        .stdout
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        let answer: Value = serde_json::from_slice(line)?;
        if let Some(id) = answer["id"].as_str() {
            answers.insert(id.to_owned(), answer);
        }
    }
    Ok(answers)
}

/// Reports whether a case is met, and prints it if it is not.
fn is_met(case: &Value, answers: &HashMap<String, Value>) -> bool {
    let id = case["id"].as_str().unwrap_or_default();
    let wanted = if case["expect"] == true {
        "allow"
    } else {
        "disallow"
    };
    let Some(answer) = answers.get(id) else {
        println!("{id}: no answer; {}", case["why"]);
        return false;
    };
    let same_verdict = answer["verdict"] == wanted;
    // Not every engine says which line decided, and not every case asks.
    let line_asked = case.get("line").is_some() && answer.get("line").is_some();
    let same_line = !line_asked || case["line"] == answer["line"];
    if !same_verdict || !same_line {
        println!(
            "{id}: {wanted} by line {} is wanted, not {answer}; {}",
            case["line"], case["why"]
        );
    }
    same_verdict && same_line
}
