//! Reservations of text and data mining, and their policies (TDMRep, W3C
//! Community Group Final Report of 10 May 2024).
//!
//! The two properties are declared in the TDM file of the origin, in fields and in
//! `<meta>` elements. A later declaration supersedes an earlier one, but an absent
//! property or an invalid value resets nothing (section "Processing priority"). Does
//! not know how files, fields and pages are read.

use std::collections::BTreeSet;

use sfv::{TokenRef, token_ref};

use super::preference::{Carrier, Preference, PreferenceValue, absolute};

const TDM_RESERVATION: &TokenRef = token_ref("tdm-reservation");
const TDM_POLICY: &TokenRef = token_ref("tdm-policy");

/// Declarations of the TDM file, of the fields and of the page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MiningDeclarations {
    /// Declaration of the TDM file.
    pub(super) file: Declaration,
    /// Declaration of the response fields.
    pub(super) field: Declaration,
    /// Declaration of the `<meta>` elements.
    pub(super) page: Declaration,
}

/// Declaration of one carrier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Declaration {
    /// Value of `tdm-reservation`, if a valid one was stated.
    pub(super) reservation: Option<Reservation>,
    /// Value of `tdm-policy`: an absolute URL.
    pub(super) policy: Option<String>,
}

/// Value of `tdm-reservation`, ordered from weak to strict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reservation {
    /// 0: mining is allowed.
    NotReserved,
    /// 1: the rights to mining are reserved.
    Reserved,
}

impl Declaration {
    /// Adds a `tdm-reservation`. If one carrier has several, the strictest counts; the
    /// report leaves this open.
    pub(super) fn add_reservation(&mut self, value: &[u8]) {
        for value in value.split(|byte| *byte == b',') {
            self.reservation = self.reservation.max(Reservation::read(value));
        }
    }

    /// Adds a `tdm-policy`, an absolute URL. If one carrier has several, the first
    /// counts.
    pub(super) fn add_policy(&mut self, value: &[u8]) {
        self.policy = self.policy.take().or_else(|| absolute(value));
    }
}

impl MiningDeclarations {
    /// Returns the total bytes of the URLs.
    pub(super) fn bytes(&self) -> usize {
        let policies = [&self.file, &self.field, &self.page].map(|it| it.policy.as_ref());
        policies.into_iter().flatten().map(String::len).sum()
    }

    /// Returns the reservation, and the policy if there is one. A policy says how to
    /// get permission, so it has no meaning unless mining is reserved (section
    /// "tdm-policy").
    pub(super) fn settle(self) -> impl Iterator<Item = Preference> {
        let [file, field, page] = [self.file, self.field, self.page];
        let reservation = settled([file.reservation, field.reservation, page.reservation]);
        let is_reserved = matches!(reservation, Some((Reservation::Reserved, _)));
        let reservations = reservation.map(|(reservation, carriers)| Preference {
            name: TDM_RESERVATION,
            value: PreferenceValue::Integer(reservation as u8),
            carriers,
            line: None,
        });
        let policy = settled([file.policy, field.policy, page.policy]).filter(|_| is_reserved);
        let policies = policy.map(|(url, carriers)| Preference {
            name: TDM_POLICY,
            value: PreferenceValue::Text(url),
            carriers,
            line: None,
        });
        policies.into_iter().chain(reservations)
    }
}

/// Returns the value of a property that counts, and its carriers, from the values of
/// the file, the fields and the page. Each supersedes the ones before it.
fn settled<T: PartialEq>(declared: [Option<T>; 3]) -> Option<(T, BTreeSet<Carrier>)> {
    let carriers = [Carrier::TdmFile, Carrier::Field, Carrier::Page];
    let last = declared.iter().rposition(Option::is_some)?;
    let agrees = |at: &usize| declared[*at] == declared[last];
    let carriers = (0..=last).filter(agrees).map(|at| carriers[at]).collect();
    let value = declared.into_iter().nth(last)??;
    Some((value, carriers))
}

impl Reservation {
    fn read(value: &[u8]) -> Option<Self> {
        match value.trim_ascii() {
            b"0" => Some(Self::NotReserved),
            b"1" => Some(Self::Reserved),
            _ => None,
        }
    }
}
