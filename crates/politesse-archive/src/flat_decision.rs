//! Row of the table `decision`: a decision ([`StoredRecord`]) with its ending and all
//! values, instead of references to other tables as in a node's record.
//!
//! Rows are written and read as JSON objects with one member per column. Does not know
//! which rows are written or read.

use std::io;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::ser::{CharEscape, Formatter};

use politesse_decision::preferences::PreferenceTerms;
use politesse_decision::record::{
    RecordedSnapshot, Seen, StoredClient, StoredCrawler, StoredDenial, StoredPolicy, StoredRecord,
    StoredRuling,
};
use politesse_directives::PurposeSet;
use politesse_robots::origin::Target;

/// Row of the table `decision`. Each field is the column of the same name (`schema.sql`);
/// [`FlatDecision::of`] shows from which field of [`StoredRecord`] it comes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct FlatDecision {
    /// Number of the node in the archive.
    pub(super) node: i32,
    /// Sequence number in the node's record.
    pub(super) seq: u64,
    /// Time of the decision.
    pub(super) time: Timestamp,
    /// Address of the client; NULL if the decision is redacted.
    client: Option<String>,
    credential: Option<String>,
    user_agent: Option<String>,
    label: Option<String>,
    candidates: Vec<String>,
    unlisted: Vec<String>,
    method: String,
    host: Option<String>,
    url: Option<String>,
    verdict: String,
    reason: String,
    effect: String,
    crawler: Option<String>,
    rule: Option<String>,
    line: Option<u32>,
    agents: Vec<String>,
    reading: Option<String>,
    wait_ms: u64,
    /// SHA-256 of the policy text, in the table `policy`.
    policy: String,
    robots_origin: Option<String>,
    robots_url: Option<String>,
    robots_token: Option<String>,
    robots_hops: Option<Vec<String>>,
    robots_status: Option<u16>,
    robots_fetched: Option<Timestamp>,
    robots_expires: Option<Timestamp>,
    robots_result: Option<String>,
    robots_cause: Option<String>,
    /// SHA-256 of the body, in the table `robots`.
    robots_sha256: Option<String>,
    robots_charset: Option<String>,
    tdm: Option<String>,
    sent: Option<u64>,
    status: Option<u16>,
    bytes: Option<u64>,
    error: Option<String>,
    directives: Option<String>,
    said: Option<String>,
    /// Purposes that the operator has declared for the crawler.
    purposes: Option<PurposeSet>,
    /// Denials of purposes, by robots.txt and by the response.
    denials: Vec<StoredDenial>,
}

impl FlatDecision {
    /// Builds the row of a decision of `node`.
    pub(super) fn of(node: i32, decision: &StoredRecord) -> Self {
        let ruling = &decision.ruling;
        let seen = decision.directives.as_deref();
        let row = Self {
            node,
            seq: decision.seq,
            time: storable(decision.at),
            user_agent: decision.crawler.user_agent.clone(),
            label: decision.crawler.label.clone(),
            candidates: decision.crawler.candidates.clone(),
            unlisted: decision.crawler.unlisted.clone(),
            method: decision.method.to_string(),
            verdict: ruling.verdict.clone(),
            reason: ruling.reason.clone(),
            effect: ruling.effect.clone(),
            crawler: ruling.crawler.clone(),
            rule: ruling.rule.clone(),
            line: ruling.line,
            agents: ruling.group.clone(),
            wait_ms: decision.wait_ms,
            policy: decision.policy.sha256.to_string(),
            sent: decision.sent,
            status: decision.status,
            bytes: decision.bytes,
            error: decision.error.as_deref().map(str::to_owned),
            directives: seen.map(|seen| seen.directives.clone()),
            said: seen.and_then(|seen| seen.said.clone()),
            purposes: decision.policy.preferences.map(|terms| terms.purposes),
            denials: decision.denials(),
            ..Self::default()
        };
        row.with_request(decision)
            .with_robots(decision.snapshot.as_deref())
    }

    /// Adds the columns that a redaction removes, unless the decision is redacted. In that
    /// case the host is taken from the snapshot, which names it anyway.
    fn with_request(self, decision: &StoredRecord) -> Self {
        // A manually altered URL may have no host.
        let host_of = |url: &String| {
            let target = url.parse::<Target>().ok();
            target.map(|target| target.origin.host().to_string())
        };
        if decision.is_redacted() {
            let snapshot = decision.snapshot.as_deref();
            let host = snapshot.and_then(|snapshot| host_of(&snapshot.origin));
            return Self { host, ..self };
        }
        Self {
            client: Some(decision.client.address.clone()),
            credential: decision.client.credential.clone(),
            host: host_of(&decision.url),
            url: Some(decision.url.clone()),
            reading: decision.reading.clone(),
            ..self
        }
    }

    /// Adds the columns about the robots.txt that the decision is based on, if any.
    fn with_robots(self, snapshot: Option<&RecordedSnapshot>) -> Self {
        let Some(snapshot) = snapshot else {
            return self;
        };
        Self {
            robots_origin: Some(snapshot.origin.clone()),
            robots_url: Some(snapshot.url.clone()),
            robots_token: snapshot.token.clone(),
            robots_hops: Some(snapshot.hops.clone()),
            robots_status: snapshot.status,
            robots_fetched: Some(storable(snapshot.fetched_at)),
            robots_expires: Some(storable(snapshot.expires_at)),
            robots_result: Some(snapshot.result.clone()),
            robots_cause: snapshot.cause.clone(),
            robots_sha256: snapshot.sha256.map(|digest| digest.to_string()),
            robots_charset: snapshot.charset.clone(),
            tdm: snapshot.tdm.clone(),
            ..self
        }
    }

    /// Converts the row to a decision; `label` is the display name of its node. Of its
    /// policy only the digest and the purposes are known.
    pub(super) fn into_record(self, label: &Arc<str>) -> StoredRecord {
        let snapshot = self.snapshot().map(Arc::new);
        let client = match self.client {
            None => StoredRecord::redacted_client(),
            Some(address) => Arc::new(StoredClient {
                address,
                credential: self.credential,
            }),
        };
        let seen = |directives| Seen {
            directives,
            said: self.said,
            // The column `denials` has those of the ruling and of the response together,
            // and they cannot be told apart again. All become denials of the ruling.
            denials: Vec::new(),
        };
        StoredRecord {
            node: Some(Arc::clone(label)),
            seq: self.seq,
            at: self.time,
            client,
            crawler: Arc::new(StoredCrawler {
                candidates: self.candidates,
                unlisted: self.unlisted,
                user_agent: self.user_agent,
                label: self.label,
            }),
            method: self.method.into(),
            url: self
                .url
                .unwrap_or_else(|| StoredRecord::REDACTED.to_owned()),
            ruling: Arc::new(StoredRuling {
                verdict: self.verdict,
                reason: self.reason,
                effect: self.effect,
                line: self.line,
                rule: self.rule,
                group: self.agents,
                crawler: self.crawler,
                denials: self.denials,
            }),
            reading: self.reading,
            snapshot,
            policy: policy(&self.policy, self.purposes),
            wait_ms: self.wait_ms,
            status: self.status,
            sent: self.sent,
            directives: self.directives.map(seen).map(Arc::new),
            bytes: self.bytes,
            error: self.error.map(Arc::from),
        }
    }

    /// Returns the robots.txt that the decision is based on, if any.
    fn snapshot(&self) -> Option<RecordedSnapshot> {
        let digest = self.robots_sha256.as_deref();
        Some(RecordedSnapshot {
            origin: self.robots_origin.clone().unwrap_or_default(),
            token: self.robots_token.clone(),
            url: self.robots_url.clone()?,
            hops: self.robots_hops.clone().unwrap_or_default(),
            status: self.robots_status,
            fetched_at: self.robots_fetched.unwrap_or_default(),
            expires_at: self.robots_expires.unwrap_or_default(),
            result: self.robots_result.clone().unwrap_or_default(),
            cause: self.robots_cause.clone(),
            sha256: digest.and_then(|digest| digest.parse().ok()),
            charset: self.robots_charset.clone(),
            tdm: self.tdm.clone(),
        })
    }
}

/// Builds a policy from its digest. Its text is in another table, and of its preference
/// terms only the purposes are known.
fn policy(sha256: &str, purposes: Option<PurposeSet>) -> Arc<StoredPolicy> {
    let unknown = StoredPolicy::new("");
    Arc::new(StoredPolicy {
        sha256: sha256.parse().unwrap_or(unknown.sha256),
        preferences: purposes.map(|purposes| PreferenceTerms {
            purposes,
            ..PreferenceTerms::default()
        }),
        ..unknown
    })
}

/// Returns a time that PostgreSQL can store. A time before year 1, which only a damaged
/// record can contain, is replaced by the start of 1970.
pub(super) fn storable(time: Timestamp) -> Timestamp {
    match Timestamp::from_second(-62_135_596_800) {
        Ok(first) if time < first => Timestamp::UNIX_EPOCH,
        Ok(_) | Err(_) => time,
    }
}

/// Serialises rows as JSON that PostgreSQL can read.
pub(super) fn to_json(rows: &impl Serialize) -> String {
    // Replacing `\u0000` in the finished JSON would be wrong: it may also be an escaped
    // backslash followed by digits.
    let mut bytes = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, TextFormatter);
    let written = rows.serialize(&mut serializer);
    written.expect("rows have no keys but texts");
    String::from_utf8(bytes).expect("JSON is UTF-8")
}

/// Compact JSON formatter that writes U+2400 for U+0000.
struct TextFormatter;

impl Formatter for TextFormatter {
    fn write_char_escape<W: io::Write + ?Sized>(
        &mut self,
        writer: &mut W,
        escape: CharEscape,
    ) -> io::Result<()> {
        if let CharEscape::AsciiControl(0) = escape {
            return writer.write_all("\u{2400}".as_bytes());
        }
        serde_json::ser::CompactFormatter.write_char_escape(writer, escape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // PostgreSQL, section 8.14: text cannot contain U+0000.
    #[test]
    fn a_zero_character_is_replaced() {
        let row = FlatDecision {
            rule: Some("Disallow: /z\0ro\\u0000\n".to_owned()),
            ..FlatDecision::default()
        };
        let json = to_json(&[row]);
        let rows: Vec<FlatDecision> = serde_json::from_str(&json).unwrap();
        let rule = rows[0].rule.as_deref();
        assert_eq!(rule, Some("Disallow: /z\u{2400}ro\\u0000\n"));
    }

    // Ours: a damaged record may contain any time.
    #[test]
    fn a_time_before_year_1_is_stored_as_1970() {
        assert_eq!(storable(Timestamp::MIN), Timestamp::UNIX_EPOCH);
        assert_eq!(storable(Timestamp::MAX), Timestamp::MAX);
    }

    // Ours: the members match the columns in schema.sql.
    #[test]
    fn a_row_has_a_member_for_each_column() {
        let row = serde_json::to_value(FlatDecision::default()).unwrap();
        let mut members: Vec<_> = row
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        let mut columns = crate::schema::columns("decision");
        members.sort_unstable();
        columns.sort_unstable();
        assert_eq!(members, columns);
    }
}
