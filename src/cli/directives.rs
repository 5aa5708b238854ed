//! `directives`: what the annotation would say of a page.
//!
//! It asks what the proxy asks, of a page at hand in place of one that comes
//! in; nothing is fetched.

mod answer;
mod batch;
mod object;
mod page;
mod said;
mod sentences;

use std::io::{self, BufRead, Read as _};
use std::str::FromStr;

use anyhow::Context as _;
use clap::Args;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use thiserror::Error;

use self::object::Object;
use self::page::{Asked, Bounds};
use self::sentences::sentences;
use super::inert::append_json;
use super::input::open;
use super::{Exit, Usage, print, report};
use crate::clock;
use crate::config::Settings;
use politesse_directives::{Annotation, Form, Listed, SIGNATURE_BYTES, is_html};
use politesse_robots::crawler::Crawler;

/// Which page, and for whom.
#[derive(Debug, Args)]
pub(super) struct Directives {
    /// A product token or a whole User-Agent value; without it, what everyone is told.
    #[arg(long, value_name = "AGENT")]
    agent: Option<String>,
    /// A field of the response; one of these for each.
    #[arg(long = "header", value_name = "NAME: VALUE")]
    fields: Vec<Field>,
    /// Its Content-Type.
    #[arg(long, value_name = "TYPE")]
    content_type: Option<HeaderValue>,
    /// Its status.
    #[arg(long, value_name = "STATUS", default_value = "200")]
    status: StatusCode,
    /// The method that it answers.
    #[arg(long, value_name = "METHOD", default_value = "GET", requires = "page")]
    method: Method,
    /// One JSON object instead of sentences.
    #[arg(long)]
    json: bool,
    /// JSON Lines in, JSON Lines out; - for standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "agent", "fields", "content_type", "status", "method", "json", "page",
    ])]
    batch: Option<String>,
    /// The body as it came, or - for standard input; without it there are the fields alone.
    #[arg(value_name = "FILE", required_unless_present_any = ["batch", "fields", "content_type"])]
    page: Option<String>,
}

/// A field of a response, as it is written on the command line.
#[derive(Debug, Clone)]
struct Field {
    name: HeaderName,
    value: HeaderValue,
}

/// A text that is no field. Ends the command with code 2.
#[derive(Debug, Error)]
#[error("a field is wanted as NAME: VALUE, such as 'X-Robots-Tag: noindex'")]
struct NoField;

impl FromStr for Field {
    type Err = NoField;

    fn from_str(text: &str) -> Result<Self, NoField> {
        let (name, value) = text.split_once(':').ok_or(NoField)?;
        let value = value.trim_matches([' ', '\t']);
        Ok(Self {
            name: name.parse().map_err(|_| NoField)?,
            value: HeaderValue::from_bytes(value.as_bytes()).map_err(|_| NoField)?,
        })
    }
}

/// What was found out about the page of the command line.
struct Found<'a> {
    /// How the field is written.
    form: Form<'static>,
    crawler: &'a Crawler,
    annotation: Annotation,
    body: Body,
    /// The name of the annotation field.
    field: &'a HeaderName,
}

impl Found<'_> {
    /// The field without preferences, which are no directives.
    fn directives(&self) -> String {
        self.annotation.header_value(&Form {
            preferences: Listed::No,
            ..self.form
        })
    }
}

/// How much of the body was looked at, in bytes.
enum Body {
    /// There was none.
    Absent,
    /// As many as it took.
    Read(u64),
    /// As many as it took to find that a body without a type is not HTML.
    Other(u64),
}

pub(super) fn directives(question: &Directives, settings: &Settings) -> anyhow::Result<Exit> {
    if let Some(file) = &question.batch {
        return batch::batch(settings, open(file)?);
    }
    let identities = &settings.exchange.request.identities;
    let crawler = identities.crawler(question.agent.as_deref().map(str::as_bytes), None);
    let asked = question.asked(&crawler, settings)?;
    let (annotation, body) = match question.look_at_page(&asked) {
        Ok(seen) => seen,
        Err(error) => {
            report(&error);
            return Ok(Exit::Unknown);
        }
    };
    let field = &settings.annotate.header;
    let found = Found {
        form: settings.annotate.form(&crawler),
        crawler: &crawler,
        annotation,
        body,
        field,
    };
    tell(question, &found)
}

impl Directives {
    fn asked<'a>(&self, crawler: &'a Crawler, settings: &Settings) -> Result<Asked<'a>, Usage> {
        let fields = self.fields.iter().cloned();
        let fields = fields.map(|Field { name, value }| (name, value));
        let fields = page::fields(self.content_type.clone(), fields);
        Ok(Asked {
            crawler,
            method: match self.page {
                Some(_) => self.method.clone(),
                None => Method::HEAD,
            },
            status: self.status,
            fields: fields.map_err(|error| Usage::Arguments(error.to_string()))?,
            now: clock::now(),
            bounds: Bounds::of(settings),
        })
    }

    /// Reads as much of the page as it takes.
    fn look_at_page(&self, asked: &Asked<'_>) -> anyhow::Result<(Annotation, Body)> {
        let Some(file) = &self.page else {
            let (annotation, _) = asked.annotation(&[][..])?;
            return Ok((annotation, Body::Absent));
        };
        let seen = look_at(asked, open(file)?);
        seen.with_context(|| format!("cannot read {file}"))
    }
}

fn look_at(asked: &Asked<'_>, mut page: impl BufRead) -> io::Result<(Annotation, Body)> {
    let speaks = [CONTENT_TYPE, CONTENT_ENCODING];
    let is_bare = !speaks.iter().any(|name| asked.fields.contains_key(name));
    // A pipe may give less at a time than it takes to tell.
    let mut start = Vec::new();
    page.by_ref()
        .take(SIGNATURE_BYTES as u64)
        .read_to_end(&mut start)?;
    let is_other = is_bare && !is_html(None, &start);
    let (annotation, bytes) = asked.annotation(start.as_slice().chain(page))?;
    let body = if is_other {
        Body::Other(bytes)
    } else {
        Body::Read(bytes)
    };
    Ok((annotation, body))
}

fn tell(question: &Directives, found: &Found<'_>) -> anyhow::Result<Exit> {
    if !question.json {
        return print(&sentences(found));
    }
    let mut line = Vec::new();
    append_json(&mut line, &Object::of(found))?;
    line.push(b'\n');
    print(&String::from_utf8(line)?)
}
