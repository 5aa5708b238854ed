//! Whether text and data mining is reserved, and by which policy (TDMRep,
//! W3C Community Group Final Report of 10 May 2024).
//!
//! The two properties are declared in fields and in `<meta>` elements, and what
//! comes later supersedes; but for a property that is absent, or no value of
//! its own, which resets nothing (section "Processing priority"). The file
//! `/.well-known/tdmrep.json`, which both supersede, is not read.

use std::collections::BTreeSet;

use sfv::{TokenRef, token_ref};

use super::address::absolute;
use super::{Carrier, Preference, Value};

const TDM_RESERVATION: &TokenRef = token_ref("tdm-reservation");
const TDM_POLICY: &TokenRef = token_ref("tdm-policy");

/// What the fields and the page declare.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Mining {
    field: Declaration,
    page: Declaration,
}

/// What one of them declares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Declaration {
    reservation: Option<Reservation>,
    policy: Option<String>,
}

/// The rights to mine are reserved, or are not; the strictest last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reservation {
    NotReserved,
    Reserved,
}

impl Mining {
    /// Takes in a `tdm-reservation`. Said several times in one place, the
    /// strictest counts, which the report leaves open.
    pub(super) fn reserve(&mut self, value: &[u8], carrier: Carrier) {
        let declared = self.declared_by(carrier);
        for value in value.split(|byte| *byte == b',') {
            declared.reservation = declared.reservation.max(Reservation::read(value));
        }
    }

    /// Takes in a `tdm-policy`, an absolute URL; in one place the first counts.
    pub(super) fn name_policy(&mut self, value: &[u8], carrier: Carrier) {
        let declared = self.declared_by(carrier);
        declared.policy = declared.policy.take().or_else(|| absolute(value));
    }

    /// Bytes of the URLs.
    pub(super) fn bytes(&self) -> usize {
        let policies = [&self.field, &self.page].map(|it| it.policy.as_ref());
        policies.into_iter().flatten().map(String::len).sum()
    }

    fn declared_by(&mut self, carrier: Carrier) -> &mut Declaration {
        match carrier {
            Carrier::Page => &mut self.page,
            Carrier::Field | Carrier::RobotsTxt => &mut self.field,
        }
    }

    /// The reservation, and the policy if there is one. A policy says how to
    /// get leave, so it means nothing where mining is not reserved (section
    /// "tdm-policy").
    pub(super) fn settle(self) -> impl Iterator<Item = Preference> {
        let Self { field, page } = self;
        let reservation = settled(field.reservation, page.reservation);
        let is_reserved = matches!(reservation, Some((Reservation::Reserved, _)));
        let reservation = reservation.map(|(reservation, carriers)| Preference {
            name: TDM_RESERVATION,
            value: Value::Integer(reservation as u8),
            carriers,
        });
        let policy = settled(field.policy, page.policy).filter(|_| is_reserved);
        let policy = policy.map(|(url, carriers)| Preference {
            name: TDM_POLICY,
            value: Value::Text(url),
            carriers,
        });
        policy.into_iter().chain(reservation)
    }
}

/// What counts of a property, and who declares that.
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
