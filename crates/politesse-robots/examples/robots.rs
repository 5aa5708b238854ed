//! Explains a robots.txt and judges URLs by it, with the library alone: no proxy,
//! no network, no clock.
//!
//! `cargo run -p politesse-robots --example robots -- FILE AGENT URL…`
//!
//! `FILE` is taken for the robots.txt of the first URL's origin. The last section
//! of the output shows that URLs of other origins remain undecided.

#![expect(clippy::print_stdout, reason = "its output is its result")]

use std::error::Error;

use jiff::Timestamp;
use politesse_robots::crawler::Crawler;
use politesse_robots::origin::Target;
use politesse_robots::{Judgement, RobotsTxt, RulesByOrigin};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(file), Some(agent)) = (arguments.next(), arguments.next()) else {
        return Err("wanted: FILE AGENT URL…".into());
    };
    let urls = arguments.map(|url| url.parse());
    let urls: Vec<Target> = urls.collect::<Result<_, _>>()?;
    let body = std::fs::read(file)?;
    // A product token, or a whole User-Agent.
    let crawler = Crawler::parse(&agent);

    // Reading never fails: what cannot be understood becomes a note.
    let robots = RobotsTxt::parse(&body);
    show(&robots);
    judge(&robots, &crawler, &urls);
    visit(&body, crawler, &urls);
    Ok(())
}

/// Prints every record of the file with its line, known or not, and the notes.
fn show(robots: &RobotsTxt) {
    println!("Records");
    for record in robots.records() {
        let group = record.group.map_or("-".to_owned(), |at| at.to_string());
        println!(
            "{:5} {group:>2} {}: {}",
            record.line, record.name, record.value
        );
    }
    println!("Notes");
    for note in robots.notes() {
        println!("{:5}    {}", note.line, note.kind);
    }
}

/// Prints the rule that counts for the path of each URL, and others that match.
fn judge(robots: &RobotsTxt, crawler: &Crawler, urls: &[Target]) {
    // Which groups bind the crawler is found once. A binding is cheap to clone,
    // and judges from any thread.
    let binding = robots.binding(crawler);
    println!("Bound by the group of {:?}", binding.names());
    for url in urls {
        let path = url.path_and_query();
        let judgement = binding.judge(path);
        let leave = match judgement.allows() {
            true => "may be fetched",
            false => "may not be fetched",
        };
        let why = match judgement {
            Judgement::Rule(rule) => format!("line {}: {}", rule.line(), rule.text()),
            Judgement::NoRule => "no rule matches".to_owned(),
            Judgement::NoGroup => "no group is for this crawler".to_owned(),
            Judgement::RobotsTxt => "robots.txt itself always may".to_owned(),
            Judgement::Undecided => "the file is made to be slow".to_owned(),
        };
        println!("{path} {leave} ({why})");
        for rule in binding.competing(path).iter().skip(1) {
            println!("    also matches: line {}: {}", rule.line(), rule.text());
        }
    }
}

/// Judges URLs of several origins, as a crawler does that keeps the robots.txt of
/// each.
fn visit(body: &[u8], crawler: Crawler, urls: &[Target]) {
    let Some(first) = urls.first() else {
        return;
    };
    // The crawler has its own clock, and its own opinion on how long a file is
    // fresh: at most 24 hours as a rule (RFC 9309, section 2.4).
    let now = Timestamp::UNIX_EPOCH;
    let tomorrow = now + jiff::SignedDuration::from_hours(24);
    let mut rules = RulesByOrigin::new(crawler);
    rules.parse(&first.origin.robots_txt(), body, tomorrow);
    println!("By origin");
    for url in urls {
        match rules.allowed(url, now) {
            Some(true) => println!("{url}: fetch it"),
            Some(false) => println!("{url}: leave it"),
            None => println!("{url}: fetch {} first", url.origin.robots_txt()),
        }
    }
    // Once it has expired, it has to be fetched again.
    assert_eq!(rules.allowed(first, tomorrow), None);
}
