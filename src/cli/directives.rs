//! `directives`: prints the annotation that the proxy would give a page.
//!
//! Calls the function that the proxy uses, with a given page in place of a response.
//! Does not fetch anything.

mod batch;
mod json;
mod page;
mod sentences;

use std::str::FromStr;

use anyhow::Context as _;
use clap::Args;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use thiserror::Error;

use self::json::PageJson;
use self::page::{PageBody, PageLimits, PageQuery, PageReport, fields};
use self::sentences::sentences;
use super::lines::open;
use super::output::{Exit, Usage, print, report};
use crate::config::Settings;
use politesse_base::clock;
use politesse_base::inert::append_json;
use politesse_directives::Annotation;
use politesse_robots::crawler::Crawler;

/// Arguments of `directives`.
#[derive(Debug, Args)]
pub(super) struct DirectivesArguments {
    /// Product token or whole User-Agent value; without it, only the directives for
    /// everyone.
    #[arg(long, value_name = "AGENT")]
    agent: Option<String>,
    /// A field of the response; repeat the option for further fields.
    #[arg(long = "header", value_name = "NAME: VALUE")]
    fields: Vec<FieldArgument>,
    /// Content-Type of the page.
    #[arg(long, value_name = "TYPE")]
    content_type: Option<HeaderValue>,
    /// Status of the response.
    #[arg(long, value_name = "STATUS", default_value = "200")]
    status: StatusCode,
    /// Method of the request that was answered.
    #[arg(long, value_name = "METHOD", default_value = "GET", requires = "page")]
    method: Method,
    /// Prints one JSON object instead of sentences.
    #[arg(long)]
    json: bool,
    /// Reads and prints JSON Lines; - for standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "agent", "fields", "content_type", "status", "method", "json", "page",
    ])]
    batch: Option<String>,
    /// The body as received, or - for standard input; without it, only the fields are
    /// read.
    #[arg(value_name = "FILE", required_unless_present_any = ["batch", "fields", "content_type"])]
    page: Option<String>,
}

/// Field of a response, as written on the command line.
#[derive(Debug, Clone)]
struct FieldArgument {
    name: HeaderName,
    value: HeaderValue,
}

/// Error for a text that is not a field. Ends the command with code 2.
#[derive(Debug, Error)]
#[error("a field is wanted as NAME: VALUE, such as 'X-Robots-Tag: noindex'")]
struct InvalidField;

impl FromStr for FieldArgument {
    type Err = InvalidField;

    fn from_str(text: &str) -> Result<Self, InvalidField> {
        let (name, value) = text.split_once(':').ok_or(InvalidField)?;
        let value = value.trim_matches([' ', '\t']);
        Ok(Self {
            name: name.parse().map_err(|_| InvalidField)?,
            value: HeaderValue::from_bytes(value.as_bytes()).map_err(|_| InvalidField)?,
        })
    }
}

/// Prints the directives of a page, or of each page of a batch.
///
/// # Errors
///
/// Invalid arguments, or a batch that cannot be read.
pub(super) fn directives(
    arguments: &DirectivesArguments,
    settings: &Settings,
) -> anyhow::Result<Exit> {
    if let Some(file) = &arguments.batch {
        return batch::batch(settings, open(file)?);
    }
    let agent = arguments.agent.as_deref().map(str::as_bytes);
    let crawler = settings.exchange.request.identities.crawler(agent, None);
    let query = arguments.query(&crawler, settings)?;
    let (annotation, body) = match arguments.read_page(&query) {
        Ok(read) => read,
        Err(error) => {
            // The user asks about the page: that it cannot be read is an answer, code
            // 3, and not a failure.
            report(&error);
            return Ok(Exit::Unknown);
        }
    };
    let page = PageReport {
        form: settings.annotate.form(&crawler),
        crawler: &crawler,
        annotation,
        body,
        field: &settings.annotate.header,
    };
    if !arguments.json {
        return print(&sentences(&page));
    }
    let mut line = Vec::new();
    append_json(&mut line, &PageJson::new(&page))?;
    line.push(b'\n');
    print(&String::from_utf8(line)?)
}

impl DirectivesArguments {
    fn query<'a>(&self, crawler: &'a Crawler, settings: &Settings) -> Result<PageQuery<'a>, Usage> {
        let named = self.fields.iter().cloned();
        let fields = fields(
            self.content_type.clone(),
            named.map(|FieldArgument { name, value }| (name, value)),
        );
        Ok(PageQuery {
            crawler,
            method: match self.page {
                Some(_) => self.method.clone(),
                // Without a body only the fields can be judged, as for a HEAD.
                None => Method::HEAD,
            },
            status: self.status,
            fields: fields.map_err(|error| Usage::Arguments(error.to_string()))?,
            now: clock::now(),
            limits: PageLimits::new(settings),
        })
    }

    fn read_page(&self, query: &PageQuery<'_>) -> anyhow::Result<(Annotation, PageBody)> {
        match &self.page {
            Some(file) => query
                .read_page(open(file)?)
                .with_context(|| format!("cannot read {file}")),
            None => Ok((query.annotation(&[][..])?.0, PageBody::Absent)),
        }
    }
}
