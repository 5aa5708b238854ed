//! `audit report`: a page about a period, for readers who know nothing about
//! robots.txt, and a page to send to the owner of a site.
//!
//! Does not know what the page looks like.

use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::Args;

use super::arguments::{CommonArguments, host};
use super::export::write_new_file;
use crate::cli::output::{Exit, print, print_notice};
use crate::config::Settings;
use politesse_pages::page::report::{ReportKind, make_report};
use politesse_record::filter::DecisionFilter;
use politesse_record::reader::AuditReader;
use politesse_record::report::report_facts;

/// Arguments of `audit report`.
#[derive(Debug, Args)]
pub(crate) struct ReportArguments {
    #[command(flatten)]
    common: CommonArguments,
    /// Makes the page for the owner of this host: without other hosts and without
    /// clients.
    #[arg(long, value_name = "HOST", value_parser = host, conflicts_with = "host")]
    for_site: Option<String>,
    /// File to create; by default stdout.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Prints only the digest of the report: SHA-256 of the leaves of its decisions.
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
    let contact = settings.exchange.contact.as_deref();
    let kind = match asked.for_site {
        Some(_) => ReportKind::Site,
        None => ReportKind::Operator,
    };
    let report = make_report(reader, &filter, kind, contact)?;
    match &asked.output {
        None => io::stdout().lock().write_all(report.page.as_bytes())?,
        Some(path) => {
            write_new_file(path, |mut file| Ok(file.write_all(report.page.as_bytes())?))?;
            print_notice(&format!(
                "{}: {} decisions",
                path.display(),
                report.summary.requests
            ));
        }
    }
    Ok(match report.is_confirmed {
        true => Exit::Done,
        false => Exit::Not,
    })
}
