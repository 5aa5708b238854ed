//! `audit report`: a page about a time, for people who know nothing of robots.txt,
//! and the page that one sends to the owner of a site.
//!
//! The page is one file of HTML without scripts and links. Does not know how the
//! facts are found.

mod common;
mod gathered;
mod operator;
mod site;
mod tables;

use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::Args;

use self::gathered::{ReportData, ReportScope};
use super::arguments::{CommonArguments, host};
use super::export::write_new_file;
use crate::audit::filter::DecisionFilter;
use crate::audit::reader::AuditReader;
use crate::audit::report::report_facts;
use crate::cli::output::{Exit, print, print_notice};
use crate::config::Settings;

/// Arguments of `audit report`.
#[derive(Debug, Args)]
pub(crate) struct ReportArguments {
    #[command(flatten)]
    common: CommonArguments,
    /// The page for the owner of this host: nothing of other hosts, nor of clients.
    #[arg(long, value_name = "HOST", value_parser = host, conflicts_with = "host")]
    for_site: Option<String>,
    /// The file to be made; without it, stdout.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The digest of the report alone: SHA-256 of the leaves of its decisions.
    #[arg(long, conflicts_with = "output")]
    digest: bool,
}

/// Writes the report.
pub(super) fn print_report(
    reader: &AuditReader,
    asked: &ReportArguments,
    settings: &Settings,
) -> anyhow::Result<Exit> {
    let mut filter = DecisionFilter::try_from(&asked.common)?;
    if let Some(site) = &asked.for_site {
        filter.host = Some(site.clone());
    }
    if asked.digest {
        let facts = report_facts(reader, &filter)?;
        return print(&format!("{}\n", facts.digest));
    }
    let scope = ReportScope::new(&filter);
    let contact = settings.exchange.contact.as_deref();
    let data = ReportData::gather(reader, scope, contact)?;
    let page = match asked.for_site {
        Some(_) => site::document(&data),
        None => operator::document(&data),
    };
    let text = page.into_string();
    match &asked.output {
        None => io::stdout().lock().write_all(text.as_bytes())?,
        Some(path) => {
            write_new_file(path, |mut file| Ok(file.write_all(text.as_bytes())?))?;
            print_notice(&format!(
                "{}: {} decisions",
                path.display(),
                data.totals.sums.requests
            ));
        }
    }
    Ok(match data.check.is_good() {
        true => Exit::Done,
        false => Exit::Not,
    })
}
