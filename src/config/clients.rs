//! Kinds of `proxy.clients` and `proxy.per_client`: the networks that may connect, and
//! limits per client or per network.
//!
//! Does not know how shares are counted.

use std::num::NonZeroU32;

use ipnet::IpNet;
use toml::Spanned;
use toml::de::DeValue;

use super::kinds::{Count, Kind, Text, places};
use super::network::{CLIENTS, network};
use super::pace::RATE;
use super::problem::Fault;
use super::tables::{Fields, Table};
use politesse_base::clients::client::{ClientLimits, Resource};

/// Networks of one entry of `proxy.clients`, and the limits that the entry sets.
#[derive(Debug, Clone)]
pub(super) struct AdmittedNetworks {
    /// Networks that may connect.
    pub(super) networks: Vec<IpNet>,
    /// Limits for all clients in these networks together, if the entry has any.
    pub(super) limits: Option<ClientLimits>,
}

/// Kind of an entry of `proxy.clients`: a network, or a network with limits.
pub(super) struct Admitted;

/// Value to refer to [`Admitted`] by in the table of keys.
pub(super) const ADMITTED: Admitted = Admitted;

impl Kind for Admitted {
    type Value = AdmittedNetworks;

    fn wanted(&self) -> String {
        format!("{}, or {}", CLIENTS.wanted(), LIMITED_NETWORK.wanted())
    }

    fn read(&self, written: &Spanned<DeValue<'_>>) -> Result<Self::Value, Vec<Fault>> {
        if written.get_ref().is_table() {
            return LIMITED_NETWORK.read(written);
        }
        let fault = || vec![Fault::whole(written, self.wanted())];
        Ok(AdmittedNetworks {
            networks: CLIENTS.parse(written.get_ref()).ok_or_else(fault)?,
            limits: None,
        })
    }
}

/// A network with limits that its clients share.
const LIMITED_NETWORK: Table<AdmittedNetworks> = Table {
    wanted: || {
        "a table with `network`, such as \"10.0.0.0/8\", and limits as in `proxy.per_client`"
            .to_owned()
    },
    read: |fields| {
        let network = fields.required("network", &NETWORK);
        let limits = client_limits(fields);
        Some(AdmittedNetworks {
            networks: vec![network?],
            limits: Some(limits),
        })
    },
};

/// One network.
pub(super) const NETWORK: Text<IpNet> = Text {
    wanted: "an address, or a network such as \"10.0.0.0/8\"",
    parse: network,
};

/// Limits of one client. Absent keys mean no limit.
pub(super) const CLIENT_LIMITS: Table<ClientLimits> = Table {
    wanted: || {
        let names = Resource::ALL.map(|resource| format!("`{}`", resource.as_str()));
        let number = HELD.wanted();
        let names = names.join(", ");
        format!("a table; optional keys: {names}, each {number}, and `rate` (as in \"50/s\")")
    },
    read: |fields| Some(client_limits(fields)),
};

/// Range of a client's limit on one resource.
const HELD: Count<NonZeroU32> = places(1..=10_000_000);

fn client_limits(fields: &mut Fields<'_>) -> ClientLimits {
    let mut limits = ClientLimits::default();
    for resource in Resource::ALL {
        if let Some(most) = fields.optional(resource.as_str(), &HELD) {
            limits.set(resource, most.get());
        }
    }
    if let Some(rate) = fields.optional("rate", &RATE) {
        let requests = NonZeroU32::new(rate.requests).unwrap_or(NonZeroU32::MIN);
        limits.set_rate(requests, rate.per);
    }
    limits
}
