//! Rows of `event`: a site asked for less or may be asked again, the proxy itself
//! did something (started, stopped, changed its configuration), or a record began
//! after an incomplete one.
//!
//! Events are evidence. No request waits for an event or is refused because of one:
//! an event that finds no free place in the queue is lost, and counted.
//!
//! Does not know when an event happens.

use jiff::Timestamp;
use rusqlite::{Connection, Row};
use serde_json::{Value as Json, json};

use super::columns::{TableRow, signed, table};
use super::leaf::{EVENT, LeafRun, RecordId, encoding_of};
use super::pages::NumberedTable;
use politesse_base::clock;
use politesse_decision::back_off::BackOffEvent;
use politesse_decision::digest::{CanonicalBytes, Digest};

/// Finds the kind of the latest event of a host.
pub(super) const LAST_KIND: &str = "
SELECT kind FROM event WHERE host = ? ORDER BY seq DESC LIMIT 1";

/// All events, read by [`EventRow::read`].
pub(super) const EVENTS: NumberedTable = NumberedTable {
    name: "event",
    select: "SELECT * FROM event",
    key: "seq",
    number: "seq",
};

/// Kind of the first event of a record that replaced an incomplete one.
const RECORD_BEGUN: &str = "record_begun";

/// Kind of an event of the proxy itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessEventKind {
    /// The proxy has opened the record, and has not sent anything yet.
    Started,
    /// A new configuration took effect.
    Configuration,
    /// The configuration was read again, successfully or not.
    Reloaded,
    /// Expired saved state was removed.
    Pruned,
    /// Clients and URLs of decisions were redacted.
    Redacted,
    /// An operator made the proxy fetch the robots.txt files of a host again.
    RobotsRefetched,
    /// A backup replaced the record.
    Restored,
    /// The record is sealed although some of its heads were removed
    /// (`--accept-lost-heads`).
    HeadsLost,
    /// Entries committed by the previous process are missing because its log was
    /// damaged.
    EntriesLost,
    /// The proxy connected to the store of its fleet, or lost it.
    Fleet,
    /// The proxy is running. Written once an hour.
    Heartbeat,
    /// The proxy has stopped sending, and closes the record.
    Stopped,
}

impl ProcessEventKind {
    /// Returns the kind as a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Configuration => "configuration",
            Self::Reloaded => "reloaded",
            Self::Pruned => "pruned",
            Self::Redacted => "redacted",
            Self::RobotsRefetched => "robots_refetched",
            Self::Restored => "restored",
            Self::HeadsLost => "heads_lost",
            Self::EntriesLost => "entries_lost",
            Self::Fleet => "fleet",
            Self::Heartbeat => "heartbeat",
            Self::Stopped => "stopped",
        }
    }

    /// Reports whether events of this kind state the number of requests sent.
    pub(super) fn has_count(self) -> bool {
        matches!(self, Self::Started | Self::Heartbeat | Self::Stopped)
    }
}

/// Event of the proxy itself.
#[derive(Debug, Clone, PartialEq)]
pub struct ProcessEvent {
    /// Time of the event.
    pub at: Timestamp,
    /// Kind of the event.
    pub kind: ProcessEventKind,
    /// Details of the event: an object, or null.
    pub detail: Json,
}

impl ProcessEvent {
    /// Creates an event with the current time.
    pub fn now(kind: ProcessEventKind, detail: Json) -> Self {
        Self {
            at: clock::now(),
            kind,
            detail,
        }
    }
}

/// Configuration as stored in an event.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedConfiguration {
    /// Time at which the configuration took effect.
    pub at: Timestamp,
    /// Person or organisation that runs the proxy, if named.
    pub operator: Option<String>,
    /// Every key with its value as TOML, without secrets.
    pub text: String,
    /// Other members of the event's detail, as a JSON object.
    pub digests: Json,
}

table! {
    /// Event of the record.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct EventRow in "event" {
        /// Number in the record, from 1.
        pub seq: u64 = "seq INTEGER PRIMARY KEY",
        /// Time of the event.
        pub at: Timestamp = "time_us INTEGER NOT NULL",
        /// Host, without a port.
        pub host: String = "host TEXT NOT NULL",
        /// Kind: `backoff_entered`, `backoff_left`, `backoff_released`,
        /// `record_begun`, or the word of a [`ProcessEventKind`].
        pub kind: String = "kind TEXT NOT NULL",
        /// Status with which the host asked for less.
        pub status: Option<u16> = "status INTEGER",
        /// Time until which the host is left alone.
        pub until: Timestamp = "until_us INTEGER NOT NULL",
        /// Number of consecutive times that the host asked for less.
        pub incidents: u64 = "incidents INTEGER NOT NULL",
        /// Credential and address of the operator who ended a back-off.
        pub actor: Option<String> = "actor TEXT",
        /// Reason given by the operator.
        pub reason: Option<String> = "reason TEXT",
        /// Number of requests that this process had sent.
        pub sent: Option<u64> = "sent INTEGER",
        /// Details of an event of the proxy itself, as a JSON object.
        pub detail: Option<String> = "detail TEXT",
        /// Leaf as stored in the row.
        pub(super) leaf: Digest = "leaf BLOB NOT NULL",
    }
}

impl EventRow {
    /// Creates the row of a back-off event.
    pub(super) fn of_back_off(seq: u64, event: &BackOffEvent) -> Self {
        let release = event.release.as_ref();
        Self {
            seq,
            host: event.host.to_string(),
            status: event.status,
            until: event.until,
            incidents: event.incidents.into(),
            actor: release.map(|release| release.by.clone()),
            reason: release.map(|release| release.reason.clone()),
            ..Self::of_no_host(event.change.as_str(), event.at)
        }
    }

    /// Creates the row of an event of the proxy itself. `sent` is the number of
    /// requests sent, if the event states it.
    pub(super) fn of_process(seq: u64, event: &ProcessEvent, sent: Option<u64>) -> Self {
        let has_detail = !event.detail.is_null();
        Self {
            seq,
            sent,
            detail: has_detail.then(|| event.detail.to_string()),
            ..Self::of_no_host(event.kind.as_str(), event.at)
        }
    }

    /// Creates a row without a host. Its back-off columns have no meaning.
    fn of_no_host(kind: &str, at: Timestamp) -> Self {
        Self {
            seq: 0,
            at,
            host: String::new(),
            kind: kind.to_owned(),
            status: None,
            until: at,
            incidents: 0,
            actor: None,
            reason: None,
            sent: None,
            detail: None,
            leaf: Digest::default(),
        }
    }

    /// Creates the first row of a record that begins at `at` and replaces one with
    /// at least `entries` entries.
    pub(super) fn record_begun(entries: u64, at: Timestamp) -> Self {
        Self {
            seq: 1,
            // Stored among the incidents, because a column for this one number
            // would be null in every other row.
            incidents: entries,
            ..Self::of_no_host(RECORD_BEGUN, at)
        }
    }

    /// Computes the leaf of the event in `record`.
    pub(super) fn leaf_in(&self, record: RecordId) -> Digest {
        let mut bytes = encoding_of(EVENT, record);
        bytes.number(self.seq);
        bytes.time(self.at);
        bytes.bytes(self.host.as_bytes());
        bytes.bytes(self.kind.as_bytes());
        bytes.optional(self.status.map(i64::from), CanonicalBytes::integer);
        bytes.time(self.until);
        bytes.integer(signed(self.incidents));
        for text in [&self.actor, &self.reason] {
            bytes.optional(text.as_deref(), |bytes, text| bytes.bytes(text.as_bytes()));
        }
        bytes.optional(self.sent.map(signed), CanonicalBytes::integer);
        let detail = self.detail.as_deref();
        bytes.optional(detail, |bytes, text| bytes.bytes(text.as_bytes()));
        Digest::of(bytes.as_bytes())
    }

    /// Writes the row with its leaf in `record`. Returns the number and the leaf.
    pub(super) fn write(
        mut self,
        connection: &Connection,
        record: RecordId,
    ) -> rusqlite::Result<LeafRun> {
        self.leaf = self.leaf_in(record);
        self.insert(connection)?;
        Ok(self.run())
    }

    /// Returns the number of the event, with the leaf stored in its row.
    pub(super) fn run(&self) -> LeafRun {
        LeafRun::of_entry(signed(self.seq), self.leaf)
    }

    /// Reads a row of [`EVENTS`], and whether it is unaltered for `record`.
    pub(super) fn read_checked(row: &Row<'_>, record: RecordId) -> rusqlite::Result<(Self, bool)> {
        let event = Self::read(row)?;
        let is_own = event.is_exact(row, 0) && event.leaf == event.leaf_in(record);
        Ok((event, is_own))
    }

    /// Reports whether this is an event of the proxy itself of the given kind.
    pub(super) fn is(&self, kind: ProcessEventKind) -> bool {
        self.host.is_empty() && self.kind == kind.as_str()
    }

    /// Returns the minimum number of entries in the previous record, if this event
    /// says that the record replaced one.
    pub fn entries_before(&self) -> Option<u64> {
        (self.kind == RECORD_BEGUN).then_some(self.incidents)
    }

    /// Returns the minimum number of lost entries, if this event reports a loss.
    pub(super) fn entries_lost(&self) -> Option<u64> {
        let is_loss = self.host.is_empty() && self.kind == ProcessEventKind::EntriesLost.as_str();
        let detail: Json = serde_json::from_str(self.detail.as_deref()?).ok()?;
        is_loss.then(|| detail["lost"].as_u64()).flatten()
    }

    /// Returns the event as JSON, in the form printed by `audit events`.
    pub fn json(&self) -> Json {
        // The back-off columns have no meaning in this row.
        if let Some(before) = self.entries_before() {
            return json!({
                "seq": self.seq,
                "time": self.at.to_string(),
                "kind": self.kind,
                "entries_before": before,
            });
        }
        if self.host.is_empty() {
            return self.process_json();
        }
        let mut event = json!({
            "seq": self.seq,
            "time": self.at.to_string(),
            "host": self.host,
            "kind": self.kind,
            "status": self.status,
            "until": self.until.to_string(),
            "incidents": self.incidents,
        });
        // Null in all other events, and therefore left out there.
        for (name, value) in [("actor", &self.actor), ("reason", &self.reason)] {
            if let Some(value) = value {
                event[name] = value.as_str().into();
            }
        }
        event
    }

    /// Returns the configuration that took effect, if this is a configuration
    /// event.
    pub fn configuration(&self) -> Option<RecordedConfiguration> {
        let mut detail: Json = serde_json::from_str(self.detail.as_deref()?).ok()?;
        let word = |name: &str| detail[name].as_str().map(str::to_owned);
        let (operator, text) = (word("operator"), word("text").unwrap_or_default());
        if let Json::Object(members) = &mut detail {
            // Too long for the one line of an event.
            members.shift_remove("text");
        }
        let is_one = self.is(ProcessEventKind::Configuration);
        is_one.then_some(RecordedConfiguration {
            at: self.at,
            operator,
            text,
            digests: detail,
        })
    }

    fn process_json(&self) -> Json {
        let mut event = json!({
            "seq": self.seq,
            "time": self.at.to_string(),
            "kind": self.kind,
        });
        if let Some(sent) = self.sent {
            event["sent"] = sent.into();
        }
        if let Some(detail) = &self.detail {
            // An altered row may not contain JSON, so its text is shown as is.
            event["detail"] = serde_json::from_str(detail).unwrap_or_else(|_| json!(detail));
        }
        event
    }
}
