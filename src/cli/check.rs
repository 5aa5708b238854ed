//! `check`: decides URLs, by a saved robots.txt or the one that is there now.
//!
//! It calls the `decide` that the proxy calls, and gives the standard's verdict
//! on the URL as sent; `--as-proxy` judges every reading of it.

mod terms;

use std::io::{BufRead, Read as _, Write as _};
use std::sync::Arc;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use clap::Args;
use http::HeaderValue;
use serde::Deserialize;
use serde_json::{Value, json};

pub(super) use self::terms::Configuration;
use self::terms::Terms;
use super::audit::inert;
use super::{Exit, Usage, runtime};
use crate::clock;
use crate::config::Settings;
use crate::origins::robots_fetch::Asker;
use crate::rules::crawler::Crawler;
use crate::rules::decision::{Decision, Inquiry, Reason, Verdict, decide};
use crate::rules::origin::Target;
use crate::rules::overrides::{Action, Override};
use crate::rules::robots::access::{
    AccessResult, Cause, Copy, Snapshot, StatusMeaning, status_meaning,
};
use crate::rules::robots::{RobotsTxt, whole_lines};
use crate::serve;

/// What to decide, and by what.
#[derive(Debug, Args)]
pub(super) struct Check {
    /// A product token or a whole User-Agent value.
    #[arg(long, value_name = "AGENT")]
    agent: Option<String>,
    /// A saved robots.txt, or - for standard input; without it the file is fetched.
    #[arg(long, value_name = "FILE")]
    robots: Option<String>,
    /// Judges every reading of a URL, as the proxy does.
    #[arg(long)]
    as_proxy: bool,
    /// One JSON object a URL instead of sentences.
    #[arg(long)]
    json: bool,
    /// JSON Lines in, JSON Lines out; - for standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["agent", "robots", "json", "urls"])]
    batch: Option<String>,
    /// The URLs.
    #[arg(value_name = "URL", required_unless_present = "batch")]
    urls: Vec<String>,
}

pub(super) fn check<F: Fn() -> Result<Settings, Usage>>(
    check: &Check,
    configuration: &Configuration<F>,
) -> anyhow::Result<Exit> {
    if let Some(file) = &check.batch {
        return batch((check, &configuration.offline()?), open(file)?);
    }
    let targets = check
        .urls
        .iter()
        .map(|url| target(url))
        .collect::<Result<Vec<_>, _>>()?;
    let agent = check.agent.as_deref();
    let inquiries = |terms: &Terms| -> Vec<_> {
        let crawler = terms.crawler(agent);
        let inquiry = |target| inquiry(target, crawler.clone());
        targets.into_iter().map(inquiry).collect()
    };
    let (asked, terms): (Vec<Asked>, _) = match &check.robots {
        Some(file) => {
            let terms = configuration.offline()?;
            let body = read_all(open(file)?)?;
            let saved =
                |inquiry: Arc<Inquiry>| (Arc::new(saved(&inquiry.target, body.clone())), inquiry);
            (inquiries(&terms).into_iter().map(saved).collect(), terms)
        }
        None => {
            let settings = (configuration.read)()?;
            let terms = Terms::of(&settings);
            (fetched(&settings, (inquiries(&terms), agent))?, terms)
        }
    };
    let mut exit = Exit::Done;
    for (snapshot, inquiry) in asked {
        let decision = decided(&inquiry, &snapshot, (&terms, check));
        if check.json {
            writeln!(std::io::stdout(), "{}", object(&decision))?;
        } else {
            write!(std::io::stdout(), "{}", sentences(&decision, &terms))?;
        }
        exit = worse(exit, &decision);
    }
    Ok(exit)
}

fn inquiry(target: Target, crawler: Crawler) -> Arc<Inquiry> {
    Arc::new(Inquiry {
        crawler,
        target,
        method: "GET".to_owned(),
    })
}

fn decided(
    inquiry: &Arc<Inquiry>,
    snapshot: &Arc<Snapshot>,
    (terms, check): (&Terms, &Check),
) -> Decision {
    let policy = if check.as_proxy {
        &terms.policy
    } else {
        &terms.as_sent
    };
    decide(inquiry, snapshot, (policy, terms.at))
}

/// Not knowing outweighs a refusal, and a refusal outweighs leave.
fn worse(exit: Exit, decision: &Decision) -> Exit {
    let ruling = decision.ruling();
    match (ruling.verdict, ruling.reason) {
        (Verdict::Disallow, Reason::Unreachable | Reason::Egress) => Exit::Unknown,
        (Verdict::Disallow, _) if exit == Exit::Done => Exit::Not,
        _ => exit,
    }
}

fn open(file: &str) -> anyhow::Result<Box<dyn BufRead>> {
    if file == "-" {
        return Ok(Box::new(std::io::stdin().lock()));
    }
    let opened = std::fs::File::open(file).map_err(|source| Usage::File {
        path: file.into(),
        source,
    })?;
    Ok(Box::new(std::io::BufReader::new(opened)))
}

/// A saved file, as far as a fetch would keep it.
fn read_all(mut input: Box<dyn BufRead>) -> anyhow::Result<Bytes> {
    let mut body = Vec::new();
    input
        .read_to_end(&mut body)
        .context("cannot read robots.txt")?;
    Ok(whole_lines(&body, RobotsTxt::BYTES_MIN).to_vec().into())
}

/// A URL as people write it: blanks and controls count as their escapes.
fn target(url: &str) -> Result<Target, Usage> {
    let escaped: String = url
        .chars()
        .map(|letter| match letter {
            '\0'..=' ' | '\x7f' => format!("%{:02X}", u32::from(letter)),
            _ => letter.to_string(),
        })
        .collect();
    escaped
        .parse()
        .map_err(|error| Usage::Arguments(format!("{url}: {error}")))
}

fn saved(target: &Target, body: Bytes) -> Snapshot {
    answered(
        target,
        Some(200),
        AccessResult::Successful(Box::new(Copy::new(body))),
    )
}

fn answered(target: &Target, status: Option<u16>, result: AccessResult) -> Snapshot {
    let now = clock::now();
    Snapshot {
        origin: target.origin.clone(),
        token: None,
        url: target.origin.robots_txt().to_string(),
        status,
        fetched_at: now,
        expires_at: now,
        result,
    }
}

type Asked = (Arc<Snapshot>, Arc<Inquiry>);

/// The snapshots of the origins as they are now, fetched as the proxy would.
fn fetched(
    settings: &Settings,
    (inquiries, agent): (Vec<Arc<Inquiry>>, Option<&str>),
) -> anyhow::Result<Vec<Asked>> {
    let user_agent = match agent {
        Some(agent) => {
            Some(HeaderValue::from_str(agent).context("--agent cannot stand in a field")?)
        }
        None => None,
    };
    let asker = Asker {
        user_agent,
        from: None,
    };
    runtime()?.block_on(async {
        let origins = serve::origins(settings)?;
        let mut asked = Vec::with_capacity(inquiries.len());
        for inquiry in inquiries {
            let snapshot = origins.robots.snapshot(&inquiry, &asker).await;
            asked.push((snapshot, inquiry));
        }
        Ok(asked)
    })
}

/// What a program gets to know of a decision.
fn object(decision: &Decision) -> Value {
    let evidence = decision.evidence();
    let (ruling, inquiry) = (&evidence.ruling, &evidence.inquiry);
    let competing: Vec<Value> = competing(decision)
        .into_iter()
        .map(|(line, text)| json!({"line": line, "rule": text}))
        .collect();
    let mut object = verdict_members(decision);
    object["url"] = inquiry.target.to_string().into();
    object["competing"] = competing.into();
    object["reading"] = ruling.reading.clone().into();
    object["override"] = ruling.overriding.as_deref().map_or(Value::Null, |entry| {
        json!({
            "action": entry.action.as_str(),
            "reason": entry.reason,
            "until": entry.action.until().map(|end| end.to_string()),
        })
    });
    object["robots"] = evidence
        .snapshot
        .as_deref()
        .map_or(Value::Null, |snapshot| {
            json!({
                "url": snapshot.url,
                "status": snapshot.status,
                "sha256": snapshot.copy().map(|copy| copy.digest.to_string()),
            })
        });
    object
}

/// The members of the batch format, less the id.
fn verdict_members(decision: &Decision) -> Value {
    let evidence = decision.evidence();
    let (ruling, crawler) = (&evidence.ruling, &evidence.inquiry.crawler);
    let token = ruling.token.as_ref().or_else(|| crawler.token());
    let candidates: Vec<_> = crawler
        .candidates()
        .iter()
        .map(ToString::to_string)
        .collect();
    json!({
        "verdict": ruling.verdict,
        "reason": ruling.reason,
        "line": ruling.rule.as_ref().map(|rule| rule.line),
        "rule": ruling.rule.as_ref().map(|rule| rule.text.as_str()),
        "group": (!ruling.group.is_empty()).then_some(&ruling.group),
        "token": token.map(ToString::to_string),
        "candidates": candidates,
        "crawl_delay": ruling.crawl_delay,
    })
}

/// The other rules that match, most specific first.
fn competing(decision: &Decision) -> Vec<(u32, String)> {
    let evidence = decision.evidence();
    let Some(copy) = evidence.snapshot.as_deref().and_then(Snapshot::copy) else {
        return Vec::new();
    };
    let path = evidence.inquiry.target.path_and_query();
    let decided_by = evidence.ruling.rule.as_ref().map(|rule| rule.line);
    // With `enforcement.candidates` it may be another than the first.
    let bound = evidence.ruling.token.as_ref();
    let bound = bound.map(|token| Crawler::known_as(std::slice::from_ref(token), None));
    let crawler = bound.as_ref().unwrap_or(&evidence.inquiry.crawler);
    let binding = copy.robots.binding(crawler);
    binding
        .competing(evidence.ruling.reading.as_deref().unwrap_or(path))
        .into_iter()
        .filter(|rule| Some(rule.line()) != decided_by)
        .map(|rule| (rule.line(), rule.text().into_owned()))
        .collect()
}

/// What a person gets to know of a decision.
fn sentences(decision: &Decision, terms: &Terms) -> String {
    let evidence = decision.evidence();
    let ruling = &evidence.ruling;
    let token = ruling
        .token
        .as_ref()
        .or_else(|| evidence.inquiry.crawler.token());
    let who = token.map_or("a crawler without a name".to_owned(), ToString::to_string);
    let mut lines = vec![format!("{}: {}", evidence.inquiry.target, ruling.verdict)];
    match ruling.overriding.as_deref() {
        Some(entry) if ruling.is_overridden() => {
            lines.push(format!("  for {who}: {}", operator(entry)));
            lines.push(format!("  set aside: {}", because(decision)));
        }
        Some(entry) => lines.push(format!("  for {who}: {}", operator(entry))),
        None => lines.push(format!("  for {who}: {}", because(decision))),
    }
    let standing = if ruling.reason == Reason::Override {
        "set aside"
    } else {
        "less specific"
    };
    lines.extend(
        competing(decision)
            .into_iter()
            .map(|(line, rule)| format!("  {standing}: line {line}, \"{rule}\"")),
    );
    if let Some(seconds) = ruling.crawl_delay {
        lines.push(format!("  crawl delay: {seconds} s"));
    }
    if let Some(snapshot) = &evidence.snapshot {
        let as_proxy = decide(&evidence.inquiry, snapshot, (&terms.policy, terms.at));
        let refused = as_proxy.ruling().verdict == Verdict::Disallow;
        if let Some(reading) = as_proxy
            .ruling()
            .reading
            .as_ref()
            .filter(|_| refused && ruling.reading.is_none())
        {
            lines.push(format!(
                "  the proxy would refuse it: servers read the path as {reading}"
            ));
        }
    }
    lines.into_iter().map(|line| inert(&line) + "\n").collect()
}

/// What an override says, with its reason and its end.
fn operator(entry: &Override) -> String {
    let verb = match entry.action {
        Action::Allow { .. } => "allows",
        Action::Deny { .. } => "denies",
    };
    let end = entry.action.until();
    let until = end.map_or(String::new(), |end| format!(" until {end}"));
    format!("the operator {verb} it{until}: {}", entry.reason)
}

fn because(decision: &Decision) -> String {
    let evidence = decision.evidence();
    let ruling = &evidence.ruling;
    let group = ruling.group.join(", ");
    let status = evidence
        .snapshot
        .as_deref()
        .and_then(|snapshot| snapshot.status);
    match (ruling.reason, &ruling.rule) {
        (_, Some(rule)) => {
            let reading = ruling.reading.as_ref().map_or(String::new(), |path| {
                format!(", on the path read as {path}")
            });
            format!(
                "line {}, \"{}\", in the group of {group}{reading}",
                rule.line, rule.text
            )
        }
        (Reason::NoRule, _) => format!("no rule in the group of {group} matches"),
        (Reason::NoGroup, _) => "no group is for it, nor for everyone".to_owned(),
        (Reason::RobotsTxt, _) => "robots.txt itself is always allowed".to_owned(),
        (Reason::Unavailable, _) => format!(
            "there is no robots.txt (status {})",
            status.unwrap_or_default()
        ),
        (Reason::Restricted, _) => format!(
            "robots.txt is restricted (status {})",
            status.unwrap_or_default()
        ),
        (reason, _) => match evidence
            .snapshot
            .as_deref()
            .map(|snapshot| &snapshot.result)
        {
            Some(AccessResult::Unreachable(Cause::Status)) => {
                format!("{reason}, status {}", status.unwrap_or_default())
            }
            Some(AccessResult::Unreachable(cause)) => format!("{reason}, {cause}"),
            Some(AccessResult::Successful(_) | AccessResult::Unavailable) | None => {
                reason.to_string()
            }
        },
    }
}

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
    status: Option<u16>,
}

fn batch((check, terms): (&Check, &Terms), input: Box<dyn BufRead>) -> anyhow::Result<Exit> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut exit = Exit::Done;
    for (number, line) in (1..).zip(input.split(b'\n')) {
        let line = line.context("cannot read the batch")?;
        if line.trim_ascii().is_empty() {
            continue;
        }
        match answer(&line, (terms, check)) {
            Ok((answer, decision)) => {
                writeln!(out, "{answer}")?;
                exit = worse(exit, &decision);
            }
            Err(error) => {
                writeln!(
                    out,
                    "{}",
                    json!({"line": number, "error": format!("{error:#}")})
                )?;
                exit = if exit == Exit::Done { Exit::Not } else { exit };
            }
        }
    }
    out.flush()?;
    Ok(exit)
}

fn answer(line: &[u8], (terms, check): (&Terms, &Check)) -> anyhow::Result<(Value, Decision)> {
    let question: Question = serde_json::from_slice(line)?;
    let body = match (&question.robots_b64, &question.robots) {
        (Some(text), _) => STANDARD.decode(text).context("robots_b64")?,
        (None, Some(text)) => text.clone().into_bytes(),
        (None, None) if question.status.is_some() => Vec::new(),
        (None, None) => anyhow::bail!("one of robots, robots_b64 and status is wanted"),
    };
    let crawler = terms.crawler(Some(&question.agent));
    let inquiry = inquiry(target(&question.url)?, crawler);
    let status = question.status.unwrap_or(200);
    let result = match status_meaning(status) {
        StatusMeaning::Parse => {
            let body = whole_lines(&body, RobotsTxt::BYTES_MIN).to_vec();
            AccessResult::Successful(Box::new(Copy::new(body.into())))
        }
        StatusMeaning::Unavailable => AccessResult::Unavailable,
        StatusMeaning::Redirect | StatusMeaning::Unreachable => {
            AccessResult::Unreachable(Cause::Status)
        }
    };
    let snapshot = Arc::new(answered(&inquiry.target, Some(status), result));
    let decision = decided(&inquiry, &snapshot, (terms, check));
    let mut answer = verdict_members(&decision);
    answer["id"] = question.id;
    Ok((answer, decision))
}
