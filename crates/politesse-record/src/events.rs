//! Rows of `event`: that a site asked for less, that it may be asked again, what
//! the proxy itself did (started, stopped, changed its configuration), and that an
//! audit record began after one that was not whole.
//!
//! An event is evidence. No request waits for one, and none is refused because
//! of one: an event that finds no place in the queue is lost, and counted.
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

/// Finds the kind of the last event of a host.
pub(super) const LAST_KIND: &str = "
SELECT kind FROM event WHERE host = ? ORDER BY seq DESC LIMIT 1";

/// All events, for [`EventRow::read`].
pub(super) const EVENTS: NumberedTable = NumberedTable {
    name: "event",
    select: "SELECT * FROM event",
    key: "seq",
    number: "seq",
};

/// Kind of the event that a record begins with if the previous one was not whole.
const RECORD_BEGUN: &str = "record_begun";

/// Kind of an event of the proxy itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessEventKind {
    /// The proxy has opened the record, and has sent nothing yet.
    Started,
    /// A configuration is in force that was not before.
    Configuration,
    /// The configuration was read again, in vain or not.
    Reloaded,
    /// Saved state that is of no use any more was removed.
    Pruned,
    /// Clients and URLs of decisions were redacted.
    Redacted,
    /// An operator had the robots.txt files of a host fetched again.
    RobotsRefetched,
    /// A backup was put in the place of the record.
    Restored,
    /// The record is sealed although heads of it were removed (`--accept-lost-heads`).
    HeadsLost,
    /// Entries that the process before had committed are gone: its log was damaged.
    EntriesLost,
    /// The proxy reached the store of its fleet, or lost it.
    Fleet,
    /// The proxy runs. Written once an hour.
    Heartbeat,
    /// The proxy sends nothing any more, and closes the record.
    Stopped,
}

impl ProcessEventKind {
    /// Returns the word for it.
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

    /// Reports whether such an event states how many requests were sent.
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
    /// Facts about the event: an object, or null.
    pub detail: Json,
}

impl ProcessEvent {
    /// Makes an event that happens now.
    pub fn now(kind: ProcessEventKind, detail: Json) -> Self {
        Self {
            at: clock::now(),
            kind,
            detail,
        }
    }
}

/// Configuration as an event has it.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedConfiguration {
    /// Time from which on it was in force.
    pub at: Timestamp,
    /// Person or organisation that ran the proxy, if it was named.
    pub operator: Option<String>,
    /// Every key with its value as TOML, without secrets.
    pub text: String,
    /// Everything else that the event has, as a JSON object.
    pub digests: Json,
}

table! {
    /// An event of the record.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct EventRow in "event" {
        /// Its number in the record, from 1.
        pub seq: u64 = "seq INTEGER PRIMARY KEY",
        /// Time of the event.
        pub at: Timestamp = "time_us INTEGER NOT NULL",
        /// Host, without a port.
        pub host: String = "host TEXT NOT NULL",
        /// Word for the event: `backoff_entered`, `backoff_left`, `backoff_released`,
        /// `record_begun`, or that of a [`ProcessEventKind`].
        pub kind: String = "kind TEXT NOT NULL",
        /// Status that asked for less.
        pub status: Option<u16> = "status INTEGER",
        /// Time until which the host is left alone.
        pub until: Timestamp = "until_us INTEGER NOT NULL",
        /// Number of times in a row that the host asked for less.
        pub incidents: u64 = "incidents INTEGER NOT NULL",
        /// Credential and address by which an operator ended a back-off.
        pub actor: Option<String> = "actor TEXT",
        /// Reason that the operator gave.
        pub reason: Option<String> = "reason TEXT",
        /// Requests that this process had sent by then.
        pub sent: Option<u64> = "sent INTEGER",
        /// Facts about an event of the proxy itself, as a JSON object.
        pub detail: Option<String> = "detail TEXT",
        /// Leaf, as the row has it.
        pub(super) leaf: Digest = "leaf BLOB NOT NULL",
    }
}

impl EventRow {
    /// Makes the row of a back-off that began or ended.
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

    /// Makes the row of an event of the proxy itself, with the number of requests
    /// that were `sent`, if it states one.
    pub(super) fn of_process(seq: u64, event: &ProcessEvent, sent: Option<u64>) -> Self {
        let has_detail = !event.detail.is_null();
        Self {
            seq,
            sent,
            detail: has_detail.then(|| event.detail.to_string()),
            ..Self::of_no_host(event.kind.as_str(), event.at)
        }
    }

    /// Makes a row that concerns no host. Its columns of a back-off mean nothing.
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

    /// Makes the first row of a record that begins at `at`, after one that had at
    /// least `entries` entries.
    pub(super) fn record_begun(entries: u64, at: Timestamp) -> Self {
        Self {
            seq: 1,
            // A column for this one number would be null in every other row, so it
            // is kept among the incidents.
            incidents: entries,
            ..Self::of_no_host(RECORD_BEGUN, at)
        }
    }

    /// Computes the leaf in `record`.
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

    /// Writes the row with its leaf in `record`. Returns its number and the leaf.
    pub(super) fn write(
        mut self,
        connection: &Connection,
        record: RecordId,
    ) -> rusqlite::Result<LeafRun> {
        self.leaf = self.leaf_in(record);
        self.insert(connection)?;
        Ok(self.run())
    }

    /// Returns the number of the event with the leaf that its row has.
    pub(super) fn run(&self) -> LeafRun {
        LeafRun::of_entry(signed(self.seq), self.leaf)
    }

    /// Reads a row of [`EVENTS`], and whether it is the one that was written to `record`.
    pub(super) fn read_checked(row: &Row<'_>, record: RecordId) -> rusqlite::Result<(Self, bool)> {
        let event = Self::read(row)?;
        let is_own = event.is_exact(row, 0) && event.leaf == event.leaf_in(record);
        Ok((event, is_own))
    }

    /// Reports whether this is an event of the proxy itself of that kind.
    pub(super) fn is(&self, kind: ProcessEventKind) -> bool {
        self.host.is_empty() && self.kind == kind.as_str()
    }

    /// Returns how many entries the record before this one had at least, if the
    /// event says that this one began after it.
    pub fn entries_before(&self) -> Option<u64> {
        (self.kind == RECORD_BEGUN).then_some(self.incidents)
    }

    /// Returns how many entries were lost at least, if the event says that some were.
    pub(super) fn entries_lost(&self) -> Option<u64> {
        let is_loss = self.host.is_empty() && self.kind == ProcessEventKind::EntriesLost.as_str();
        let detail: Json = serde_json::from_str(self.detail.as_deref()?).ok()?;
        is_loss.then(|| detail["lost"].as_u64()).flatten()
    }

    /// Makes the JSON of the event, as `audit events` prints it.
    pub fn json(&self) -> Json {
        // The columns of a back-off mean nothing in this row.
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
        // Null in all other events, so left out there.
        for (name, value) in [("actor", &self.actor), ("reason", &self.reason)] {
            if let Some(value) = value {
                event[name] = value.as_str().into();
            }
        }
        event
    }

    /// Returns the configuration that came in force by the event, if it is such an event.
    pub fn configuration(&self) -> Option<RecordedConfiguration> {
        let mut detail: Json = serde_json::from_str(self.detail.as_deref()?).ok()?;
        let word = |name: &str| detail[name].as_str().map(str::to_owned);
        let (operator, text) = (word("operator"), word("text").unwrap_or_default());
        if let Json::Object(members) = &mut detail {
            // It does not fit into a line.
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
            // Somebody who changed the row may have left no JSON.
            event["detail"] = serde_json::from_str(detail).unwrap_or_else(|_| json!(detail));
        }
        event
    }
}
