//! `audit bundle`, and `audit verify` of a bundle.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use super::arguments::CommonArguments;
use super::export::write_new_file;
use crate::audit::bundle::{BundleVerification, verify_bundle, write_bundle};
use crate::audit::filter::DecisionFilter;
use crate::audit::note::NoteKey;
use crate::audit::reader::AuditReader;
use crate::cli::audit::write_json;
use crate::cli::output::{Exit, OutputForm, Usage};
use crate::command_line::command;
use crate::inert::{inert, shell_quoted};
use crate::page::bundle_page::bundle_page;

/// Arguments of `audit bundle`.
#[derive(Debug, Args)]
pub(crate) struct BundleArguments {
    #[command(flatten)]
    which: CommonArguments,
    /// The archive to be made.
    #[arg(long, short, value_name = "FILE.zip")]
    output: PathBuf,
}

/// Makes a bundle of the decisions that are asked for.
pub(super) fn bundle(reader: &AuditReader, asked: &BundleArguments) -> anyhow::Result<Exit> {
    let filter = DecisionFilter::try_from(&asked.which)?;
    let path = &asked.output;
    let made = write_new_file(path, |file| {
        let out = BufWriter::new(file);
        Ok(write_bundle(reader, &filter, &bundle_page, out)?)
    })?;
    let mut out = io::stdout().lock();
    let name = path.display().to_string();
    writeln!(
        out,
        "{}: {} decisions, {} robots.txt files, proved by {} hashes and the head of {} entries",
        inert(&name),
        made.decisions,
        made.robots,
        made.hashes,
        made.size,
    )?;
    if 0 < made.unsealed {
        writeln!(
            out,
            "  left out: {} decisions that no head covers yet (audit.seal_interval)",
            made.unsealed
        )?;
    }
    writeln!(
        out,
        "  whoever gets it: politesse audit verify {} --key KEY\n  the key, on another way: {}",
        shell_quoted(&name),
        command("audit key")
    )?;
    Ok(Exit::Done)
}

/// Verifies the bundle at `path`, and prints what was found.
pub(super) fn print_bundle(
    path: &Path,
    keys: &[NoteKey],
    form: OutputForm,
) -> anyhow::Result<Exit> {
    let file = File::open(path).map_err(|source| Usage::File {
        path: path.to_owned(),
        source,
    })?;
    let mut out = BufWriter::new(io::stdout().lock());
    let mut findings = Vec::new();
    let bundle = verify_bundle(file, keys, &bundle_page, |finding| match form {
        // A closed stdout is found out by the last line.
        OutputForm::Columns => drop(writeln!(out, "{}", inert(&finding))),
        OutputForm::Json => findings.push(finding),
    })?;
    match form {
        OutputForm::Json => write_json(&mut out, &bundle_json(&bundle, &findings))?,
        OutputForm::Columns => {
            for line in summary(&bundle) {
                writeln!(out, "{}", inert(&line))?;
            }
        }
    }
    out.flush()?;
    Ok(match (bundle.mismatches, bundle.is_signer_known) {
        (0, true) => Exit::Done,
        (0, false) => Exit::Unknown,
        _ => Exit::Not,
    })
}

fn bundle_json(bundle: &BundleVerification, findings: &[String]) -> Value {
    json!({
        "findings": findings,
        "decisions": bundle.decisions,
        "decided": bundle.decided,
        "form_only": bundle.form_only,
        "query_withheld": bundle.query_withheld,
        "redacted": bundle.redacted,
        "other_revision": bundle.other_revision,
        "mismatches": bundle.mismatches,
        "robots": bundle.robots,
        "record": bundle.head.origin,
        "sealed": bundle.head.tree.size,
        "sealed_at": bundle.head.time.to_string(),
        "signer": bundle.signer,
        "signer_known": bundle.is_signer_known,
    })
}

fn summary(bundle: &BundleVerification) -> Vec<String> {
    let head = &bundle.head;
    let mut lines = vec![
        format!(
            "{} decisions, {} decided again, {} checked for form, {} mismatches, {} robots.txt files",
            bundle.decisions, bundle.decided, bundle.form_only, bundle.mismatches, bundle.robots
        ),
        format!(
            "head of {}: {} entries, {}",
            head.origin, head.tree.size, head.time
        ),
    ];
    if 0 < bundle.query_withheld {
        lines.push(format!(
            "{} not decided again: their query is not kept (audit.query_strings)",
            bundle.query_withheld
        ));
    }
    if 0 < bundle.redacted {
        lines.push(format!(
            "{} not decided again: client and URL were redacted",
            bundle.redacted
        ));
    }
    if 0 < bundle.other_revision {
        lines.push(format!(
            "{} decided otherwise by another revision",
            bundle.other_revision
        ));
    }
    lines.push(match (bundle.mismatches, bundle.is_signer_known) {
        (0, true) => "proved: signed by a key of --key".to_owned(),
        (0, false) => format!(
            "consistent, signer unknown: whoever changes a bundle can sign it anew; compare this \
             key with one from somebody you trust (--key): {}",
            bundle.signer
        ),
        _ => "not proved".to_owned(),
    });
    lines
}
