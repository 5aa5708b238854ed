//! `check`: decides URLs by a saved robots.txt, or by the site's current one.
//!
//! Calls the function that the proxy calls, and gives the standard's verdict on the URL
//! as sent; `--as-proxy` judges every reading of it. Does not know how a decision is
//! made.

mod batch;
pub(super) mod context;
mod list;
pub(super) mod saved;

use std::collections::HashMap;
use std::future::pending;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use http::HeaderValue;
use jiff::Timestamp;

pub(super) use self::context::CheckArguments;
use self::context::{CheckContext, exit_of, target};
use self::saved::SavedAnswer;
use super::configuration::ConfigurationRequest;
use super::lines::open;
use super::output::Exit;
use super::process::runtime;
use crate::config::Settings;
use crate::serve::OriginClients;
use politesse_base::clock;
use politesse_base::inert::{append_json, inert};
use politesse_decision::decide::{Decision, Inquiry, decide};
use politesse_decision::snapshot::Snapshot;
use politesse_pages::explain::Explanation;
use politesse_pages::explain::facts::{Facts, sentence};
use politesse_proxy::decider::{Decider, RobotsWait};
use politesse_robots::origin::{Origin, Target};
use politesse_robots_cache::fetch::Asker;

/// Decides the URLs of the command line, of a batch or of a list, and prints the
/// decisions.
///
/// # Errors
///
/// Invalid arguments, or a file that cannot be read.
pub(super) fn check(
    arguments: &CheckArguments,
    configuration: ConfigurationRequest<'_>,
) -> anyhow::Result<Exit> {
    let offline = || CheckContext::offline(&arguments.terms, configuration);
    let agent = arguments.agent.as_deref();
    if let Some(file) = &arguments.batch {
        return batch::batch(&offline()?, open(file)?);
    }
    if let (Some(folder), Some(list)) = (&arguments.robots_dir, &arguments.list) {
        let context = offline()?.for_agent(agent);
        return list::list(arguments, &context, folder, open(list)?);
    }
    // Invalid arguments are reported before any file is read.
    let urls = arguments.urls.iter().map(|url| target(url));
    let targets = urls.collect::<Result<Vec<_>, _>>()?;
    if let Some(file) = &arguments.robots {
        let context = offline()?.for_agent(agent);
        let saved = SavedAnswer::read(open(file)?, context.bytes_max);
        let decisions = decide_by_file(
            &saved.context("cannot read robots.txt")?,
            &context,
            inquiries(arguments, &context, targets),
        );
        return print(arguments, &context, decisions, None);
    }
    let settings = arguments.terms.settings(configuration)?;
    let context = CheckContext::configured(&arguments.terms, &settings).for_agent(agent);
    let inquiries = inquiries(arguments, &context, targets);
    let decisions = decide_by_fetching(arguments, &settings, &context, inquiries)?;
    print(arguments, &context, decisions, Some(clock::now()))
}

/// Request that was never made: its crawler, URL and supposed time.
pub(super) struct UnaskedQuestion<'a> {
    /// `User-Agent` of the request, if the user named one.
    pub(super) agent: Option<&'a str>,
    /// The URL.
    pub(super) target: Target,
    /// Time of the request.
    pub(super) at: Timestamp,
}

/// Explains what the proxy would decide with the configuration and `snapshot`. Resolves
/// no name, so it does not check whether the address may be dialled.
pub(super) fn explain_by_snapshot(
    settings: &Settings,
    question: UnaskedQuestion<'_>,
    snapshot: &Arc<Snapshot>,
) -> Explanation {
    let context = CheckContext::of_proxy(settings, question.at);
    let inquiry = Arc::new(context.inquiry(question.agent, question.target));
    let policy = context.policy_for(question.agent);
    let decision = decide(&inquiry, snapshot, &policy, context.at);
    Explanation::of_evidence(decision.evidence(), &context.proxy_policy, None)
}

fn inquiries(
    arguments: &CheckArguments,
    context: &CheckContext,
    targets: Vec<Target>,
) -> impl Iterator<Item = Arc<Inquiry>> {
    let agent = arguments.agent.as_deref();
    let targets = targets.into_iter();
    targets.map(move |target| Arc::new(context.inquiry(agent, target)))
}

/// Decides by one saved file, for any origin.
fn decide_by_file(
    saved: &SavedAnswer,
    context: &CheckContext,
    inquiries: impl Iterator<Item = Arc<Inquiry>>,
) -> Vec<Decision> {
    // URLs of one origin share a snapshot, so that its notes are printed once for URLs
    // in a row.
    let mut snapshots: HashMap<Origin, Arc<Snapshot>> = HashMap::new();
    let decisions = inquiries.map(|inquiry| {
        let origin = &inquiry.target.origin;
        let snapshot = snapshots
            .entry(origin.clone())
            .or_insert_with(|| Arc::new(saved.snapshot(origin, context)));
        decide(&inquiry, snapshot, &context.policy, context.at)
    });
    decisions.collect()
}

/// Decides by the sites' current files, fetched as the proxy would fetch them.
fn decide_by_fetching(
    arguments: &CheckArguments,
    settings: &Settings,
    context: &CheckContext,
    inquiries: impl Iterator<Item = Arc<Inquiry>>,
) -> anyhow::Result<Vec<Decision>> {
    let agent = arguments.agent.as_deref().map(HeaderValue::from_str);
    let asker = Asker {
        client: None,
        entry: None,
        user_agent: agent
            .transpose()
            .context("--agent is not valid in a field")?,
        from: None,
    };
    runtime()?.block_on(async {
        let OriginClients { egress, robots, .. } = OriginClients::detached(settings)?;
        let decider = Decider {
            egress,
            names: None,
            robots,
        };
        let mut decisions = Vec::new();
        for inquiry in inquiries {
            let wait = RobotsWait {
                longest: Duration::MAX,
                abort: pending(),
            };
            let policy = || Arc::clone(&context.policy);
            let decided = decider.decide(&inquiry, policy, &asker, wait);
            decisions.push(decided.await.decision);
        }
        Ok(decisions)
    })
}

/// Prints the decisions. The age of a fetched robots.txt is counted up to `asked_at`.
fn print(
    arguments: &CheckArguments,
    context: &CheckContext,
    decisions: Vec<Decision>,
    asked_at: Option<Timestamp>,
) -> anyhow::Result<Exit> {
    let mut out = std::io::stdout().lock();
    let mut exit = Exit::Done;
    let mut previous: Option<Arc<Snapshot>> = None;
    for decision in decisions {
        let explanation =
            Explanation::of_evidence(decision.evidence(), &context.proxy_policy, asked_at);
        let snapshot = &decision.evidence().snapshot;
        if arguments.json {
            let mut line = Vec::new();
            append_json(&mut line, &explanation.json())?;
            line.push(b'\n');
            out.write_all(&line)?;
        } else {
            let mut facts = Facts::of(&explanation);
            // Compared by address: two files with the same text belong to two origins,
            // and both are described.
            if let (Some(previous), Some(now)) = (&previous, snapshot)
                && Arc::ptr_eq(previous, now)
            {
                facts.leave_out_file();
            }
            let heading = inert(&sentence(&explanation.record));
            write!(out, "{heading}\n{}", facts.text("  "))?;
        }
        previous.clone_from(snapshot);
        exit = exit.max(exit_of(decision.ruling()));
    }
    Ok(exit)
}
