//! `audit --archive`: the way to the archive of all nodes, and the removal of its months.
//!
//! Does not know what is asked.

use clap::Args;

#[cfg(feature = "postgres")]
use super::archive_source::ArchiveSource;
#[cfg(feature = "postgres")]
use super::order::reason_of_user;
#[cfg(feature = "postgres")]
use super::prune::PruneArguments;
use super::source::DecisionSource;
use crate::cli::output::Usage;
#[cfg(feature = "postgres")]
use crate::cli::output::{Exit, print};
#[cfg(feature = "postgres")]
use crate::cli::process::runtime;
use crate::config::Settings;
#[cfg(feature = "postgres")]
use politesse_archive::connection::ArchiveAccess;
#[cfg(feature = "postgres")]
use politesse_archive::month::{Month, MonthDrop};
#[cfg(feature = "postgres")]
use politesse_archive::reader::NodeRecordsReader;
use politesse_record::reader::AuditReader;

/// Arguments that choose the archive.
#[derive(Debug, Args)]
pub(crate) struct ArchiveArguments {
    /// Ask the archive of all nodes in place of the record: the one at URL
    /// (--archive=postgres://HOST/DATABASE), or that of audit.archive.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = ""
    )]
    archive: Option<String>,
    /// One node alone, by its name or by the id of its record; with --archive.
    #[arg(long, global = true, value_name = "NODE")]
    node: Option<String>,
}

impl ArchiveArguments {
    /// Reports whether the archive is asked.
    pub(super) fn is_asked(&self) -> bool {
        self.archive.is_some()
    }

    /// Returns how the archive is reached.
    #[cfg(feature = "postgres")]
    fn access(&self, settings: &Settings) -> anyhow::Result<ArchiveAccess> {
        let url = self.archive.as_deref().unwrap_or_default();
        let mut options = settings.archive.clone();
        if !url.is_empty() {
            let wrong = |error| Usage::Arguments(format!("--archive: {error}"));
            options.address = Some(url.parse().map_err(wrong)?);
        }
        Ok(ArchiveAccess::new(&options)?)
    }

    /// Connects to the archive.
    #[cfg(feature = "postgres")]
    fn archive(&self, settings: &Settings) -> anyhow::Result<ArchiveSource> {
        let access = self.access(settings)?;
        let runtime = runtime()?;
        let reader = runtime.block_on(NodeRecordsReader::open(&access, access.timeout))?;
        ArchiveSource::new(runtime, reader, self.node.clone())
    }

    /// Opens what is asked.
    pub(super) fn source(&self, settings: &Settings) -> anyhow::Result<DecisionSource> {
        match &self.archive {
            #[cfg(feature = "postgres")]
            Some(_) => Ok(DecisionSource::Archive(Box::new(self.archive(settings)?))),
            #[cfg(not(feature = "postgres"))]
            Some(_) => {
                let text = "this program was built without archives (feature postgres)";
                Err(Usage::Arguments(text.to_owned()).into())
            }
            None if self.node.is_some() => {
                let text = "--node goes with --archive: a record is that of one node";
                Err(Usage::Arguments(text.to_owned()).into())
            }
            None => DecisionSource::of_record(AuditReader::open(&settings.audit.path)?),
        }
    }
}

/// Removes the months from before a time, or tells which would be removed.
#[cfg(feature = "postgres")]
pub(super) fn prune_archive(
    archive: &ArchiveArguments,
    asked: &PruneArguments,
    settings: &Settings,
) -> anyhow::Result<Exit> {
    let source = archive.archive(settings)?;
    if !source.is_of_all_nodes() {
        let text = "a month goes with the entries of all nodes: leave --node out";
        return Err(Usage::Arguments(text.to_owned()).into());
    }
    let first_kept = Month::of(asked.before);
    let mut months = source.ask(async |reader| reader.months().await)?;
    // A month that is not over yet, or that the time is in, stays.
    months.retain(|month, _| *month < first_kept);
    if months.is_empty() {
        return print(&format!(
            "there is nothing to remove: a month (UTC) goes when all of it is from before that \
             time, so {first_kept} is the first that stays\n"
        ));
    }
    if !asked.yes {
        for (month, decisions) in &months {
            print(&format!(
                "month {month}, {decisions} decisions: would be removed\n"
            ))?;
        }
        return print("--yes removes them, with the entries of all nodes\n");
    }
    let access = archive.access(settings)?;
    let mut removal = source.wait(MonthDrop::open(access))?;
    let order = reason_of_user(&asked.why);
    // A month at a time: what is done stays done if a later one fails.
    for (month, decisions) in &months {
        source.wait(removal.drop_month(*month, &order))?;
        print(&format!("month {month}, {decisions} decisions: removed\n"))?;
    }
    // Once for all months: it reads every decision that is left.
    source.wait(removal.remove_unused())?;
    Ok(Exit::Done)
}
