//! `audit --archive verify`, `fetch` and `head`: records of nodes, made again from the
//! archive, and the heads over all of them.
//!
//! Does not know how a record is made again.

use std::env;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process;

use anyhow::Context as _;
use serde_json::{Map, Value, json};

use super::archive_source::ArchiveSource;
use super::export::require_new;
use super::rows::write_json;
use super::verification::{RecordVerification, VerifyArguments, exit_of};
use crate::archive::node_copy::SupersededEntries;
use crate::archive::nodes::ArchiveNode;
use crate::archive::reader::NodeRecordsReader;
use crate::archive::removal_check::{NodeSealKey, RemovedRange};
use crate::audit::filter::DecisionFilter;
use crate::audit::head::key_name;
use crate::audit::seal_check::SealEvidence;
use crate::cli::output::{Exit, OutputForm, Usage, print, print_notice};
use crate::inert::inert;

/// Name of the database in a folder that is fetched.
const DATABASE: &str = "audit.db";

/// Folder that is removed when this is dropped.
struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    fn new() -> anyhow::Result<Self> {
        let name = format!("politesse-verify-{}", process::id());
        let path = env::temp_dir().join(name);
        // Made here, or not at all: somebody else's could be read by others.
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // What cannot be removed is left to whoever cleans the folder of the system.
        fs::remove_dir_all(&self.0).unwrap_or_default();
    }
}

/// Verifies the record of each node, one after the other, and then the fleet heads.
pub(super) fn verify(source: &ArchiveSource, asked: &VerifyArguments) -> anyhow::Result<Exit> {
    if asked.bundle.is_some() {
        let text = "a bundle is verified by itself: leave --archive out";
        return Err(Usage::Arguments(text.to_owned()).into());
    }
    let evidence = asked.evidence()?;
    let filter = asked.filter(&evidence)?;
    let form = OutputForm::from(asked.json);
    let folder = TemporaryFolder::new()?;
    let keys = source.ask(async |reader| reader.seal_keys().await)?;
    let mut exit = Exit::Done;
    for node in source.asked_nodes()? {
        let question = NodeQuestion {
            filter: &filter,
            evidence: &evidence,
            keys: &keys,
            form,
        };
        let found = question.verify(source, &node, &folder.0.join(DATABASE));
        // All nodes, whatever is found at one: each is a record of its own.
        exit = exit.max(found.with_context(|| format!("node {}", node.label))?);
    }
    // They are about all nodes, and about all entries of each.
    if filter.is_open() && source.is_of_all_nodes() {
        exit = exit.max(verify_fleet_heads(source, &evidence, form)?);
    }
    Ok(exit)
}

/// Question about the record of one node.
struct NodeQuestion<'a> {
    filter: &'a DecisionFilter,
    evidence: &'a SealEvidence,
    /// Keys of all nodes.
    keys: &'a [NodeSealKey],
    form: OutputForm,
}

impl NodeQuestion<'_> {
    fn verify(
        &self,
        source: &ArchiveSource,
        node: &ArchiveNode,
        path: &Path,
    ) -> anyhow::Result<Exit> {
        let evidence = self.evidence_of(node);
        let question = async |reader: &NodeRecordsReader| {
            reader.check_removals(node, self.keys, &evidence).await
        };
        let removals = source.ask(question)?;
        if self.form == OutputForm::Columns {
            print_about(node, &removals.ranges)?;
        }
        let copied = source.copy_node(node, path)?;
        if let (OutputForm::Columns, Some(superseded)) = (self.form, copied.superseded) {
            print_superseded(superseded)?;
        }
        let strays = match copied.strays {
            0 => None,
            strays => Some(format!(
                "{strays} entries have numbers above {}, up to which all has arrived: nobody \
                 shipped them",
                copied.last
            )),
        };
        let verification = RecordVerification {
            about: about(node, &removals.ranges, copied.superseded),
            known: removals.findings.into_iter().chain(strays).collect(),
            filter: self.filter,
            evidence: &evidence,
            form: self.form,
        };
        Ok(exit_of(
            &verification.print(copied.copy.reader())?,
            verification.evidence,
        ))
    }

    /// Returns what is known from outside of the record of a node.
    fn evidence_of(&self, node: &ArchiveNode) -> SealEvidence {
        // Heads of other nodes may be in the same file.
        let name = key_name(&node.record);
        let is_own = |line: &str| line.lines().next() == Some(&name);
        SealEvidence {
            keys: self.evidence.keys.clone(),
            heads: (self.evidence.heads.iter())
                .filter(|head| is_own(head.note.text()))
                .cloned()
                .collect(),
            removers: self.keys.iter().map(|known| known.key.clone()).collect(),
        }
    }
}

/// Returns the first members of the JSON about a node.
fn about(
    node: &ArchiveNode,
    removed: &[RemovedRange],
    superseded: Option<SupersededEntries>,
) -> Map<String, Value> {
    let range = |range: &RemovedRange| {
        json!({
            "first": range.first,
            "last": range.last,
            "time": range.time,
            "signer": range.signer,
        })
    };
    let removed: Vec<Value> = removed.iter().map(range).collect();
    let superseded = superseded.map(|entries| {
        json!({
            "count": entries.count,
            "first": entries.first,
            "last": entries.last,
        })
    });
    Map::from_iter([
        ("node".to_owned(), Value::from(&*node.label)),
        ("removed".to_owned(), Value::from(removed)),
        ("superseded".to_owned(), json!(superseded)),
    ])
}

/// Prints that entries are not verified, since they are none of the record any more.
fn print_superseded(entries: SupersededEntries) -> anyhow::Result<()> {
    let SupersededEntries { count, first, last } = entries;
    writeln!(
        io::stdout(),
        "{count} entries from {first} to {last} had arrived before the node lost them (a backup in \
         the place of its record, or a power failure); its record notes these numbers as lost, and \
         what is here of them is not part of it"
    )?;
    Ok(())
}

/// Prints whose record is verified, and what is not there by order.
fn print_about(node: &ArchiveNode, removed: &[RemovedRange]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let title = format!(
        "node {} (record {}), entries up to {} have arrived",
        node.label, node.record, node.last
    );
    writeln!(out, "{}", inert(&title))?;
    for range in removed {
        let RemovedRange {
            first,
            last,
            time,
            signer,
        } = range;
        let line = format!("entries {first} to {last} were removed at {time}, signed by {signer}");
        writeln!(out, "{}", inert(&line))?;
    }
    Ok(())
}

fn verify_fleet_heads(
    source: &ArchiveSource,
    evidence: &SealEvidence,
    form: OutputForm,
) -> anyhow::Result<Exit> {
    let check = source.check_fleet_heads(evidence)?;
    let mut out = io::stdout().lock();
    match form {
        OutputForm::Json => {
            let found = json!({
                "fleet_heads": check.heads,
                "exported_fleet_heads": check.outside,
                "findings": check.findings,
            });
            write_json(&mut out, &found)?;
        }
        OutputForm::Columns => {
            writeln!(out, "heads of the fleet")?;
            for finding in &check.findings {
                writeln!(out, "{}", inert(finding))?;
            }
            let (heads, mismatches) = (check.heads, check.findings.len());
            writeln!(out, "{heads} heads over all nodes, {mismatches} mismatches")?;
        }
    }
    Ok(match check.findings.is_empty() {
        true => Exit::Done,
        false => Exit::Not,
    })
}

/// Makes the record of the one node that is asked about again, in `folder`.
pub(super) fn fetch(source: &ArchiveSource, folder: &Path) -> anyhow::Result<Exit> {
    let nodes = source.asked_nodes()?;
    let [node] = nodes.as_slice() else {
        let names: Vec<_> = nodes.iter().map(|node| &*node.label).collect();
        let text = format!(
            "the record of one node is made: name it with --node ({})",
            names.join(", ")
        );
        return Err(Usage::Arguments(text).into());
    };
    let path = folder.join(DATABASE);
    // Before anything is read: a record takes minutes.
    require_new(&path)?;
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.with_context(|| format!("cannot create {}", folder.display()))?;
    // Under another name until it is whole: half a record must not pass for one.
    let part = folder.join(format!("{DATABASE}.part"));
    let copied = source.copy_node(node, &part)?;
    let (last, strays) = (copied.last, copied.strays);
    copied.copy.close()?;
    // On disk before it has its name.
    let synced = File::open(&part).and_then(|file| file.sync_all());
    let named = synced.and_then(|()| fs::rename(&part, &path));
    named.with_context(|| format!("cannot write {}", path.display()))?;
    if 0 < strays {
        print_notice(&format!(
            "{strays} entries have numbers above {last}, up to which all has arrived: see politesse \
             audit --archive verify"
        ));
    }
    warn_of_removal(source, node)?;
    let shown = path.display();
    print(&format!(
        "{shown}: entries up to {last} of the record {}\n  check it: politesse --set \
         'audit.store=\"sqlite:{shown}\"' audit verify\n",
        node.record
    ))
}

/// Tells of entries that are not in a record which is fetched, and whose removal another
/// node has signed: by itself it does not know that key.
fn warn_of_removal(source: &ArchiveSource, node: &ArchiveNode) -> anyhow::Result<()> {
    let question = async |reader: &NodeRecordsReader| {
        let keys = reader.seal_keys().await?;
        let evidence = SealEvidence::default();
        reader.check_removals(node, &keys, &evidence).await
    };
    let removals = source.ask(question)?;
    if let Some(RemovedRange { last, signer, .. }) = removals.ranges.last()
        && *signer != *node.label
    {
        print_notice(&format!(
            "entries up to {last} were removed, which {signer} has signed: verify the record with \
             the keys of both (--key)"
        ));
    }
    Ok(())
}

/// Prints the newest head over all nodes, or that of the node that is asked about.
pub(super) fn print_head(source: &ArchiveSource) -> anyhow::Result<Exit> {
    if let Some(head) = source.newest_head()? {
        return print(&head);
    }
    print_notice("the archive has no head yet: one is made with each head of a node that arrives");
    Ok(Exit::Not)
}
