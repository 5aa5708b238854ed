//! `audit robots`: the robots.txt of a host that was in force at a given time.
//!
//! Only the bytes of the file go to stdout; their description goes to stderr. With
//! `--history` it prints a report instead, which `versions` makes.

use std::fmt::Display;
use std::io::Write as _;

use clap::Args;
use jiff::Timestamp;

use super::arguments::{robots_owner, time};
use super::rows::{FormArguments, RowForm};
use super::versions::print_history;
use crate::cli::output::{Exit, Usage};
use politesse_base::clock;
use politesse_base::command_line::command;
use politesse_base::inert::{inert, shell_word};
use politesse_record::reader::AuditReader;
use politesse_record::robots_history::{OriginSnapshot, RobotsOwner, first_robots, robots_at};

/// Maximum number of files that are listed to choose from.
const CHOICES_MAX: usize = 20;

/// Arguments of `audit robots`.
#[derive(Debug, Args)]
pub(crate) struct RobotsArguments {
    /// The host, or one of its origins, such as `https://site.example:8443`.
    #[arg(value_parser = robots_owner)]
    host: RobotsOwner,
    /// Time at which it was in force; by default now.
    #[arg(long, value_name = "TIME", value_parser = time)]
    at: Option<Timestamp>,
    /// The crawler that it was fetched for, if the site answers crawlers differently.
    #[arg(long, value_name = "TOKEN")]
    crawler: Option<String>,
    /// Shows all versions on record, the changes between them, and what each decided.
    #[arg(long, conflicts_with = "at")]
    history: bool,
    #[command(flatten)]
    form: FormArguments,
}

/// Prints the file that was in force.
pub(super) fn robots(reader: &AuditReader, asked: &RobotsArguments) -> anyhow::Result<Exit> {
    if asked.history {
        let crawler = asked.crawler.as_deref();
        return print_history(reader, &asked.host, crawler, asked.form.form());
    }
    if asked.form.form() != RowForm::Columns {
        let text = "--json and --csv are for --history; without it the file itself is printed";
        return Err(Usage::Arguments(text.to_owned()).into());
    }
    let at = asked.at.unwrap_or_else(clock::now);
    let mut all = robots_at(reader, &asked.host, at)?;
    if let Some(wanted) = &asked.crawler {
        all.retain(|entry| entry.serves(wanted));
    }
    let Some(first) = all.first() else {
        return missing(reader, asked, at);
    };
    let is_one_file = all.iter().all(|entry| {
        let (entry, first) = (&entry.snapshot, &first.snapshot);
        entry.sha256 == first.sha256 && entry.result == first.result
    });
    if !is_one_file {
        return Err(Usage::Arguments(choices(&all, asked.at)).into());
    }
    let mut stderr = std::io::stderr().lock();
    for entry in all.iter().take(CHOICES_MAX) {
        writeln!(stderr, "politesse: {}", inert(&origin_line(entry, at)))?;
    }
    print(reader, first)
}

/// Reports that there is no file, and when there was one.
fn missing(reader: &AuditReader, asked: &RobotsArguments, at: Timestamp) -> anyhow::Result<Exit> {
    let owner = &asked.host;
    let crawler = part(" for ", asked.crawler.as_ref());
    let first = match first_robots(reader, owner)? {
        Some(first) if at < first => format!("the first was fetched at {first:.0}"),
        Some(_) => "it is on record for other crawlers".to_owned(),
        None => "no decision rests on one".to_owned(),
    };
    let text = format!("no robots.txt of {owner}{crawler} is on record by {at:.0}: {first}");
    writeln!(std::io::stderr().lock(), "politesse: {}", inert(&text))?;
    Ok(Exit::Not)
}

/// Prints the body, or the reason why it is missing.
fn print(reader: &AuditReader, entry: &OriginSnapshot) -> anyhow::Result<Exit> {
    if let Some(sha256) = entry.snapshot.sha256
        && let Some(body) = reader.body(sha256)?
    {
        std::io::stdout().lock().write_all(&body)?;
        return Ok(Exit::Done);
    }
    let why = match entry.snapshot.result.as_str() {
        "successful" => "its body is not on record any more: run politesse audit verify",
        "unavailable" => {
            "there was no file: everything was allowed, unless 401 and 403 count as a \
                          refusal (robots.status.unauthorized)"
        }
        _ => "the file could not be fetched: everything was disallowed",
    };
    writeln!(std::io::stderr().lock(), "politesse: {why}")?;
    Ok(Exit::Not)
}

/// Makes the line that states the source of a file, and when it was in force.
pub(super) fn origin_line(entry: &OriginSnapshot, at: Timestamp) -> String {
    let snapshot = &entry.snapshot;
    let expired = if snapshot.expires_at <= at {
        ": it had expired, and no later one is on record"
    } else {
        ""
    };
    let cause = snapshot.cause.as_ref().map(|cause| format!("({cause})"));
    format!(
        "{}{}{}: {}{}, fetched {:.0}, expires {:.0}{expired}{}",
        snapshot.url,
        part(", fetched as ", snapshot.token.as_ref()),
        part(", status ", snapshot.status),
        snapshot.result,
        part(" ", cause),
        snapshot.fetched_at,
        snapshot.expires_at,
        part(", sha256 ", snapshot.sha256),
    )
}

/// Returns `value` after `name`, or nothing without a value.
fn part(name: &str, value: Option<impl Display>) -> String {
    value.map_or_else(String::new, |value| format!("{name}{value}"))
}

/// Makes the list of files to choose from, each with its selecting arguments.
fn choices(all: &[OriginSnapshot], at: Option<Timestamp>) -> String {
    let at = part(" --at ", at);
    let mut text = format!(
        "{} answers were in force then, and they differ; choose one of them:",
        all.len()
    );
    for entry in all.iter().take(CHOICES_MAX) {
        let token = entry.snapshot.token.as_deref().map(shell_word);
        let line = format!("{}{}{at}", entry.origin, part(" --crawler ", token));
        let command = command(format_args!("audit robots {line}"));
        text.push_str(&format!("\n  {}", inert(&command)));
    }
    if CHOICES_MAX < all.len() {
        text.push_str(&format!("\n  and {} more", all.len() - CHOICES_MAX));
    }
    text
}
