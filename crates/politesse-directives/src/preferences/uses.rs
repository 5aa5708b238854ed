//! Statements on uses, from whichever vocabulary, and how they add up.
//!
//! draft-ietf-aipref-vocab-08, section 5.1: a use that any statement disallows
//! is disallowed. The `search` of AIPREF and of Content Signals is one use.

use std::collections::{BTreeMap, BTreeSet};

use sfv::{TokenRef, token_ref};

use super::{Carrier, Preference, Value};

/// What is said of one use.
pub(super) type Statement = (&'static TokenRef, Answer);

/// Whether a use is welcome, or how far it may go; the strictest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Answer {
    No,
    Yes,
    /// `use=immediate`: to answer the one who asks now.
    Immediate,
    /// `use=reference`: to be found and quoted.
    Reference,
    /// `use=full`: whatever it is good for.
    Full,
}

/// The uses that something was said of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Uses(BTreeMap<&'static TokenRef, Stated>);

/// The strictest answer, and who gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stated {
    answer: Answer,
    carriers: BTreeSet<Carrier>,
}

impl Uses {
    /// Adds statements. Of two answers the stricter stays, with its carriers.
    pub(super) fn add(
        &mut self,
        statements: impl IntoIterator<Item = Statement>,
        carrier: Carrier,
    ) {
        for (name, answer) in statements {
            let stated = self.0.entry(name).or_insert_with(|| Stated {
                answer,
                carriers: BTreeSet::new(),
            });
            if answer < stated.answer {
                stated.answer = answer;
                stated.carriers.clear();
            }
            if answer == stated.answer {
                stated.carriers.insert(carrier);
            }
        }
    }

    /// What is preferred, sorted by name.
    pub(super) fn settle(self) -> impl Iterator<Item = Preference> {
        self.0.into_iter().map(|(name, stated)| Preference {
            name,
            value: Value::Token(stated.answer.word()),
            carriers: stated.carriers,
        })
    }
}

impl Answer {
    /// The word for it in the annotation, the same for all vocabularies.
    fn word(self) -> &'static TokenRef {
        match self {
            Self::No => const { token_ref("n") },
            Self::Yes => const { token_ref("y") },
            Self::Immediate => const { token_ref("immediate") },
            Self::Reference => const { token_ref("reference") },
            Self::Full => const { token_ref("full") },
        }
    }
}
