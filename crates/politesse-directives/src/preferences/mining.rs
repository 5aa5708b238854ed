//! Reservations of text and data mining, and their policies (TDMRep, W3C
//! Community Group Final Report of 10 May 2024).
//!
//! The two properties are declared in fields and in `<meta>` elements, and the
//! later one supersedes; but a property that is absent, or has a value that is
//! none, resets nothing (section "Processing priority"). The file
//! `/.well-known/tdmrep.json`, which both supersede, is not read. Does not know
//! how fields and pages are read.

use std::collections::BTreeSet;

use sfv::{TokenRef, token_ref};

use super::preference::{Carrier, Preference, PreferenceValue, absolute};

const TDM_RESERVATION: &TokenRef = token_ref("tdm-reservation");
const TDM_POLICY: &TokenRef = token_ref("tdm-policy");

/// Declarations of the fields and of the page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MiningDeclarations {
    field: Declaration,
    page: Declaration,
}

/// Declaration of one carrier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Declaration {
    reservation: Option<Reservation>,
    policy: Option<String>,
}

/// Value of `tdm-reservation`; the strictest last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reservation {
    NotReserved,
    Reserved,
}

impl MiningDeclarations {
    /// Adds a `tdm-reservation`. Of several in one carrier the strictest counts,
    /// which the report leaves open.
    pub(super) fn add_reservation(&mut self, value: &[u8], carrier: Carrier) {
        let declaration = self.declaration(carrier);
        for value in value.split(|byte| *byte == b',') {
            declaration.reservation = declaration.reservation.max(Reservation::read(value));
        }
    }

    /// Adds a `tdm-policy`, an absolute URL; in one carrier the first counts.
    pub(super) fn add_policy(&mut self, value: &[u8], carrier: Carrier) {
        let declaration = self.declaration(carrier);
        declaration.policy = declaration.policy.take().or_else(|| absolute(value));
    }

    /// Returns the bytes of the URLs.
    pub(super) fn bytes(&self) -> usize {
        let policies = [&self.field, &self.page].map(|it| it.policy.as_ref());
        policies.into_iter().flatten().map(String::len).sum()
    }

    fn declaration(&mut self, carrier: Carrier) -> &mut Declaration {
        match carrier {
            Carrier::Page => &mut self.page,
            Carrier::Field | Carrier::RobotsTxt => &mut self.field,
        }
    }

    /// Returns the reservation, and the policy if there is one. A policy says how to
    /// get leave, so it means nothing where mining is not reserved (section
    /// "tdm-policy").
    pub(super) fn settle(self) -> impl Iterator<Item = Preference> {
        let Self { field, page } = self;
        let reservation = settled(field.reservation, page.reservation);
        let is_reserved = matches!(reservation, Some((Reservation::Reserved, _)));
        let reservations = reservation.map(|(reservation, carriers)| Preference {
            name: TDM_RESERVATION,
            value: PreferenceValue::Integer(reservation as u8),
            carriers,
            line: None,
        });
        let policy = settled(field.policy, page.policy).filter(|_| is_reserved);
        let policies = policy.map(|(url, carriers)| Preference {
            name: TDM_POLICY,
            value: PreferenceValue::Text(url),
            carriers,
            line: None,
        });
        policies.into_iter().chain(reservations)
    }
}

/// Returns the value of a property that counts, and its carriers. The page comes
/// after the fields and supersedes them.
fn settled<T: PartialEq>(field: Option<T>, page: Option<T>) -> Option<(T, BTreeSet<Carrier>)> {
    match (field, page) {
        (Some(field), Some(page)) if field == page => {
            Some((page, [Carrier::Field, Carrier::Page].into()))
        }
        (_, Some(page)) => Some((page, [Carrier::Page].into())),
        (Some(field), None) => Some((field, [Carrier::Field].into())),
        (None, None) => None,
    }
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
