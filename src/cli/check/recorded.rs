//! `check --decision`: explains a decision of the record by the evidence that is
//! stored with it, as a URL is explained.
//!
//! Nothing is fetched, and no configuration has a part in it but for the place of
//! the record.

use std::io::Write as _;

use bytes::Bytes;
use serde_json::{Value, json};

use super::context::{CheckContext, exit_of};
use super::explanation::{DecisionExplanation, FileAge};
use super::json::ExplanationJson;
use super::sentences::sentences;
use crate::cli::output::{Exit, OutputForm, print_notice};
use politesse_base::inert::{append_json, inert};
use politesse_decision::again::{Again, EvidenceCache, Undecidable, decide_again, decision_again};
use politesse_decision::record::{StoredRecord, StoredRuling};
use politesse_record::reader::AuditReader;

/// Explains the decision with the number `seq`.
///
/// # Errors
///
/// An error if the record cannot be read.
pub(super) fn explain(reader: &AuditReader, seq: u64, form: OutputForm) -> anyhow::Result<Exit> {
    let Some(row) = reader.record(seq)? else {
        let range = match reader.seq_range()? {
            None => "the record is empty".to_owned(),
            Some(range) => format!("its decisions are {} to {}", range.first, range.last),
        };
        print_notice(&format!("there is no decision {seq} on record; {range}"));
        return Ok(Exit::Unknown);
    };
    let record = row.record;
    let body = match record
        .snapshot
        .as_ref()
        .and_then(|snapshot| snapshot.sha256)
    {
        Some(sha256) => reader.body(sha256)?.map(Bytes::from),
        None => None,
    };
    let mut cache = EvidenceCache::default();
    let again = decide_again(&record, body.clone(), &mut cache);
    let decision = match decision_again(&record, body, &mut cache) {
        Ok(Some(decision)) => decision,
        Ok(None) => {
            print_notice(&format!(
                "decision {seq} rests on no robots.txt ({}): politesse audit show {seq}",
                record.ruling.reason
            ));
            return Ok(Exit::Unknown);
        }
        Err(why) => {
            print_notice(&format!("decision {seq} cannot be made again: {why}"));
            return Ok(Exit::Unknown);
        }
    };
    let agreement = agreement(again, row.is_as_written);
    let context = CheckContext::recorded(decision.evidence());
    let explanation = DecisionExplanation::new(&decision, &context, FileAge::AtDecision);
    let mut line = Vec::new();
    match form {
        OutputForm::Json => {
            let mut json = serde_json::to_value(ExplanationJson::new(&explanation))?;
            json["decision"] = json!(seq);
            // As it is on record, also where its query string is not.
            json["url"] = json!(record.url);
            json["time"] = json!(record.at.to_string());
            json["recorded"] = recorded_json(&record.ruling);
            json["decided_again"] =
                json!(agreement.as_ref().map_or_else(String::as_str, |()| "same"));
            append_json(&mut line, &json)?;
            line.push(b'\n');
        }
        OutputForm::Columns => {
            line.extend(heading(&record, &agreement).into_bytes());
            line.extend(sentences(&explanation, None).into_bytes());
        }
    }
    std::io::stdout().lock().write_all(&line)?;
    Ok(match agreement {
        Ok(()) => exit_of(decision.ruling()),
        Err(_) => Exit::Unknown,
    })
}

/// Returns why what is explained may not be what the record says, if it may not.
fn agreement(again: Result<Again, Undecidable>, is_as_written: bool) -> Result<(), String> {
    match again {
        Ok(_) if !is_as_written => Err("the row is not as it was written".to_owned()),
        Ok(Again::Same | Again::FormOnly) => Ok(()),
        Ok(Again::QueryWithheld) => {
            Err("it may rest on the query string, which is not on record".to_owned())
        }
        Ok(Again::OfRevision { decided_by, .. }) => Err(format!(
            "it was decided by revision {decided_by} of the engine"
        )),
        Ok(Again::Differs(_)) => Err("the row says something else".to_owned()),
        Err(why) => Err(why.to_string()),
    }
}

/// Says which decision it is, and whether the record has what is explained below.
fn heading(record: &StoredRecord, agreement: &Result<(), String>) -> String {
    let StoredRecord {
        seq, at, method, ..
    } = record;
    let again = match agreement {
        Ok(()) => "explained from its evidence, which gives the same again".to_owned(),
        Err(why) => format!(
            "WHAT IS BELOW IS NOT WHAT THE RECORD SAYS ({}): {why}",
            words(&record.ruling)
        ),
    };
    format!(
        "{}\n",
        inert(&format!("decision {seq}, {at}, {method}: {again}"))
    )
}

fn words(ruling: &StoredRuling) -> String {
    match (ruling.line, &ruling.rule) {
        (Some(line), Some(rule)) => format!("{}, line {line}, {rule}", ruling.verdict),
        _ => format!("{}, {}", ruling.verdict, ruling.reason),
    }
}

fn recorded_json(ruling: &StoredRuling) -> Value {
    json!({
        "verdict": ruling.verdict,
        "reason": ruling.reason,
        "effect": ruling.effect,
        "line": ruling.line,
        "rule": ruling.rule,
    })
}
