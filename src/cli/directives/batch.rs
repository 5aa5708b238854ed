//! `directives --batch`: pages as JSON Lines, each with its fields and who asks.

use std::borrow::Cow;
use std::io::BufRead;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::answer::Members;
use super::page::{self, Asked, Bounds};
use crate::cli::Exit;
use crate::cli::inert::append_json;
use crate::cli::json_lines::answer_each;
use crate::clock;
use crate::config::Settings;
use politesse_directives::Limits;

/// One line of a batch. Unknown keys are ignored.
#[derive(Debug, Deserialize)]
struct Question {
    #[serde(default)]
    id: Value,
    headers: Option<Vec<(String, String)>>,
    body: Option<String>,
    body_b64: Option<String>,
    content_type: Option<String>,
    agent: Option<String>,
    method: Option<String>,
    status: Option<u16>,
    now: Option<String>,
    field_limit: Option<usize>,
    scan_limit: Option<usize>,
}

/// The answer to it.
#[derive(Serialize)]
struct Answer<'a> {
    id: &'a Value,
    #[serde(flatten)]
    members: Members,
}

/// Answers every line of `input`, in order; a bad one with what is wrong.
pub(super) fn batch(settings: &Settings, input: impl BufRead) -> anyhow::Result<Exit> {
    answer_each(input, |line, text| {
        let question: Question = serde_json::from_slice(line)?;
        let answer = Answer {
            id: &question.id,
            members: question.members(settings)?,
        };
        append_json(text, &answer)?;
        Ok(Exit::Done)
    })
}

impl Question {
    fn members(&self, settings: &Settings) -> anyhow::Result<Members> {
        let identities = &settings.exchange.request.identities;
        let crawler = identities.crawler(self.agent.as_deref().map(str::as_bytes), None);
        let method = self.method.as_deref().unwrap_or("GET");
        let now = self.now.as_deref().map(str::parse::<Timestamp>);
        let asked = Asked {
            crawler: &crawler,
            method: Method::from_bytes(method.as_bytes()).context("method")?,
            status: StatusCode::from_u16(self.status.unwrap_or(200)).context("status")?,
            fields: self.fields()?,
            now: now.transpose().context("now")?.unwrap_or_else(clock::now),
            bounds: self.bounds(settings),
        };
        let (annotation, _) = asked.annotation(&*self.body()?)?;
        let form = settings.annotate.form(&crawler);
        Ok(Members::of(&annotation, &form))
    }

    /// A line's own limit of what is scanned counts whatever may be held: there
    /// is no crawler that waits.
    fn bounds(&self, settings: &Settings) -> Bounds {
        let configured = Bounds::of(settings);
        let limits = configured.limits;
        Bounds {
            limits: Limits {
                field_limit: self.field_limit.unwrap_or(limits.field_limit),
                scan_limit: self.scan_limit.unwrap_or(limits.scan_limit),
                ..limits
            },
            hold: self.scan_limit.map_or(configured.hold, |_| usize::MAX),
        }
    }

    fn fields(&self) -> anyhow::Result<HeaderMap> {
        let content_type = self.content_type.as_deref().map(bytes);
        let content_type = content_type.transpose().context("content_type")?;
        let headers = self.headers.iter().flatten();
        let headers = headers.map(|(name, value)| field(name, value));
        let headers = headers.collect::<Result<Vec<_>, _>>().context("headers")?;
        Ok(page::fields(content_type, headers)?)
    }

    /// The body, as it came; empty if there is none.
    fn body(&self) -> anyhow::Result<Cow<'_, [u8]>> {
        match (&self.body_b64, &self.body) {
            (Some(text), _) => Ok(STANDARD.decode(text).context("body_b64")?.into()),
            (None, Some(text)) => Ok(text.as_bytes().into()),
            (None, None) => Ok(Cow::default()),
        }
    }
}

fn field(name: &str, value: &str) -> anyhow::Result<(HeaderName, HeaderValue)> {
    let known = HeaderName::from_bytes(name.as_bytes());
    let name = known.with_context(|| format!("{name:?}"))?;
    let value = bytes(value).with_context(|| name.to_string())?;
    Ok((name, value))
}

/// A field value: its bytes are written as the letters of Latin-1.
fn bytes(text: &str) -> anyhow::Result<HeaderValue> {
    let bytes: Result<Vec<u8>, _> = text.chars().map(u8::try_from).collect();
    let bytes = bytes.context("a letter that is not of Latin-1")?;
    Ok(HeaderValue::from_bytes(&bytes)?)
}
