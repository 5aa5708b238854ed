//! `audit verify`: prints the findings and the sums.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use super::arguments::DecisionArguments;
use super::bundle::print_bundle;
use super::heads::{outside_heads, public_keys};
use crate::cli::output::{Exit, OutputForm, Usage, unless_closed};
use politesse_base::inert::{append_json, inert};
use politesse_pages::page::words::number;
use politesse_record::AuditError;
use politesse_record::filter::DecisionFilter;
use politesse_record::reader::AuditReader;
use politesse_record::removals::RemovalNote;
use politesse_record::seal_check::{SealEvidence, SealSums};
use politesse_record::verify::{Verification, verify_with};

/// Arguments of `audit verify`.
#[derive(Debug, Args)]
pub(crate) struct VerifyArguments {
    /// Verifies this bundle instead of the record (`politesse audit bundle`).
    #[arg(
        value_name = "BUNDLE.jsonl.gz",
        conflicts_with_all = ["from", "until", "host", "url", "rule", "crawler", "verdict",
                              "reason", "effect", "head"]
    )]
    pub(super) bundle: Option<PathBuf>,
    #[command(flatten)]
    which: DecisionArguments,
    /// A public key that must have signed the heads, or a file with one per line; from
    /// `politesse audit key`.
    #[arg(long, value_name = "KEY|FILE")]
    key: Vec<String>,
    /// A file with exported heads.
    #[arg(long, value_name = "FILE")]
    head: Vec<PathBuf>,
    /// Prints one JSON object instead of sentences.
    #[arg(long)]
    pub(super) json: bool,
}

impl VerifyArguments {
    /// Reads the keys and heads that the arguments name.
    pub(super) fn evidence(&self) -> anyhow::Result<SealEvidence> {
        let mut evidence = SealEvidence::default();
        for key in &self.key {
            evidence.keys.extend(public_keys(key)?);
        }
        for file in &self.head {
            evidence.heads.extend(outside_heads(file)?);
        }
        Ok(evidence)
    }

    /// Returns the filter, which must be open if heads are compared.
    pub(super) fn filter(&self, evidence: &SealEvidence) -> anyhow::Result<DecisionFilter> {
        let filter = DecisionFilter::try_from(&self.which)?;
        let is_compared = !evidence.keys.is_empty() || !evidence.heads.is_empty();
        if is_compared && !filter.is_open() {
            let text = "heads cover the whole record: --key and --head allow no filter";
            return Err(Usage::Arguments(text.to_owned()).into());
        }
        Ok(filter)
    }
}

/// Verifies the record, or the named bundle, and prints the findings.
pub(super) fn print_verification(
    open: impl FnOnce() -> Result<AuditReader, AuditError>,
    asked: &VerifyArguments,
) -> anyhow::Result<Exit> {
    let evidence = asked.evidence()?;
    let form = OutputForm::from(asked.json);
    match &asked.bundle {
        // There may be no record where a bundle is verified.
        Some(bundle) => print_bundle(bundle, &evidence.keys, form),
        None => {
            let verification = RecordVerification {
                filter: &asked.filter(&evidence)?,
                evidence: &evidence,
                form,
            };
            Ok(exit_of(&verification.print(&open()?)?, &evidence))
        }
    }
}

/// Verification of one record, and the format of its output.
pub(super) struct RecordVerification<'a> {
    pub(super) filter: &'a DecisionFilter,
    pub(super) evidence: &'a SealEvidence,
    pub(super) form: OutputForm,
}

impl RecordVerification<'_> {
    /// Verifies the record, and prints the findings and the sums.
    pub(super) fn print(&self, reader: &AuditReader) -> anyhow::Result<Verification> {
        let form = self.form;
        let mut out = BufWriter::new(io::stdout().lock());
        if form == OutputForm::Json {
            out.write_all(b"{\"findings\":[")?;
        }
        let mut separator = "";
        // A closed stdout is noticed when the last line is written.
        let report = |finding: String| match form {
            OutputForm::Columns => drop(writeln!(out, "{}", inert(&finding))),
            OutputForm::Json => {
                let mut text = separator.as_bytes().to_vec();
                if append_json(&mut text, &finding).is_ok() {
                    drop(out.write_all(&text));
                }
                separator = ",";
            }
        };
        let sums = verify_with(reader, self.filter, self.evidence, report)?;
        let removals = reader.removals(self.filter)?;
        if form == OutputForm::Columns {
            for note in removals.iter().filter(|note| !note.is_by_age()) {
                writeln!(out, "{}", inert(&note.to_string()))?;
            }
        }
        let operator = operator_of(reader)?;
        let ordered = removals.iter().filter(|note| note.is_removal_by_order());
        let result = conclusion(&sums, ordered.count() as u64, self.evidence);
        let text = match form {
            OutputForm::Json => {
                let mut members = sums_json(&sums);
                members["removals"] = removals.iter().map(RemovalNote::json).collect();
                members["operator"] = json!(operator);
                members["result"] = json!(result);
                format!("],{}", members.to_string().trim_start_matches('{'))
            }
            OutputForm::Columns if self.filter.is_open() => {
                let operated = operator.map(|name| format!("operator: {}\n", inert(&name)));
                let seals = seal_summary(&sums.seals, self.evidence);
                let (sums, operated) = (summary(&sums), operated.unwrap_or_default());
                format!("{sums}\n{operated}{}\n{result}", inert(&seals))
            }
            OutputForm::Columns => format!("{}\n{result}", summary(&sums)),
        };
        unless_closed(writeln!(out, "{text}").and_then(|()| out.flush()))?;
        Ok(sums)
    }
}

/// Returns the exit code for the findings.
fn exit_of(sums: &Verification, evidence: &SealEvidence) -> Exit {
    match sums.failures() {
        0 if evidence.keys.is_empty() || sums.unsealed() == 0 => Exit::Done,
        0 => Exit::Unknown,
        _ if sums.is_outrun => Exit::Unknown,
        _ => Exit::Not,
    }
}

/// Returns the result of a verification: `OK`, `OK, but …`, or `FAILED`. `ordered` is
/// the number of removals ordered by the operator.
fn conclusion(sums: &Verification, ordered: u64, evidence: &SealEvidence) -> String {
    let failures = sums.failures();
    if 0 < failures && !sums.is_outrun {
        return "FAILED".to_owned();
    }
    // Without a key from outside no signature proves anything, so unsigned entries are
    // not reported.
    let unsealed = match evidence.keys.is_empty() {
        true => 0,
        false => sums.unsealed(),
    };
    let unsigned = format!(
        "entries without a checked signature: {} of {}",
        number(unsealed),
        number(sums.seals.entries)
    );
    let limits = [
        (0 < unsealed).then_some(unsigned),
        some(
            failures,
            "findings, perhaps because entries were removed by age meanwhile (verify again)",
        ),
        some(sums.lost_heads, "times that lost heads were accepted"),
        losses(sums),
        some(sums.unknown_ends, "processes that ended without a word"),
        some(
            sums.other_revision,
            "rows decided otherwise by another revision",
        ),
        some(
            sums.query_withheld,
            "rows whose query string is not on record",
        ),
        some(sums.redacted, "redacted rows"),
        some(ordered, "removals by order"),
    ];
    let told: Vec<_> = limits.into_iter().flatten().collect();
    match told.is_empty() {
        true => "OK".to_owned(),
        false => format!("OK, but {}", told.join("; ")),
    }
}

/// Returns `what` with its count, or `None` if the count is 0.
fn some(count: u64, what: &str) -> Option<String> {
    (0 < count).then(|| format!("{what}: {}", number(count)))
}

/// Describes how many entries were lost at least, and how many numbers were skipped so
/// that none is assigned twice. The latter are often far more.
fn losses(sums: &Verification) -> Option<String> {
    let skipped = some(
        sums.skipped,
        "numbers skipped after damage or a restored backup",
    )?;
    Some(match sums.lost {
        0 => skipped,
        lost => format!(
            "at least {} lost ({} numbers skipped)",
            number(lost),
            number(sums.skipped)
        ),
    })
}

/// Finds the operator of the proxy, from its last configuration.
fn operator_of(reader: &AuditReader) -> Result<Option<String>, AuditError> {
    let configuration = reader.configuration()?;
    Ok(configuration.and_then(|configuration| configuration.operator))
}

fn sums_json(sums: &Verification) -> Value {
    json!({
        "decided": sums.decided,
        "other_revision": sums.other_revision,
        "form_only": sums.form_only,
        "query_withheld": sums.query_withheld,
        "mismatches": sums.mismatches,
        "redacted": sums.redacted,
        "missing": sums.missing,
        "lost": sums.lost,
        "skipped": sums.skipped,
        "pruned": sums.pruned,
        "removing": sums.removing,
        "outrun": sums.is_outrun,
        "unrecorded": sums.unrecorded,
        "unknown_ends": sums.unknown_ends,
        "kept": sums.kept,
        "events": sums.events,
        "back_offs": sums.back_offs,
        "lost_heads": sums.lost_heads,
        "entries": sums.seals.entries,
        "heads": sums.seals.heads,
        "sealed": sums.seals.sealed,
        "signer": sums.seals.signer,
        "exported_heads": sums.seals.outside,
    })
}

fn summary(sums: &Verification) -> String {
    let some = |count: u64, what: &str| match count {
        0 => String::new(),
        count => format!(", {count} {what}"),
    };
    [
        format!(
            "{} decided again, {} checked for form, {} mismatches, {} missing",
            sums.decided, sums.form_only, sums.mismatches, sums.missing
        ),
        some(sums.other_revision, "decided otherwise by another revision"),
        some(
            sums.query_withheld,
            "by query strings that are not on record",
        ),
        some(sums.redacted, "redacted, not decided again"),
        losses(sums).map_or(String::new(), |losses| format!(", {losses}")),
        match sums.pruned {
            0 => String::new(),
            last => format!(", entries up to {last} removed"),
        },
        some(sums.removing, "entries of them still to be removed"),
        some(sums.unrecorded, "sent and not on record"),
    ]
    .concat()
}

/// Describes how far the record is sealed, and which proofs need more input.
fn seal_summary(seals: &SealSums, evidence: &SealEvidence) -> String {
    let heads = match (seals.heads, seals.sealed) {
        (0, _) => "not sealed yet".to_owned(),
        (heads, 0) => format!("sealed: nothing ({heads} heads, none holds)"),
        (heads, sealed) => format!("sealed: entries 1 to {sealed} ({heads} heads)"),
    };
    let signer = match &seals.signer {
        None => String::new(),
        Some(_) if !evidence.keys.is_empty() => "; signed by a key of --key".to_owned(),
        Some(signer) => format!("; signer not checked (--key): {signer}"),
    };
    let exported = match (evidence.heads.len(), seals.outside) {
        (0, _) => "; no exported head to compare with (--head)".to_owned(),
        (all, held) => format!("; {held} of {all} exported heads hold"),
    };
    [heads, signer, exported].concat()
}
