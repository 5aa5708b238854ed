//! `audit --archive`: access to the archive of all nodes, and the removal of its
//! months.
//!
//! Does not know the questions.

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
use politesse_archive::reader::FleetArchiveReader;
use politesse_record::reader::AuditReader;

/// Arguments that choose the archive.
#[derive(Debug, Args)]
pub(crate) struct ArchiveArguments {
    /// Uses the archive of all nodes instead of the record: the one at URL
    /// (--archive=postgres://HOST/DATABASE), or the one of audit.archive.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = ""
    )]
    archive: Option<String>,
    /// Selects one node, by its name or by the id of its record; with --archive.
    #[arg(long, global = true, value_name = "NODE")]
    node: Option<String>,
}

impl ArchiveArguments {
    /// Reports whether the archive is to be used.
    pub(super) fn is_asked(&self) -> bool {
        self.archive.is_some()
    }

    /// Returns the access to the archive.
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
        let reader = runtime.block_on(FleetArchiveReader::open(&access, access.timeout))?;
        ArchiveSource::new(runtime, reader, self.node.clone())
    }

    /// Opens the source to query.
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
                let text = "--node needs --archive: a record belongs to one node";
                Err(Usage::Arguments(text.to_owned()).into())
            }
            None => DecisionSource::of_record(AuditReader::open(&settings.audit.path)?),
        }
    }
}

/// Removes the months before a time, or shows which would be removed.
#[cfg(feature = "postgres")]
pub(super) fn prune_archive(
    archive: &ArchiveArguments,
    asked: &PruneArguments,
    settings: &Settings,
) -> anyhow::Result<Exit> {
    let source = archive.archive(settings)?;
    if !source.is_of_all_nodes() {
        let text = "a month is removed with the entries of all nodes: leave out --node";
        return Err(Usage::Arguments(text.to_owned()).into());
    }
    let first_kept = Month::of(asked.before);
    let mut months = source.ask(async |reader| reader.months().await)?;
    // The current month, and the month of the given time, stay.
    months.retain(|month, _| *month < first_kept);
    if months.is_empty() {
        return print(&format!(
            "there is nothing to remove: a month (UTC) is removed once all of it is older than \
             that time, so {first_kept} is the first to stay\n"
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
    // One month at a time: earlier removals stay in effect if a later one fails.
    for (month, decisions) in &months {
        source.wait(removal.drop_month(*month, &order))?;
        print(&format!("month {month}, {decisions} decisions: removed\n"))?;
    }
    // Once for all months, because it reads every remaining decision.
    source.wait(removal.remove_unused())?;
    Ok(Exit::Done)
}
