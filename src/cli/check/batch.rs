//! `check --batch`: questions as JSON Lines, each with its own robots.txt.

use std::collections::HashMap;
use std::io::BufRead;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::answer::Members;
use super::terms::Terms;
use super::{CheckArguments, saved, target, worse};
use crate::cli::inert::append_json;
use crate::cli::lines::answer_each;
use crate::cli::output::Exit;
use crate::decision::decide::{Inquiry, Ruling, ruling};
use politesse_robots::Dialect;

/// One line of a batch. Unknown keys are ignored.
#[derive(Debug, Deserialize)]
struct Question {
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

/// The answer to it.
#[derive(Serialize)]
struct Answer<'a> {
    id: &'a Value,
    #[serde(flatten)]
    members: Members<'a>,
}

/// Answers every line of `input`, in order; a bad one with what is wrong.
pub(super) fn batch(
    (check, terms): (&CheckArguments, Terms),
    input: impl BufRead,
) -> anyhow::Result<Exit> {
    let mut batch = Batch {
        check,
        terms,
        by_dialect: HashMap::new(),
    };
    answer_each(input, |line, text| {
        let ruling = batch.answer(line, text)?;
        Ok(worse(Exit::Done, &ruling))
    })
}

/// A batch under way.
struct Batch<'a> {
    check: &'a CheckArguments,
    /// By what a line is judged that names no dialect.
    terms: Terms,
    by_dialect: HashMap<Dialect, Terms>,
}

impl Batch<'_> {
    /// Appends the answer to one line, and tells what it says.
    fn answer(&mut self, line: &[u8], text: &mut Vec<u8>) -> anyhow::Result<Ruling> {
        let question: Question = serde_json::from_slice(line)?;
        let dialect = question.dialect.as_deref().map(str::parse).transpose()?;
        let check = self.check;
        let terms = self.terms(dialect);
        let inquiry = Inquiry {
            crawler: terms.crawler(Some(&question.agent)),
            target: target(&question.url)?,
            method: "GET".to_owned(),
        };
        let answer = (question.status.unwrap_or(200), question.body()?);
        let snapshot = saved::snapshot(&inquiry.target.origin, answer, terms);
        let ruling = ruling(&inquiry, &snapshot, check.policy(terms), terms.at);
        let answer = Answer {
            id: &question.id,
            members: Members::of(&ruling, &inquiry.crawler),
        };
        append_json(text, &answer)?;
        Ok(ruling)
    }

    fn terms(&mut self, dialect: Option<Dialect>) -> &Terms {
        match dialect {
            None => &self.terms,
            Some(dialect) => {
                let terms = &self.terms;
                let kept = self.by_dialect.entry(dialect);
                kept.or_insert_with(|| terms.in_dialect(Some(dialect)))
            }
        }
    }
}

impl Question {
    /// The file that it brings; none is needed where there is a status.
    fn body(&self) -> anyhow::Result<Vec<u8>> {
        match (&self.robots_b64, &self.robots) {
            (Some(text), _) => STANDARD.decode(text).context("robots_b64"),
            (None, Some(text)) => Ok(text.clone().into_bytes()),
            (None, None) if self.status.is_some() => Ok(Vec::new()),
            (None, None) => anyhow::bail!("one of robots, robots_b64 and status is wanted"),
        }
    }
}
