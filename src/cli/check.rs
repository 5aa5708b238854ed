//! `check`: decides URLs, by a saved robots.txt or the one that is there now.
//!
//! It asks the `decision` that the proxy asks, and gives the standard's verdict
//! on the URL as sent; `--as-proxy` judges every reading of it.

mod answer;
mod batch;
mod explained;
mod folder;
mod listed;
mod object;
mod pieces;
mod saved;
mod sentences;
mod terms;

use std::borrow::Cow;
use std::collections::HashMap;
use std::future::pending;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use http::HeaderValue;
use jiff::Timestamp;

use self::explained::Explained;
use self::object::Object;
use self::sentences::sentences;
use self::terms::{Terms, offline, online};
use super::configuration::ConfigurationRequest;
use super::inert::{append_json, inert};
use super::lines::open;
use super::output::{Exit, Usage};
use super::process::runtime;
use crate::clock;
use crate::config::Settings;
use crate::decision::decide::{Decision, Inquiry, Policy, Reason, Ruling, Verdict, decide};
use crate::decision::snapshot::Snapshot;
use crate::proxy::decider::{Decider, RobotsWait};
use crate::robots_cache::fetch::Asker;
use crate::serve::OriginClients;
use politesse_robots::Dialect;
use politesse_robots::origin::{Origin, Target};

/// What to decide, and by what.
#[derive(Debug, Args)]
pub(super) struct CheckArguments {
    /// A product token or a whole User-Agent value.
    #[arg(long, value_name = "AGENT")]
    agent: Option<String>,
    /// A saved robots.txt, or - for standard input; without it the file is fetched.
    #[arg(long, value_name = "FILE")]
    robots: Option<String>,
    /// By which text it is read: rfc9309, draft-2019, 1996, 1994, conner-2.0 or google.
    #[arg(long, value_name = "DIALECT")]
    dialect: Option<Dialect>,
    /// Judges every reading of a URL, as the proxy does.
    #[arg(long)]
    as_proxy: bool,
    /// One JSON object a URL instead of sentences.
    #[arg(long)]
    json: bool,
    /// JSON Lines in, JSON Lines out; - for standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["agent", "robots", "json", "urls"])]
    batch: Option<String>,
    /// A folder of saved files that are named by host, to judge --urls by.
    #[arg(long, value_name = "DIR", requires = "list", conflicts_with_all = ["batch", "robots", "json", "urls"])]
    robots_dir: Option<PathBuf>,
    /// A file with a URL on each line, or - for standard input.
    #[arg(long = "urls", value_name = "FILE", requires = "robots_dir")]
    list: Option<String>,
    /// The URLs.
    #[arg(value_name = "URL", required_unless_present_any = ["batch", "robots_dir"])]
    urls: Vec<String>,
}

impl CheckArguments {
    /// By what it is judged.
    fn policy<'a>(&self, terms: &'a Terms) -> &'a Arc<Policy> {
        if self.as_proxy {
            &terms.policy
        } else {
            &terms.as_sent
        }
    }
}

/// Decides the URLs of the command line, of a batch or of a list, and prints the
/// decisions.
pub(super) fn check(
    check: &CheckArguments,
    configuration: ConfigurationRequest<'_>,
) -> anyhow::Result<Exit> {
    let offline = || offline(configuration, check.dialect);
    if let Some(file) = &check.batch {
        return batch::batch((check, offline()?), open(file)?);
    }
    if let (Some(folder), Some(list)) = (&check.robots_dir, &check.list) {
        return listed::listed((check, &offline()?), folder, open(list)?);
    }
    let targets = check.urls.iter().map(|url| target(url));
    let targets = targets.collect::<Result<Vec<_>, _>>()?;
    match &check.robots {
        Some(file) => {
            let terms = offline()?;
            let decisions = by_file(file, check, &terms, targets)?;
            print(check, &terms, decisions, None)
        }
        None => {
            let settings = online(configuration, check.dialect)?;
            let terms = Terms::of(&settings);
            let decisions = by_fetched_files(&settings, check, &terms, targets)?;
            print(check, &terms, decisions, Some(clock::now()))
        }
    }
}

/// Prints the decisions; the files were fetched if there is a `now`.
fn print(
    check: &CheckArguments,
    terms: &Terms,
    decisions: Vec<Decision>,
    now: Option<Timestamp>,
) -> anyhow::Result<Exit> {
    let mut out = std::io::stdout().lock();
    let mut exit = Exit::Done;
    let mut before: Option<Arc<Snapshot>> = None;
    for decision in decisions {
        let explained = Explained::new(&decision, terms, now);
        if check.json {
            let mut line = Vec::new();
            append_json(&mut line, &Object::of(&explained))?;
            line.push(b'\n');
            out.write_all(&line)?;
        } else {
            out.write_all(sentences(&explained, before.as_deref()).as_bytes())?;
        }
        before.clone_from(&decision.evidence().snapshot);
        exit = worse(exit, decision.ruling());
    }
    Ok(exit)
}

/// Not knowing outweighs a refusal, and a refusal outweighs leave.
fn worse(exit: Exit, ruling: &Ruling) -> Exit {
    exit.max(match (ruling.verdict, ruling.reason) {
        (Verdict::Allow, _) => Exit::Done,
        (Verdict::Disallow, Reason::Unreachable | Reason::Egress) => Exit::Unknown,
        (Verdict::Disallow | Verdict::Later, _) => Exit::Not,
    })
}

/// A URL as people write it: blanks and controls count as their escapes.
fn target(url: &str) -> Result<Target, Usage> {
    let is_odd = |byte: u8| matches!(byte, 0..=b' ' | 0x7f);
    let escaped: Cow<'_, str> = if url.bytes().any(is_odd) {
        let escaped = url.chars().map(|letter| match letter {
            '\0'..=' ' | '\x7f' => format!("%{:02X}", u32::from(letter)),
            _ => letter.to_string(),
        });
        escaped.collect::<String>().into()
    } else {
        url.into()
    };
    let target = escaped.parse();
    target.map_err(|error| Usage::Arguments(inert(&format!("{url}: {error}"))))
}

fn inquiries(
    check: &CheckArguments,
    terms: &Terms,
    targets: Vec<Target>,
) -> impl Iterator<Item = Arc<Inquiry>> {
    let crawler = terms.crawler(check.agent.as_deref());
    targets.into_iter().map(move |target| {
        Arc::new(Inquiry {
            crawler: crawler.clone(),
            target,
            method: "GET".to_owned(),
        })
    })
}

/// Decides by one saved file, whatever the origins.
fn by_file(
    file: &str,
    check: &CheckArguments,
    terms: &Terms,
    targets: Vec<Target>,
) -> anyhow::Result<Vec<Decision>> {
    let body = saved::bytes(open(file)?, terms).context("cannot read robots.txt")?;
    let mut snapshots: HashMap<Origin, Arc<Snapshot>> = HashMap::new();
    let decisions = inquiries(check, terms, targets).map(|inquiry| {
        let origin = &inquiry.target.origin;
        let snapshot = snapshots
            .entry(origin.clone())
            .or_insert_with(|| Arc::new(saved::snapshot(origin, (200, body.clone()), terms)));
        decide(&inquiry, snapshot, check.policy(terms), terms.at)
    });
    Ok(decisions.collect())
}

/// Decides by the files that are there now, fetched as the proxy would.
fn by_fetched_files(
    settings: &Settings,
    check: &CheckArguments,
    terms: &Terms,
    targets: Vec<Target>,
) -> anyhow::Result<Vec<Decision>> {
    let agent = check.agent.as_deref().map(HeaderValue::from_str);
    let asker = Asker {
        client: None,
        user_agent: agent
            .transpose()
            .context("--agent cannot stand in a field")?,
        from: None,
    };
    runtime()?.block_on(async {
        let OriginClients { egress, robots, .. } = OriginClients::detached(settings)?;
        let decider = Decider {
            egress,
            names: None,
            robots,
        };
        let mut decisions = Vec::with_capacity(targets.len());
        for inquiry in inquiries(check, terms, targets) {
            let wait = RobotsWait {
                longest: Duration::MAX,
                client_gone: pending(),
            };
            let decided = decider.decide(&inquiry, check.policy(terms), &asker, wait);
            decisions.push(decided.await.decision);
        }
        Ok(decisions)
    })
}
