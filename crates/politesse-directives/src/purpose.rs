//! Purposes for which a crawler fetches pages.
//!
//! The operator declares them, since no request states them. Their words come from
//! AIPREF (draft-ietf-aipref-vocab-08) and Content Signals (contentsignals.org) where
//! these have one. Does not know what denies a purpose.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Purpose for which a crawler fetches pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CrawlPurpose {
    /// Training of models, or building a data set for it.
    TrainAi,
    /// An index for finding pages, with links to them.
    Search,
    /// Input for a model that answers with the content (grounding, retrieval).
    AiInput,
    /// Copies that are kept and shown.
    Archive,
    /// A collection or an index of images.
    Images,
}

/// Set of purposes, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Vec<CrawlPurpose>", into = "Vec<CrawlPurpose>")]
pub struct PurposeSet(u8);

/// Word that names no purpose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPurpose(String);

impl CrawlPurpose {
    /// Every purpose.
    pub const ALL: [Self; 5] = [
        Self::TrainAi,
        Self::Search,
        Self::AiInput,
        Self::Archive,
        Self::Images,
    ];

    /// Returns the word used in the configuration and the record.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TrainAi => "train-ai",
            Self::Search => "search",
            Self::AiInput => "ai-input",
            Self::Archive => "archive",
            Self::Images => "images",
        }
    }
}

impl FromStr for CrawlPurpose {
    type Err = UnknownPurpose;

    fn from_str(word: &str) -> Result<Self, UnknownPurpose> {
        let mut all = Self::ALL.into_iter();
        let known = all.find(|purpose| purpose.as_str() == word);
        known.ok_or_else(|| UnknownPurpose(word.to_owned()))
    }
}

impl fmt::Display for CrawlPurpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl PurposeSet {
    /// The set of every purpose.
    pub const ALL: Self = Self::of(&CrawlPurpose::ALL);

    /// Returns the set of these purposes.
    pub const fn of(purposes: &[CrawlPurpose]) -> Self {
        let (mut bits, mut at) = (0, 0);
        // A `const fn` cannot use iterators.
        while at < purposes.len() {
            bits |= 1 << purposes[at] as u8;
            at += 1;
        }
        Self(bits)
    }

    /// Reports whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Reports whether the set contains a purpose.
    pub fn contains(self, purpose: CrawlPurpose) -> bool {
        self.0 & 1 << purpose as u8 != 0
    }

    /// Returns the purposes, in the order of [`CrawlPurpose::ALL`].
    pub fn iter(self) -> impl Iterator<Item = CrawlPurpose> {
        CrawlPurpose::ALL
            .into_iter()
            .filter(move |it| self.contains(*it))
    }
}

impl FromIterator<CrawlPurpose> for PurposeSet {
    fn from_iter<T: IntoIterator<Item = CrawlPurpose>>(purposes: T) -> Self {
        let bits = purposes.into_iter().map(|purpose| 1 << purpose as u8);
        Self(bits.fold(0, |all, bit: u8| all | bit))
    }
}

impl From<Vec<CrawlPurpose>> for PurposeSet {
    fn from(purposes: Vec<CrawlPurpose>) -> Self {
        Self::of(&purposes)
    }
}

impl From<PurposeSet> for Vec<CrawlPurpose> {
    fn from(purposes: PurposeSet) -> Self {
        purposes.iter().collect()
    }
}

impl fmt::Display for UnknownPurpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = CrawlPurpose::ALL.map(CrawlPurpose::as_str).join(", ");
        write!(f, "{:?} is no purpose; known are {known}", self.0)
    }
}

impl std::error::Error for UnknownPurpose {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_word_is_named_with_the_words_that_are_known() {
        let read = |words: &[&str]| {
            let purposes = words.iter().map(|word| word.parse::<CrawlPurpose>());
            purposes.collect::<Result<PurposeSet, _>>()
        };
        let both = PurposeSet::of(&[CrawlPurpose::TrainAi, CrawlPurpose::Search]);
        assert_eq!(read(&["search", "train-ai", "search"]), Ok(both));
        assert_eq!(read(&[]), Ok(PurposeSet::default()));
        assert_eq!(
            read(&["search", "training"]).unwrap_err().to_string(),
            "\"training\" is no purpose; known are train-ai, search, ai-input, archive, images"
        );
        assert!(read(&["Search"]).is_err());
    }

    #[test]
    fn every_purpose_has_the_same_word_in_text_and_json() {
        assert_eq!(
            PurposeSet::ALL.iter().collect::<Vec<_>>(),
            CrawlPurpose::ALL
        );
        for purpose in CrawlPurpose::ALL {
            assert_eq!(purpose.as_str().parse(), Ok(purpose));
            assert_eq!(serde_json::to_value(purpose).unwrap(), purpose.as_str());
            let set = PurposeSet::of(&[purpose]);
            let json = serde_json::to_string(&set).unwrap();
            assert_eq!(serde_json::from_str::<PurposeSet>(&json).unwrap(), set);
            assert!(set.contains(purpose) && !set.is_empty());
        }
    }
}
