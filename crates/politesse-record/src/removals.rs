//! Removals and redactions stated by events of the record: who ordered them, why,
//! and how young the entries were.
//!
//! Does not know what was removed.

use std::fmt;
use std::ops::ControlFlow;

use jiff::Timestamp;
use serde_json::{Value as Json, json};

use super::error::AuditError;
use super::events::{EventRow, ProcessEventKind};
use super::filter::{DecisionFilter, EventFilter};
use super::reader::AuditReader;

/// Removal of entries, or redaction of decisions.
#[derive(Debug, Clone)]
pub struct RemovalNote {
    /// Number of its event.
    seq: u64,
    /// Time of the event.
    pub at: Timestamp,
    is_redaction: bool,
    detail: Json,
}

impl RemovalNote {
    /// Makes the note of `event` if it states a removal or a redaction of entries.
    pub fn of(event: &EventRow) -> Option<Self> {
        let detail: Json = serde_json::from_str(event.detail.as_deref()?).ok()?;
        let is_redaction = event.is(ProcessEventKind::Redacted);
        // The pruning of saved state has the same kind of event, but removes no
        // entries.
        let is_removal = event.is(ProcessEventKind::Pruned) && detail["entries_until"].is_u64();
        (is_redaction || is_removal).then_some(Self {
            seq: event.seq,
            at: event.at,
            is_redaction,
            detail,
        })
    }

    /// Reports whether the removal may affect entries from the time range of
    /// `filter`.
    fn may_concern(&self, filter: &DecisionFilter) -> bool {
        let youngest = self.time("youngest").or_else(|| self.before());
        let is_before = filter
            .from
            .zip(youngest)
            .is_some_and(|(from, at)| at < from);
        let oldest = self.time("oldest");
        let is_after = filter
            .until
            .zip(oldest)
            .is_some_and(|(until, at)| until <= at);
        !is_before && !is_after
    }

    /// Reports whether entries were removed because of `audit.retention`.
    pub fn is_by_age(&self) -> bool {
        self.word("by") == "audit.retention"
    }

    /// Reports whether entries were removed by an explicit order, regardless of
    /// their age.
    pub fn is_removal_by_order(&self) -> bool {
        !self.is_redaction && !self.is_by_age()
    }

    /// Returns the time before which entries were removed.
    pub fn before(&self) -> Option<Timestamp> {
        self.time("before")
    }

    /// Returns the highest number of the removed entries; 0 for a redaction.
    pub(super) fn entries_until(&self) -> u64 {
        self.detail["entries_until"].as_u64().unwrap_or_default()
    }

    fn time(&self, name: &str) -> Option<Timestamp> {
        self.detail[name].as_str()?.parse().ok()
    }

    fn word(&self, name: &str) -> &str {
        self.detail[name].as_str().unwrap_or("?")
    }

    /// Reports whether entries were removed that were younger than
    /// `audit.retention` at the time.
    fn is_even_younger(&self) -> bool {
        let retention = self.detail["retention_s"].as_u64();
        let age = self
            .time("youngest")
            .map(|youngest| self.at.duration_since(youngest));
        age.zip(retention)
            .is_some_and(|(age, retention)| age.unsigned_abs().as_secs() < retention)
    }

    /// Returns the reason, or a general one if the event states none.
    pub fn why(&self) -> &str {
        self.detail["why"]
            .as_str()
            .unwrap_or("by order of the operator")
    }

    /// Formats who gave the order, and why.
    pub fn order(&self) -> String {
        let user = &self.detail["user"];
        let name = |key: &str| user[key].as_str();
        let account = user["uid"].as_u64().map_or(String::new(), |uid| {
            let sudo = name("sudo_user").map_or(String::new(), |name| format!(", sudo by {name}"));
            format!(", uid {uid} ({}{sudo})", name("name").unwrap_or("?"))
        });
        let reason = self.detail["why"].as_str();
        let colon = if reason.is_some() { ": " } else { "" };
        format!(
            "by {}{account}{colon}{}",
            self.word("by"),
            reason.unwrap_or_default()
        )
    }

    /// Returns the note as JSON.
    pub fn json(&self) -> Json {
        let mut detail = self.detail.clone();
        if let Json::Object(members) = &mut detail {
            // Omitted, because a redaction may have thousands of numbers.
            members.remove("numbers");
        }
        json!({
            "seq": self.seq,
            "time": self.at.to_string(),
            "kind": if self.is_redaction { "redacted" } else { "pruned" },
            "is_even_younger": self.is_even_younger(),
            "detail": detail,
        })
    }
}

impl fmt::Display for RemovalNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0}, ", self.at)?;
        match self.is_redaction {
            true => write!(f, "{} decisions redacted", self.detail["decisions"])?,
            false => write!(f, "entries up to {} removed", self.detail["entries_until"])?,
        }
        write!(
            f,
            " {}; the youngest was of {}",
            self.order(),
            self.word("youngest")
        )?;
        match self.is_even_younger() {
            true => f.write_str(", YOUNGER than audit.retention then"),
            false => Ok(()),
        }
    }
}

impl AuditReader {
    /// Returns the removals and redactions that may affect entries from the time
    /// range of `filter`, the latest first.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn removals(&self, filter: &DecisionFilter) -> Result<Vec<RemovalNote>, AuditError> {
        let of_the_proxy = EventFilter {
            host: Some(String::new()),
            ..EventFilter::default()
        };
        let mut notes = Vec::new();
        self.visit_events(&of_the_proxy, |event| {
            let note = RemovalNote::of(&event);
            notes.extend(note.filter(|note| note.may_concern(filter)));
            ControlFlow::Continue(())
        })?;
        Ok(notes)
    }
}
