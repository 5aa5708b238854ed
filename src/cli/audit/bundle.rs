//! `audit bundle`, and `audit verify` of a bundle.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use super::arguments::CommonArguments;
use super::export::write_new_file;
use crate::cli::audit::write_json;
use crate::cli::output::{Exit, OutputForm, Usage};
use politesse_base::command_line::command;
use politesse_base::inert::{inert, shell_quoted};
use politesse_record::bundle::{BundleError, BundleVerification, verify_bundle, write_bundle};
use politesse_record::filter::DecisionFilter;
use politesse_record::note::NoteKey;
use politesse_record::reader::AuditReader;

/// Arguments of `audit bundle`.
#[derive(Debug, Args)]
pub(crate) struct BundleArguments {
    #[command(flatten)]
    which: CommonArguments,
    /// File to create.
    #[arg(long, short, value_name = "FILE.jsonl.gz")]
    output: PathBuf,
}

/// Makes a bundle of the selected decisions.
pub(super) fn bundle(reader: &AuditReader, asked: &BundleArguments) -> anyhow::Result<Exit> {
    let filter = DecisionFilter::try_from(&asked.which)?;
    let path = &asked.output;
    let made = write_new_file(path, |file| {
        let out = BufWriter::new(file);
        Ok(write_bundle(reader, &filter, out)?)
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
        "  the recipient runs: politesse audit verify {} --key KEY\n  the key, sent separately: {}",
        shell_quoted(&name),
        command("audit key")
    )?;
    Ok(Exit::Done)
}

/// Verifies the bundle at `path`, and prints the findings.
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
    let bundle = verify_bundle(file, keys, |finding| match form {
        // A closed stdout is noticed when the last line is written.
        OutputForm::Columns => drop(writeln!(out, "{}", inert(&finding))),
        OutputForm::Json => findings.push(finding),
    })
    .map_err(|error| {
        let text = no_bundle(path, &error);
        anyhow::Error::new(error).context(text)
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
    Ok(outcome(&bundle).1)
}

/// Describes what is wrong with the file at `path`, which cannot be read as a bundle.
fn no_bundle(path: &Path, error: &BundleError) -> String {
    let file = shell_quoted(&path.display().to_string());
    match matches!(error, BundleError::File(_)) {
        true => format!(
            "{file} is no bundle, or not a whole one: a bundle is a gzipped file of `{}`; a \
             record is verified with --set audit.store=sqlite:FILE",
            command("audit bundle")
        ),
        false => format!("{file} cannot be verified"),
    }
}

fn bundle_json(bundle: &BundleVerification, findings: &[String]) -> Value {
    let sums = &bundle.sums;
    json!({
        "findings": findings,
        "decisions": sums.decisions,
        "decided": sums.decided,
        "form_only": sums.form_only,
        "query_withheld": sums.query_withheld,
        "redacted": sums.redacted,
        "other_revision": sums.other_revision,
        "mismatches": bundle.mismatches,
        "robots": bundle.robots,
        "record": bundle.head.origin,
        "sealed": bundle.head.tree.size,
        "sealed_at": bundle.head.time.to_string(),
        "signer": bundle.signer,
        "signer_known": bundle.is_signer_known,
        "result": outcome(bundle).0,
    })
}

fn summary(bundle: &BundleVerification) -> Vec<String> {
    let BundleVerification { head, sums, .. } = bundle;
    let mut lines = vec![
        format!(
            "{} decisions, {} decided again, {} checked for form, {} mismatches, {} robots.txt files",
            sums.decisions, sums.decided, sums.form_only, bundle.mismatches, bundle.robots
        ),
        format!(
            "head of {}: {} entries, {}",
            head.origin, head.tree.size, head.time
        ),
    ];
    if 0 < sums.query_withheld {
        lines.push(format!(
            "{} not decided again: their query is not kept (audit.query_strings)",
            sums.query_withheld
        ));
    }
    if 0 < sums.redacted {
        lines.push(format!(
            "{} not decided again: client and URL were redacted",
            sums.redacted
        ));
    }
    if 0 < sums.other_revision {
        lines.push(format!(
            "{} decided otherwise by another revision",
            sums.other_revision
        ));
    }
    if bundle.is_signer_known {
        lines.push("signed by a key of --key".to_owned());
    }
    let result = outcome(bundle).0;
    lines.push(match result == SIGNER_UNKNOWN {
        true => format!(
            "{SIGNER_UNKNOWN}: anyone who changes a bundle can sign it anew; compare this key \
             with one from someone you trust (--key): {}",
            bundle.signer
        ),
        false => result,
    });
    lines
}

/// Outcome of a bundle that matches, while no key identifies its signer.
const SIGNER_UNKNOWN: &str = "OK, but the signer is unknown";

/// Returns the outcome in words, with the exit code.
fn outcome(bundle: &BundleVerification) -> (String, Exit) {
    let redacted = bundle.sums.redacted;
    match (bundle.mismatches, bundle.is_signer_known) {
        (0, true) if 0 < redacted => (format!("OK, but redacted rows: {redacted}"), Exit::Done),
        (0, true) => ("OK".to_owned(), Exit::Done),
        (0, false) => (SIGNER_UNKNOWN.to_owned(), Exit::Unknown),
        _ => ("FAILED".to_owned(), Exit::Not),
    }
}
