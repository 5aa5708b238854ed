//! `audit --archive`: the way to the archive of all nodes.
//!
//! Does not know what is asked.

use clap::Args;

#[cfg(feature = "postgres")]
use super::archive_source::ArchiveSource;
use super::source::DecisionSource;
#[cfg(feature = "postgres")]
use crate::archive::connection::ArchiveAccess;
#[cfg(feature = "postgres")]
use crate::archive::reader::NodeRecordsReader;
use crate::audit::reader::AuditReader;
use crate::cli::output::Usage;
#[cfg(feature = "postgres")]
use crate::cli::process::runtime;
use crate::config::Settings;

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
    pub(super) fn access(&self, settings: &Settings) -> anyhow::Result<ArchiveAccess> {
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
    pub(super) fn archive(&self, settings: &Settings) -> anyhow::Result<ArchiveSource> {
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
