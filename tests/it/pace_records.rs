//! Pace records that bind a crawler: the cases of `crates/politesse-robots/cases/pace.jsonl`,
//! and 1,000 pairs of a real file and an agent, compared with a simple second reader.
//!
//! The real files are not in the repository. Without them their test prints that it is
//! skipped, and passes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use politesse_robots::RobotsTxt;
use politesse_robots::crawler::Crawler;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cases::{cases, text};
use crate::kit::checkout::root;
use crate::kit::program::{finish, politesse};
use crate::kit::run;

/// Number of pairs to compare; the files must give at least as many.
const PAIRS: usize = 1000;

/// Most agents of one file to compare, so that no file dominates.
const AGENTS_MAX: usize = 4;

/// Returns the answer of `check --batch` to each question.
async fn answers(questions: &[Value]) -> Vec<Value> {
    let mut command = politesse(std::env::temp_dir().as_path());
    command.args(["check", "--batch", "-"]);
    let lines: String = questions.iter().map(|line| format!("{line}\n")).collect();
    let outcome = finish(command, lines.as_bytes()).await;
    let answers = outcome.json_lines();
    assert_eq!(answers.len(), questions.len(), "{}", outcome.stderr);
    answers
}

#[tokio::test]
async fn every_pace_case_holds() {
    let cases = cases(include_str!(
        "../../crates/politesse-robots/cases/pace.jsonl"
    ));
    let questions: Vec<Value> = cases.iter().map(question).collect();
    for (case, answer) in cases.iter().zip(answers(&questions).await) {
        let delay = answer["crawl_delay"].as_f64();
        assert_eq!(delay, case["crawl_delay"].as_f64(), "{case}");
        let (rates, visits) = rates_and_visits(case);
        assert_eq!(json!(rates), case["request_rate"], "{case}");
        assert_eq!(json!(visits), case["visit_time"], "{case}");
    }
}

fn question(case: &Value) -> Value {
    json!({
        "id": case["id"],
        "robots": case["robots"],
        "agent": case["agent"],
        "url": "https://h.example/",
        "dialect": case["dialect"].as_str().unwrap_or("rfc9309"),
    })
}

/// Returns the request rates and visit times that the engine finds. The batch format has
/// only the delay.
fn rates_and_visits(case: &Value) -> (Vec<String>, Vec<String>) {
    let dialect = case["dialect"].as_str().unwrap_or("rfc9309");
    let file = text(case, "robots").to_owned();
    let robots = RobotsTxt::in_dialect(file, dialect.parse().unwrap());
    let binding = robots.binding(&Crawler::parse(text(case, "agent")));
    let Some(asked) = binding.pace() else {
        return (Vec::new(), Vec::new());
    };
    let rates = asked.rates.iter().map(ToString::to_string).collect();
    let visits = asked.visits.iter().map(ToString::to_string).collect();
    (rates, visits)
}

#[test]
fn a_simple_second_reader_finds_the_same_delays_in_a_thousand_real_pairs() {
    let Some(files) = real_files() else {
        eprintln!("skipped: the real files are not here");
        return;
    };
    run(async {
        let pairs = pairs(files);
        assert!(PAIRS <= pairs.len(), "{} pairs", pairs.len());
        // Every step-th pair: spread over the files and the same in each run.
        let step = pairs.len() / PAIRS;
        let pairs: Vec<Value> = pairs.into_iter().step_by(step).take(PAIRS).collect();
        let mut differences = Vec::new();
        for (pair, answer) in pairs.iter().zip(answers(&pairs).await) {
            let found = answer["crawl_delay"].as_f64();
            let (file, agent) = (text(pair, "id"), text(pair, "agent"));
            let wanted = delay(text(pair, "robots"), agent);
            if found != wanted {
                differences.push(format!("{file}, {agent}: {found:?}, not {wanted:?}"));
            }
        }
        assert!(differences.is_empty(), "{}", differences.join("\n"));
    });
}

/// Returns the `Crawl-delay` for `agent` in seconds, found by a reader that knows only
/// lists of agents, groups and delays.
fn delay(robots: &str, agent: &str) -> Option<f64> {
    let mut delays: BTreeMap<String, Option<f64>> = BTreeMap::new();
    let (mut list, mut group) = (Vec::new(), Vec::new());
    let (mut is_list_open, mut is_below_rule) = (false, false);
    for (key, value) in fields(robots) {
        if key == "user-agent" {
            if is_below_rule {
                group.clear();
            }
            if !is_list_open {
                list.clear();
            }
            (is_list_open, is_below_rule) = (true, false);
            delays.entry(value.clone()).or_default();
            list.push(value.clone());
            group.push(value);
            continue;
        }
        is_list_open = false;
        is_below_rule |= key == "allow" || key == "disallow";
        let seconds = value.parse().ok().filter(|_| key == "crawl-delay");
        for agent in if is_below_rule { &group } else { &list } {
            let longest = delays.entry(agent.clone()).or_default();
            *longest = seconds.into_iter().chain(*longest).reduce(f64::max);
        }
    }
    let own = delays.get(&agent.to_ascii_lowercase());
    own.or(delays.get("*")).copied().flatten()
}

/// Returns the keys and values of all lines that are not empty, in lower case.
fn fields(robots: &str) -> impl Iterator<Item = (String, String)> {
    let contents = robots.lines().filter_map(|line| line.split('#').next());
    let lines = contents.map(|content| content.trim().to_lowercase());
    let lines = lines.filter(|line| !line.is_empty());
    lines.map(|line| match line.split_once(':') {
        Some((key, value)) => (key.trim().to_owned(), value.trim().to_owned()),
        None => (line, String::new()),
    })
}

/// Returns the pairs to choose from, as questions: each file with a delay, paired with
/// some agents that it names and with one that it does not.
fn pairs(files: BTreeMap<String, String>) -> Vec<Value> {
    let mut pairs = Vec::new();
    for (file, robots) in files {
        if !fields(&robots).any(|(key, _)| key == "crawl-delay") || is_beyond_the_reader(&robots) {
            continue;
        }
        let agents = named(&robots).into_iter().take(AGENTS_MAX);
        for agent in agents.chain(["nobody-knows-this-bot".to_owned()]) {
            let url = "https://h.example/";
            pairs.push(json!({"id": file, "robots": robots, "agent": agent, "url": url}));
        }
    }
    pairs
}

/// Reports whether the file has syntax that the simple reader does not know: bare CR as
/// the line end, lines without a colon, misspelt keys.
fn is_beyond_the_reader(robots: &str) -> bool {
    let is_known = |key: &str| {
        let odd = key.split([' ', '\t']).count() == 2;
        let misspelt = (key.starts_with("dis") || key.starts_with("dia")) && key != "disallow";
        !odd && !misspelt && key != "useragent"
    };
    robots.replace("\r\n", "").contains('\r') || !fields(robots).all(|(key, _)| is_known(&key))
}

/// Returns the agent names that consist of letters, `_` and `-`, and that the file never
/// writes with a suffix (`bot/1.0`).
fn named(robots: &str) -> Vec<String> {
    let agents = fields(robots).filter(|(key, _)| key == "user-agent");
    let agents: Vec<String> = agents.map(|(_, value)| value).collect();
    let is_letter = |letter: char| letter.is_ascii_alphabetic() || "_-".contains(letter);
    let is_plain = |name: &&String| {
        let letters = |value: &str| value.split(|letter| !is_letter(letter)).next() == Some(name);
        !name.is_empty()
            && name.chars().all(is_letter)
            && agents.iter().all(|other| other == *name || !letters(other))
    };
    let mut names: Vec<String> = agents.iter().filter(is_plain).cloned().collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Returns the real files that are valid UTF-8, by name: those of the folder in
/// `POLITESSE_CORPUS`, or of the archive beside the repository. `None` without both.
fn real_files() -> Option<BTreeMap<String, String>> {
    let unpacked = TempDir::new().unwrap();
    let folder = match std::env::var_os("POLITESSE_CORPUS") {
        Some(folder) => PathBuf::from(folder),
        None => {
            let archive = root().join("../shared/corpus/robots.tar.xz");
            let mut tar = Command::new("tar");
            tar.arg("-xJf").arg(archive).arg("--strip-components=1");
            let status = tar
                .current_dir(unpacked.path())
                .stderr(Stdio::null())
                .status();
            status
                .is_ok_and(|status| status.success())
                .then(|| unpacked.path().to_owned())?
        }
    };
    let files = std::fs::read_dir(folder).unwrap();
    let read = files.filter_map(|file| {
        let file = file.unwrap();
        let robots = std::fs::read_to_string(file.path()).ok()?;
        let name = file.file_name().to_string_lossy().into_owned();
        Some((name, robots.trim_start_matches('\u{feff}').to_owned()))
    });
    Some(read.collect())
}
