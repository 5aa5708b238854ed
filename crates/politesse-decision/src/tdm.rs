//! TDM snapshot: the result of fetching `/.well-known/tdmrep.json`, and how long it may
//! be used.
//!
//! TDMRep (W3C Community Group Final Report of 10 May 2024), section "TDM File on the
//! Origin Server". The file is a page of the origin, and its text is evidence of every
//! decision that depends on it. Does not know how the file is fetched.

use jiff::Timestamp;
use politesse_directives::preferences::{TdmFile, TdmRule};
use serde::{Deserialize, Serialize};

/// Path of the file at its origin.
pub const TDM_FILE: &str = "/.well-known/tdmrep.json";

/// Result of a request for the TDM file of an origin, with its time and expiry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TdmSnapshot {
    /// Status of the answer, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Time of the answer.
    pub fetched_at: Timestamp,
    /// Time at which the answer expires.
    pub expires_at: Timestamp,
    /// Meaning of the answer.
    pub result: TdmResult,
}

/// Meaning of the answer to a request for a TDM file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TdmResult {
    /// There is a file with rules.
    File(TdmText),
    /// There is no file (404, 410): the origin reserves nothing.
    Absent,
    /// The file could not be fetched or read: it may reserve anything.
    Unknown,
}

/// Text of a TDM file, and its rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct TdmText {
    /// The text as fetched.
    pub text: String,
    file: TdmFile,
}

impl From<String> for TdmText {
    fn from(text: String) -> Self {
        Self {
            file: TdmFile::parse(text.as_bytes()),
            text,
        }
    }
}

impl From<TdmText> for String {
    fn from(file: TdmText) -> Self {
        file.text
    }
}

impl TdmSnapshot {
    /// Returns the JSON form stored in the record.
    pub fn json(&self) -> String {
        // Cannot fail: all values are texts and numbers.
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl TdmResult {
    /// Parses the body of a successful answer. Returns `Unknown` if the body is no TDM
    /// file: some sites send an error page with a status of success.
    pub fn read(body: &[u8]) -> Self {
        let text = str::from_utf8(body).map(|text| TdmText::from(text.to_owned()));
        match text {
            Ok(text) if text.file.is_readable() => Self::File(text),
            Ok(_) | Err(_) => Self::Unknown,
        }
    }

    /// Returns the rule that binds a path (with its query, as sent).
    pub fn binding(&self, path: &str) -> Option<&TdmRule> {
        match self {
            Self::File(text) => text.file.binding(path),
            Self::Absent | Self::Unknown => None,
        }
    }

    /// Reports whether the file may reserve a path that no known rule binds.
    pub fn is_partial(&self) -> bool {
        match self {
            Self::File(text) => !text.file.is_whole(),
            Self::Absent => false,
            Self::Unknown => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours: the record stores the answer as JSON, and decisions are repeated from it.
    #[test]
    fn an_answer_survives_a_round_trip_through_the_record() {
        let file = br#"[{"location": "/a", "tdm-reservation": 1}]"#;
        for (body, status) in [(&file[..], 200), (b"<html>", 200), (b"\xff", 200)] {
            let snapshot = TdmSnapshot {
                status: Some(status),
                fetched_at: Timestamp::UNIX_EPOCH,
                expires_at: Timestamp::UNIX_EPOCH,
                result: TdmResult::read(body),
            };
            let json = snapshot.json();
            assert_eq!(
                serde_json::from_str::<TdmSnapshot>(&json).unwrap(),
                snapshot
            );
            let is_file = body == file;
            assert_eq!(snapshot.result.is_partial(), !is_file);
            assert_eq!(snapshot.result.binding("/a/b").is_some(), is_file);
        }
        assert!(!TdmResult::Absent.is_partial());
    }
}
