//! `check --batch`: questions as JSON Lines, each with its own robots.txt.
//!
//! Does not know how a decision is made.

use std::collections::HashMap;
use std::io::BufRead;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::Value;

use super::context::{CheckContext, exit_of, target};
use super::saved::SavedAnswer;
use crate::cli::lines::{BatchAnswer, answer_each};
use crate::cli::output::Exit;
use politesse_base::inert::append_json;
use politesse_decision::decide::ruling;
use politesse_pages::explain::json::RulingJson;
use politesse_robots::Dialect;

/// Line of a batch. Unknown keys are ignored.
#[derive(Debug, Deserialize)]
struct CheckQuestion {
    #[serde(default)]
    id: Value,
    robots: Option<String>,
    robots_b64: Option<String>,
    #[serde(default)]
    agent: String,
    url: String,
    dialect: Option<String>,
    status: Option<u16>,
}

/// Answers every line of `input` in order; an invalid line with an error.
pub(super) fn batch(context: &CheckContext, input: impl BufRead) -> anyhow::Result<Exit> {
    // Policies are made once per dialect, not per line.
    let mut by_dialect: HashMap<Dialect, CheckContext> = HashMap::new();
    answer_each(input, |line, text| {
        let question: CheckQuestion = serde_json::from_slice(line)?;
        let dialect = match &question.dialect {
            Some(name) => name.parse()?,
            None => context.dialect(),
        };
        let context = by_dialect
            .entry(dialect)
            .or_insert_with(|| context.in_dialect(dialect));
        // A line without an agent means a crawler with an empty name.
        let inquiry = context.inquiry(Some(&question.agent), target(&question.url)?);
        let snapshot = question.saved()?.snapshot(&inquiry.target.origin, context);
        let policy = context.policy_for(Some(&question.agent));
        let ruling = ruling(&inquiry, &snapshot, &policy, context.at);
        let answer = BatchAnswer {
            id: &question.id,
            members: RulingJson::new(&ruling, &inquiry.crawler),
        };
        append_json(text, &answer)?;
        Ok(exit_of(&ruling))
    })
}

impl CheckQuestion {
    /// Returns the file in the line; with a status, none is needed.
    fn saved(&self) -> anyhow::Result<SavedAnswer> {
        let body = match (&self.robots_b64, &self.robots) {
            (Some(text), _) => STANDARD.decode(text).context("robots_b64")?,
            (None, Some(text)) => text.clone().into_bytes(),
            (None, None) if self.status.is_some() => Vec::new(),
            (None, None) => anyhow::bail!("one of robots, robots_b64 and status is wanted"),
        };
        Ok(SavedAnswer {
            status: self.status.unwrap_or(200),
            body: body.into(),
            whole: true,
        })
    }
}
