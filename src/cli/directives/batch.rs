//! `directives --batch`: pages as JSON Lines, each with its fields and the agent that
//! asks.
//!
//! Does not know what the directives mean.

use std::borrow::Cow;
use std::io::BufRead;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::json::AnnotationJson;
use super::page::{PageLimits, PageQuery, fields};
use crate::cli::lines::{BatchAnswer, answer_each};
use crate::cli::output::Exit;
use crate::config::Settings;
use politesse_base::clock;
use politesse_base::inert::append_json;
use politesse_directives::DirectiveLimits;

/// Line of a batch. Unknown keys are ignored.
#[derive(Debug, Deserialize)]
struct PageQuestion {
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

/// Answers every line of `input` in order; an invalid line with an error.
pub(super) fn batch(settings: &Settings, input: impl BufRead) -> anyhow::Result<Exit> {
    answer_each(input, |line, text| {
        let question: PageQuestion = serde_json::from_slice(line)?;
        let answer = BatchAnswer {
            id: &question.id,
            members: question.answer(settings)?,
        };
        append_json(text, &answer)?;
        Ok(Exit::Done)
    })
}

impl PageQuestion {
    fn answer(&self, settings: &Settings) -> anyhow::Result<AnnotationJson> {
        let agent = self.agent.as_deref().map(str::as_bytes);
        let crawler = settings.exchange.request.identities.crawler(agent, None);
        let method = self.method.as_deref().unwrap_or("GET");
        let now = self.now.as_deref().map(str::parse::<Timestamp>);
        let query = PageQuery {
            crawler: &crawler,
            method: Method::from_bytes(method.as_bytes()).context("method")?,
            status: StatusCode::from_u16(self.status.unwrap_or(200)).context("status")?,
            fields: self.fields()?,
            now: now.transpose().context("now")?.unwrap_or_else(clock::now),
            limits: self.limits(settings),
        };
        let (annotation, _) = query.annotation(&*self.body()?)?;
        let form = settings.annotate.form(&crawler);
        Ok(AnnotationJson::new(&annotation, &form))
    }

    fn limits(&self, settings: &Settings) -> PageLimits {
        let configured = PageLimits::new(settings);
        let scan = configured.scan;
        PageLimits {
            scan: DirectiveLimits {
                field_limit: self.field_limit.unwrap_or(scan.field_limit),
                scan_limit: self.scan_limit.unwrap_or(scan.scan_limit),
                ..scan
            },
            // An explicit scan limit applies alone: the limit on held bytes exists
            // because a crawler waits, and here none does.
            hold_bytes: self
                .scan_limit
                .map_or(configured.hold_bytes, |_| usize::MAX),
        }
    }

    fn fields(&self) -> anyhow::Result<HeaderMap> {
        let content_type = self.content_type.as_deref().map(latin_1).transpose();
        let headers: anyhow::Result<Vec<_>> = self
            .headers
            .iter()
            .flatten()
            .map(|(name, value)| field(name, value))
            .collect();
        Ok(fields(
            content_type.context("content_type")?,
            headers.context("headers")?,
        )?)
    }

    /// Returns the body as received; empty without one.
    fn body(&self) -> anyhow::Result<Cow<'_, [u8]>> {
        match (&self.body_b64, &self.body) {
            (Some(text), _) => Ok(STANDARD.decode(text).context("body_b64")?.into()),
            (None, Some(text)) => Ok(text.as_bytes().into()),
            (None, None) => Ok(Cow::default()),
        }
    }
}

fn field(name: &str, value: &str) -> anyhow::Result<(HeaderName, HeaderValue)> {
    let parsed = HeaderName::from_bytes(name.as_bytes()).with_context(|| format!("{name:?}"))?;
    let value = latin_1(value).with_context(|| parsed.to_string())?;
    Ok((parsed, value))
}

/// Reads a field value whose bytes are written as Latin-1 letters.
fn latin_1(text: &str) -> anyhow::Result<HeaderValue> {
    let bytes: Result<Vec<u8>, _> = text.chars().map(u8::try_from).collect();
    let value = bytes.context("a letter outside Latin-1")?;
    Ok(HeaderValue::from_bytes(&value)?)
}
