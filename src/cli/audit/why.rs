//! `audit why`: the decision about a URL with everything that led to it; for a URL that
//! was never requested, the decision that would be made.

use std::io::{self, Write};
use std::ops::ControlFlow;

use clap::Args;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::arguments::time;
use super::listing::Screen;
use super::robots::origin_line;
use super::rows::{FormArguments, RowForm, write_json};
use super::sections::RobotsLine;
use super::source::DecisionSource;
use crate::cli::check::{UnaskedQuestion, explain_by_snapshot};
use crate::cli::output::Exit;
use crate::config::Settings;
use politesse_base::clock;
use politesse_base::command_line::command;
use politesse_base::inert::{csv_line, inert, shell_word};
use politesse_decision::record::StoredRecord;
use politesse_pages::explain::Explanation;
use politesse_pages::explain::facts::{Facts, sentence};
use politesse_pages::explain::json::fetch_json;
use politesse_record::Direction;
use politesse_record::filter::DecisionFilter;
use politesse_record::removals::RemovalNote;
use politesse_record::robots_history::{OriginSnapshot, robots_for};
use politesse_robots::crawler::Crawler;
use politesse_robots::origin::Target;

/// Number of robots.txt lines shown before and after the deciding one.
const LINES_AROUND: u32 = 4;

/// Arguments of `audit why`.
#[derive(Debug, Args)]
pub(crate) struct WhyArguments {
    /// The URL.
    url: Target,
    /// Crawler that sent the request: a product token or a whole User-Agent value; by
    /// default any.
    #[arg(long, value_name = "AGENT")]
    agent: Option<String>,
    /// The latest decision up to this time; by default the latest.
    #[arg(long, value_name = "TIME", value_parser = time)]
    at: Option<Timestamp>,
    #[command(flatten)]
    form: FormArguments,
}

impl WhyArguments {
    /// Returns the filter of the decisions about the URL.
    fn filter(&self) -> anyhow::Result<DecisionFilter> {
        // The filter's end is exclusive, and the given time is inclusive: it may be
        // copied from a decision.
        let behind = |at: Timestamp| at.checked_add(SignedDuration::from_micros(1));
        Ok(DecisionFilter {
            until: self.at.map(behind).transpose()?,
            ..DecisionFilter::of_url(&self.url)
        })
    }

    /// Finds the decision in question, if there is one.
    fn find(&self, source: &DecisionSource) -> anyhow::Result<Option<Explanation>> {
        let filter = self.filter()?;
        let mut newest = None;
        source.visit(&filter, Direction::NewestFirst, |record| {
            if self
                .agent
                .as_deref()
                .is_none_or(|agent| is_by(&record, agent))
            {
                newest = Some(record);
            }
            match newest {
                Some(_) => ControlFlow::Break(()),
                None => ControlFlow::Continue(()),
            }
        })?;
        newest.map_or(Ok(None), |record| source.explain_row(&record))
    }
}

/// Reports whether `agent` sent the request: the fields are equal, or its first name is
/// one of the crawler's.
fn is_by(record: &StoredRecord, agent: &str) -> bool {
    if record.crawler.user_agent.as_deref() == Some(agent) {
        return true;
    }
    let crawler = Crawler::parse(agent);
    let Some(token) = crawler.token() else {
        return false;
    };
    let bound = record.ruling.crawler.iter();
    let mut names = bound.chain(&record.crawler.candidates);
    names.any(|name| name.eq_ignore_ascii_case(token.as_str()))
}

/// Prints why a URL was decided as it was.
pub(super) fn why(
    source: &DecisionSource,
    asked: &WhyArguments,
    settings: &Settings,
) -> anyhow::Result<Exit> {
    let (filter, form) = (asked.filter()?, asked.form.form());
    let removals = source.removals(&filter)?;
    let exit = match asked.find(source)? {
        Some(explanation) => {
            DecisionStory(explanation).print(form, &removals)?;
            Exit::Done
        }
        None => {
            UnaskedUrl::of(source, asked, settings)?.print(asked, &removals)?;
            Exit::Not
        }
    };
    source.tell_removals(&filter, form)?;
    Ok(exit)
}

/// Adds the removals and redactions that may affect the answer.
fn with_removals(mut json: Value, removals: &[RemovalNote]) -> Value {
    json["removals"] = removals.iter().map(RemovalNote::json).collect();
    json
}

/// A decision, as the answer to `why`.
struct DecisionStory(Explanation);

impl DecisionStory {
    fn print(&self, form: RowForm, removals: &[RemovalNote]) -> io::Result<()> {
        let mut out = io::stdout().lock();
        let lines = self.lines();
        match form {
            RowForm::Json => write_json(&mut out, &with_removals(self.json(&lines), removals)),
            RowForm::Csv => {
                let mut facts = Facts::of(&self.0);
                facts.0.insert(0, ("answer", sentence(&self.0.record)));
                write_csv(&facts, &lines, &mut out)
            }
            RowForm::Columns => {
                writeln!(out, "{}\n", inert(&sentence(&self.0.record)))?;
                out.write_all(Facts::of(&self.0).text("").as_bytes())?;
                let marked = self.0.record.ruling.line;
                if !lines.is_empty() {
                    writeln!(out, "\nrobots.txt around line {}:", marked.unwrap_or(1))?;
                }
                let screen = Screen::of_stdout();
                for line in &lines {
                    line.write(marked, screen, &mut out)?;
                }
                Ok(())
            }
        }
    }

    /// Returns the lines of the robots.txt around the deciding one.
    fn lines(&self) -> Vec<RobotsLine> {
        let (Some(robots), Some(line)) = (self.0.robots(), self.0.record.ruling.line) else {
            return Vec::new();
        };
        let around = line.saturating_sub(LINES_AROUND)..=line.saturating_add(LINES_AROUND);
        let near = robots.numbered_lines();
        near.filter(|(number, _)| around.contains(number))
            .map(|(number, text)| RobotsLine {
                number,
                text: text.into_owned(),
            })
            .collect()
    }

    fn json(&self, lines: &[RobotsLine]) -> Value {
        let mut json = self.0.json();
        json["asked"] = json!(true);
        json["answer"] = json!(sentence(&self.0.record));
        let line = |line: &RobotsLine| json!({ "line": line.number, "text": line.text });
        json["lines"] = lines.iter().map(line).collect();
        json
    }
}

/// Writes one line per fact and per line of the robots.txt.
fn write_csv(facts: &Facts, lines: &[RobotsLine], out: &mut impl Write) -> io::Result<()> {
    let mut text = csv_line(["fact", "value"]);
    for (name, value) in &facts.0 {
        text.push_str(&csv_line([name.trim(), value]));
    }
    for line in lines {
        let name = format!("robots.txt line {}", line.number);
        text.push_str(&csv_line([name.as_str(), &line.text]));
    }
    out.write_all(text.as_bytes())
}

/// A URL that was never requested, or not by this crawler, or not by that time.
struct UnaskedUrl {
    /// Number of decisions about it by other crawlers or at later times.
    others: u64,
    /// Time for which the question was asked.
    at: Timestamp,
    /// Whether the archive was queried.
    is_of_archive: bool,
    /// The robots.txt on record, with the resulting decision.
    by_robots: Option<RobotsAnswer>,
}

/// A robots.txt on record, and the decision by it.
struct RobotsAnswer {
    robots: OriginSnapshot,
    explanation: Explanation,
}

impl UnaskedUrl {
    fn of(
        source: &DecisionSource,
        asked: &WhyArguments,
        settings: &Settings,
    ) -> anyhow::Result<Self> {
        let at = asked.at.unwrap_or_else(clock::now);
        let crawler = Crawler::parse(asked.agent.as_deref().unwrap_or_default());
        let on_record = match source.record() {
            Some((reader, _)) => robots_for(reader, &asked.url.origin, &crawler, at)?,
            // The archive is not queried for files in force.
            None => None,
        };
        let by_robots = match on_record {
            None => None,
            Some(robots) => {
                // The current configuration judges, as in `check`: there is no decision
                // whose policy could be used.
                let dialect = settings.policy.terms().dialect;
                let snapshot = robots.snapshot(asked.url.origin.clone(), dialect)?;
                let question = UnaskedQuestion {
                    agent: asked.agent.as_deref(),
                    target: asked.url.clone(),
                    at,
                };
                Some(RobotsAnswer {
                    robots: robots.found,
                    explanation: explain_by_snapshot(settings, question, &snapshot),
                })
            }
        };
        Ok(Self {
            others: source.count(&DecisionFilter::of_url(&asked.url))?,
            at,
            is_of_archive: source.has_nodes(),
            by_robots,
        })
    }

    fn print(&self, asked: &WhyArguments, removals: &[RemovalNote]) -> io::Result<()> {
        let mut out = io::stdout().lock();
        match asked.form.form() {
            RowForm::Json => write_json(&mut out, &with_removals(self.json(asked), removals)),
            RowForm::Csv => write_csv(&self.facts(asked), &[], &mut out),
            RowForm::Columns => {
                writeln!(out, "{}", inert(&self.sentence(asked)))?;
                let Some(RobotsAnswer {
                    robots,
                    explanation,
                }) = &self.by_robots
                else {
                    let url = shell_word(&asked.url.to_string());
                    let missing = match self.is_of_archive {
                        true => "only a node can look up the robots.txt of its origin",
                        false => "no robots.txt of its origin is on record by then",
                    };
                    return writeln!(
                        out,
                        "{missing}; this fetches it:\n  {}",
                        command(format_args!("check --as-proxy {url}"))
                    );
                };
                writeln!(
                    out,
                    "robots.txt on record: {}",
                    inert(&origin_line(robots, self.at))
                )?;
                write!(
                    out,
                    "by it and this configuration:\n{}\n{}",
                    inert(&sentence(&explanation.record)),
                    Facts::of(explanation).text("  ")
                )
            }
        }
    }

    fn sentence(&self, asked: &WhyArguments) -> String {
        let who = match &asked.agent {
            Some(agent) => format!(" by {agent}"),
            None => String::new(),
        };
        let when = match asked.at {
            Some(at) => format!(" by {at:.0}"),
            None => String::new(),
        };
        let others = match self.others {
            0 => String::new(),
            others => format!(
                " ({others} other decisions about it: {})",
                command(format_args!(
                    "audit list --url {}",
                    shell_word(&asked.url.to_string())
                ))
            ),
        };
        format!("{}: never asked for{who}{when}{others}", asked.url)
    }

    fn facts(&self, asked: &WhyArguments) -> Facts {
        let mut facts = vec![("answer", self.sentence(asked))];
        if let Some(by) = &self.by_robots {
            facts.push(("robots", origin_line(&by.robots, self.at)));
            facts.push(("check", sentence(&by.explanation.record)));
            facts.append(&mut Facts::of(&by.explanation).0);
        }
        Facts(facts)
    }

    fn json(&self, asked: &WhyArguments) -> Value {
        let by_robots = self.by_robots.as_ref();
        json!({
            "asked": false,
            "url": asked.url.to_string(),
            "answer": self.sentence(asked),
            "others": self.others,
            "robots": by_robots.map(|by| fetch_json(&by.robots.snapshot)),
            "check": by_robots.map(|by| by.explanation.json()),
        })
    }
}
