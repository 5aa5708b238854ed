//! `audit --archive prune`: months of the archive that go, told or taken away.
//!
//! Does not know how entries are removed, nor how that is proved.

use anyhow::Context as _;

use super::archive_source::ArchiveSource;
use super::prune::PruneArguments;
use crate::archive::connection::ArchiveAccess;
use crate::archive::month::Month;
use crate::archive::month_drop::MonthDrop;
use crate::archive::removal::RemovableEntries;
use crate::archive::shipper::KeyedRecord;
use crate::audit::note::NoteSigner;
use crate::cli::output::{Exit, Usage, print, print_notice};
use crate::config::Settings;
use crate::serve::archive::shipped_record;

/// Removes the months from before a time, or tells what would be removed.
pub(super) fn prune(
    source: &ArchiveSource,
    access: ArchiveAccess,
    asked: &PruneArguments,
    settings: &Settings,
) -> anyhow::Result<Exit> {
    if !source.is_of_all_nodes() {
        let text = "a month goes with the entries of all nodes: leave --node out";
        return Err(Usage::Arguments(text.to_owned()).into());
    }
    let first_kept = Month::of(asked.before.as_microsecond());
    let mut months = source.ask(async |reader| reader.months().await)?;
    months.retain(|month| *month < first_kept);
    let months: Vec<Month> = months.into_iter().collect();
    let mut ends = Vec::new();
    if let Some(newest) = months.last() {
        ends = source.ask(async |reader| reader.ends_of(*newest).await)?;
        ends.iter().for_each(|end| warn_of_late(end, *newest));
    }
    ends.retain(|end| !end.is_empty());
    if ends.is_empty() {
        return print(&format!(
            "there is nothing to remove: a month (UTC) goes when all of it is from before that \
             time, so {first_kept} is the first that stays; and of a month what is in parts of \
             8,192 entries of a node that are over and sealed\n"
        ));
    }
    if asked.yes {
        remove(source, access, &months, settings)?;
    }
    let what = match asked.yes {
        true => "are removed",
        false => "would be removed",
    };
    for RemovableEntries { node, first, last } in &ends {
        print(&format!(
            "node {}: entries {first} to {last} {what}\n",
            node.label
        ))?;
    }
    print(match asked.yes {
        true => "",
        false => "--yes removes them\n",
    })
}

/// Tells of a node that may have entries of these months which have not arrived.
fn warn_of_late(end: &RemovableEntries, newest: Month) {
    let node = &end.node;
    if node.last_us.is_none_or(|last_us| last_us < newest.end_us()) {
        print_notice(&format!(
            "node {}: entries up to {} have arrived, all of them of these months or before; what \
             it ships of them later goes with a later prune",
            node.label, node.last
        ));
    }
}

/// Removes `months`, the oldest first, each in a transaction.
fn remove(
    source: &ArchiveSource,
    access: ArchiveAccess,
    months: &[Month],
    settings: &Settings,
) -> anyhow::Result<()> {
    let signer = signer(source, settings)?;
    let mut archive = source.wait(MonthDrop::open(access, signer.key().clone()))?;
    // A month at a time: what is under way when it breaks is made again, not all.
    for (at, month) in months.iter().enumerate() {
        let mut ends = source.ask(async |reader| reader.ends_of(*month).await)?;
        ends.retain(|end| !end.is_empty());
        if ends.is_empty() {
            continue;
        }
        let mut removals = Vec::new();
        for end in &ends {
            removals.push(source.ask(async |reader| reader.removal(end, &signer).await)?);
        }
        // Those before as well: what stayed of them may go now.
        source.wait(archive.remove(&months[..=at], &removals))?;
    }
    source.wait(archive.remove_unused_values())
}

/// Reads the key that signs what is removed: that of a node whose heads the archive has.
fn signer(source: &ArchiveSource, settings: &Settings) -> anyhow::Result<NoteSigner> {
    const WHERE: &str = "a removal is signed by the key of a node (audit.seal_key): prune the \
        archive at a node, as the user of its proxy";
    let opened = KeyedRecord::of(&shipped_record(settings)?).context(WHERE)?;
    let signer = opened.signer.context(WHERE)?;
    let keys = source.ask(async |reader| reader.seal_keys().await)?;
    // `verify` would not know the key, and find the removal.
    if !keys.iter().any(|known| known.key == *signer.key()) {
        let text = format!(
            "the archive has no head that the key of this record has signed ({}): prune it at a \
             node that ships to it",
            signer.key()
        );
        return Err(Usage::Arguments(text).into());
    }
    Ok(signer)
}
