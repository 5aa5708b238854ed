//! Who is who: the operator's word on which product tokens a crawler goes by.
//!
//! What a crawler calls itself is a hint (RFC 9309, section 2.2.1, wants the
//! token in it, and says no more); the operator knows. So the table is asked
//! first, and User-Agent only where no entry fits. How addresses and requests
//! come in is not known here.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;

use politesse_robots::crawler::{Crawler, ProductToken};

/// An entry of the table: on which conditions a crawler goes by which tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The tokens, the likeliest first; at least one.
    pub tokens: Vec<ProductToken>,
    /// A part of the User-Agent, in any case; absent: whatever it says.
    pub user_agent: Option<String>,
    /// Where it asks from; absent: from anywhere.
    pub clients: Option<Vec<IpNet>>,
    /// How long its requests may wait for a turn; absent: as long as anyone's.
    pub max_wait: Option<Duration>,
}

impl Identity {
    /// Whether all conditions hold. Who asks from nowhere that is known meets
    /// no condition on where.
    fn fits(&self, user_agent: Option<&[u8]>, client: Option<IpAddr>) -> bool {
        let says = |part: &String| holds(user_agent.unwrap_or_default(), part.as_bytes());
        let is_at = |networks: &Vec<IpNet>| {
            client.is_some_and(|client| networks.iter().any(|network| network.contains(&client)))
        };
        self.user_agent.as_ref().is_none_or(says) && self.clients.as_ref().is_none_or(is_at)
    }
}

/// The table, in the order in which it is asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identities(Vec<Identity>);

impl Identities {
    /// A table of these entries.
    #[must_use]
    pub fn new(entries: Vec<Identity>) -> Self {
        Self(entries)
    }

    /// Who asks from `client` and calls itself `user_agent`: whom the first
    /// entry says that fits, else who User-Agent says.
    ///
    /// Without a `client` (nobody has connected) only entries that do not ask
    /// for one fit.
    pub fn crawler(&self, user_agent: Option<&[u8]>, client: Option<IpAddr>) -> Crawler {
        self.known(user_agent, client).0
    }

    /// The same, with how long its requests may wait if the entry says so.
    pub fn known(
        &self,
        user_agent: Option<&[u8]>,
        client: Option<IpAddr>,
    ) -> (Crawler, Option<Duration>) {
        match self.0.iter().find(|entry| entry.fits(user_agent, client)) {
            Some(entry) => (Crawler::known_as(&entry.tokens, user_agent), entry.max_wait),
            None => (Crawler::from_user_agent(user_agent), None),
        }
    }
}

/// Whether `part` stands in `text`, in any case.
fn holds(text: &[u8], part: &[u8]) -> bool {
    part.is_empty()
        || text
            .windows(part.len())
            .any(|window| window.eq_ignore_ascii_case(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(texts: &[&str]) -> Vec<ProductToken> {
        let tokens = texts.iter().map(|text| ProductToken::new(text));
        tokens.collect::<Result<_, _>>().unwrap()
    }

    /// An entry; an empty condition is none.
    fn entry(names: &[&str], user_agent: &str, client: &str) -> Identity {
        Identity {
            tokens: tokens(names),
            user_agent: (!user_agent.is_empty()).then(|| user_agent.to_owned()),
            clients: (!client.is_empty()).then(|| vec![client.parse().unwrap()]),
            max_wait: None,
        }
    }

    /// One test a row: who is meant by a User-Agent from an address.
    macro_rules! identities {
        ($($name:ident: [$($entry:expr),*] say $agent:literal at $client:literal is $expected:expr;)*) => {$(
            #[test]
            fn $name() {
                let table = Identities::new(vec![$($entry),*]);
                let client = (!$client.is_empty()).then(|| $client.parse().unwrap());
                let crawler = table.crawler(Some($agent.as_bytes()), client);
                assert_eq!(crawler.candidates(), tokens(&$expected));
                assert_eq!(crawler.user_agent(), Some($agent));
            }
        )*};
    }

    // Contract, section 2.
    identities! {
        no_entry_leaves_it_to_user_agent: [] say "BarBot/1" at "10.0.0.1" is ["BarBot"];
        an_entry_without_conditions_fits_all:
            [entry(&["FooBot"], "", "")] say "BarBot/1" at "10.0.0.1" is ["FooBot"];
        tokens_keep_their_order_and_nothing_is_derived:
            [entry(&["FooBot", "Foo"], "", "")] say "BarBot/1" at "10.0.0.1" is ["FooBot", "Foo"];
        part_of_the_user_agent_is_found_in_any_case:
            [entry(&["FooBot"], "LEGACYbot/", "")] say "Mozilla/5.0 LegacyBot/2" at "10.0.0.1" is ["FooBot"];
        another_user_agent_does_not_fit:
            [entry(&["FooBot"], "legacybot/", "")] say "LegacyBot 2" at "10.0.0.1" is ["LegacyBot"];
        address_in_the_network_fits:
            [entry(&["FooBot"], "", "10.0.0.0/8")] say "BarBot/1" at "10.255.0.1" is ["FooBot"];
        ipv6_address_in_the_network_fits:
            [entry(&["FooBot"], "", "fd00::/8")] say "BarBot/1" at "fd00::1" is ["FooBot"];
        address_elsewhere_does_not_fit:
            [entry(&["FooBot"], "", "10.0.0.0/8")] say "BarBot/1" at "11.0.0.1" is ["BarBot"];
        all_conditions_must_hold:
            [entry(&["FooBot"], "foo", "10.0.0.0/8")] say "BarBot/1" at "10.0.0.1" is ["BarBot"];
        first_entry_that_fits_counts:
            [entry(&["A"], "a/", ""), entry(&["B"], "b/", ""), entry(&["C"], "", "")]
            say "b/1" at "10.0.0.1" is ["B"];
        nobody_connected_meets_no_condition_on_where:
            [entry(&["A"], "", "10.0.0.0/8"), entry(&["B"], "bar", "")] say "BarBot/1" at "" is ["B"];
    }

    // Contract, section 2: `max_wait` of the first entry that fits.
    #[test]
    fn who_is_known_may_have_a_time_to_wait() {
        let mut patient = entry(&["FooBot"], "foo", "");
        patient.max_wait = Some(Duration::from_secs(60));
        let table = Identities::new(vec![patient, entry(&["BarBot"], "", "")]);
        let wait = |agent: &[u8]| table.known(Some(agent), None).1;
        assert_eq!(wait(b"foobot/1"), Some(Duration::from_secs(60)));
        assert_eq!(wait(b"barbot/1"), None);
        assert_eq!(Identities::default().known(None, None).1, None);
    }

    // Contract, section 2: an entry without conditions fits all.
    #[test]
    fn who_says_nothing_can_have_a_name() {
        let table = Identities::new(vec![entry(&["A"], "a", ""), entry(&["B"], "", "")]);
        let crawler = table.crawler(None, Some([127, 0, 0, 1].into()));
        assert_eq!(crawler.candidates(), tokens(&["B"]));
        assert_eq!(crawler.user_agent(), None);
        let silent = Identities::default().crawler(None, None);
        assert_eq!(silent, Crawler::from_user_agent([]));
    }
}
