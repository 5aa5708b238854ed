//! Inquiry: which crawler asks for which URL. Also the operator's table of crawlers
//! (`[[crawler]]`), which gives each its product tokens.
//!
//! The name in `User-Agent` is only a hint (RFC 9309, section 2.2.1), and the operator
//! knows better. So the table comes first, and `User-Agent` counts only if no entry
//! matches. Does not know how requests and addresses arrive.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;

use super::digest::{CanonicalBytes, Digest};
use super::label::CrawlLabel;
use super::preferences::{PreferenceDefaults, PreferenceMode, PreferenceTerms};
use politesse_directives::PurposeSet;
use politesse_robots::crawler::{Crawler, ProductToken};
use politesse_robots::origin::{ROBOTS_TXT, Target};

/// Parts of a request that a decision depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inquiry {
    /// The crawler.
    pub crawler: Crawler,
    /// The URL that it asks for.
    pub target: Target,
    /// The method (RFC 9110, section 9). Only decisions about /robots.txt depend on it.
    pub method: String,
}

impl Inquiry {
    /// Reports whether the request reads robots.txt itself: GET or HEAD of exactly that
    /// path. RFC 9309, section 2.2.2, always allows the path and does not mention methods.
    /// Other methods do more than read, so they are judged by the rules.
    pub fn reads_robots_txt(&self) -> bool {
        self.target.path_and_query() == ROBOTS_TXT && matches!(self.method.as_str(), "GET" | "HEAD")
    }
}

/// Entry of the table of crawlers: product tokens, and the conditions that a request
/// must meet to get them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Product tokens, the likeliest first; at least one.
    pub tokens: Vec<ProductToken>,
    /// Text that `User-Agent` must contain, ignoring case; `None` is no condition.
    pub user_agent: Option<String>,
    /// Networks, one of which must contain the client; `None` is no condition.
    pub clients: Option<Vec<IpNet>>,
    /// Digest of the token that a client must present; `None` is no condition.
    pub credential: Option<Digest>,
    /// Longest time that a request of this crawler waits for the pace of its host;
    /// `None` means `pace.max_wait`.
    pub max_wait: Option<Duration>,
    /// Label of the crawl that its requests belong to, unless the client states another.
    pub label: Option<CrawlLabel>,
    /// Purposes of its requests. If none are declared, preferences deny it nothing.
    pub purposes: PurposeSet,
    /// Treatment of requests whose purposes are denied; `None` means
    /// `preferences.enforce`.
    pub enforce: Option<PreferenceMode>,
    /// Whether files that its pages embed need turns of their own.
    pub requisites: Requisites,
}

/// Turns of page requisites: the files that a page embeds, such as images and scripts
/// (`crawler.requisites`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Requisites {
    /// Each file waits for its own turn.
    #[default]
    Turn,
    /// They share the turn of their page.
    Follow,
}

impl Identity {
    /// Reports whether a request meets all conditions except the credential. A request
    /// without a `client` meets no condition on networks.
    pub fn fits(&self, user_agent: Option<&[u8]>, client: Option<IpAddr>) -> bool {
        // A missing User-Agent counts as an empty one, which contains none of the
        // texts that an entry may require.
        let says = |part: &String| contains(user_agent.unwrap_or_default(), part.as_bytes());
        let is_at = |networks: &Vec<IpNet>| {
            client.is_some_and(|client| networks.iter().any(|network| network.contains(&client)))
        };
        self.user_agent.as_ref().is_none_or(says) && self.clients.as_ref().is_none_or(is_at)
    }

    /// Returns a digest of the names and conditions, which identifies the entry regardless
    /// of its position in the table and reveals no condition. The credential is not part
    /// of it: a crawler with a new credential remains the same crawler.
    pub fn digest(&self) -> Digest {
        let mut bytes = CanonicalBytes::new();
        bytes.number(self.tokens.len() as u64);
        self.tokens.iter().for_each(|token| bytes.text(token));
        bytes.optional(self.user_agent.as_ref(), CanonicalBytes::text);
        bytes.optional(self.clients.as_ref(), |bytes, networks| {
            bytes.number(networks.len() as u64);
            networks.iter().for_each(|network| bytes.text(network));
        });
        Digest::of(bytes.as_bytes())
    }
}

/// Table of identities. The first entry that matches a request applies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identities {
    entries: Vec<Identity>,
    /// Digests of the entries, in their order.
    digests: Vec<Digest>,
    /// Default treatment for crawlers whose entry sets none.
    preferences: PreferenceDefaults,
}

/// Entry that matches a request.
#[derive(Debug, Clone, Copy)]
pub struct KnownEntry<'a> {
    /// Entry of the table.
    pub identity: &'a Identity,
    /// Digest of the entry ([`Identity::digest`]).
    pub digest: Digest,
}

impl Identities {
    /// Creates a table from its entries.
    #[must_use]
    pub fn new(entries: Vec<Identity>) -> Self {
        Self {
            digests: entries.iter().map(Identity::digest).collect(),
            entries,
            preferences: PreferenceDefaults::default(),
        }
    }

    /// Sets the default treatment for crawlers whose entry sets none.
    #[must_use]
    pub fn with_preferences(self, preferences: PreferenceDefaults) -> Self {
        Self {
            preferences,
            ..self
        }
    }

    /// Returns the preference terms of a crawler. Its purposes are `purposes`, or those of
    /// `entry` if `purposes` is empty. Returns `None` if no purpose is declared.
    pub fn preferences(
        &self,
        entry: Option<&Identity>,
        purposes: PurposeSet,
    ) -> Option<PreferenceTerms> {
        let declared = match entry {
            Some(entry) if purposes.is_empty() => entry.purposes,
            _ => purposes,
        };
        let enforce = entry.and_then(|entry| entry.enforce);
        (!declared.is_empty()).then(|| PreferenceTerms {
            purposes: declared,
            enforce: enforce.unwrap_or(self.preferences.enforce),
            rule: self.preferences.rule,
            unknown: self.preferences.unknown,
        })
    }

    /// Returns the crawler that sends requests from `client` as `user_agent`.
    ///
    /// Without a `client` (there was no connection), only entries without `clients`
    /// match.
    pub fn crawler(&self, user_agent: Option<&[u8]>, client: Option<IpAddr>) -> Crawler {
        self.look_up(user_agent, client).0
    }

    /// Returns the crawler that sends requests from `client` as `user_agent`, and its
    /// `max_wait` if its entry sets one.
    pub fn look_up(
        &self,
        user_agent: Option<&[u8]>,
        client: Option<IpAddr>,
    ) -> (Crawler, Option<Duration>) {
        match self.known(user_agent, client) {
            Some(KnownEntry { identity, .. }) => {
                let crawler = Crawler::known_as(&identity.tokens, user_agent);
                (crawler, identity.max_wait)
            }
            None => (Crawler::from_user_agent(user_agent), None),
        }
    }

    /// Returns all entries, in order.
    pub fn entries(&self) -> &[Identity] {
        &self.entries
    }

    /// Returns the first matching entry that requires no credential; `None` if the names
    /// in `User-Agent` count.
    pub fn known(
        &self,
        user_agent: Option<&[u8]>,
        client: Option<IpAddr>,
    ) -> Option<KnownEntry<'_>> {
        let mut entries = self.entries.iter().zip(&self.digests);
        let fits = |entry: &Identity| entry.credential.is_none() && entry.fits(user_agent, client);
        let (identity, &digest) = entries.find(|(entry, _)| fits(entry))?;
        Some(KnownEntry { identity, digest })
    }
}

/// Reports whether `text` contains `part`, ignoring ASCII case.
fn contains(text: &[u8], part: &[u8]) -> bool {
    // `windows(0)` would panic.
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

    /// Returns an entry. An empty text means no condition.
    fn entry(names: &[&str], user_agent: &str, client: &str) -> Identity {
        Identity {
            tokens: tokens(names),
            user_agent: (!user_agent.is_empty()).then(|| user_agent.to_owned()),
            clients: (!client.is_empty()).then(|| vec![client.parse().unwrap()]),
            credential: None,
            max_wait: None,
            label: None,
            purposes: PurposeSet::default(),
            enforce: None,
            requisites: Requisites::Turn,
        }
    }

    // Ours.
    #[test]
    fn an_entry_with_a_credential_does_not_match_without_it() {
        let mut guarded = entry(&["FooBot"], "foo", "");
        guarded.credential = Some(Digest::of(b"token"));
        let table = Identities::new(vec![guarded, entry(&["B"], "foobot", "")]);
        let crawler = table.crawler(Some(b"FooBot/1"), None);
        assert_eq!(crawler.candidates(), tokens(&["B"]));
    }

    /// One test per row: the crawler for a User-Agent and a client address.
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

    // Ours.
    identities! {
        without_entries_the_user_agent_names_the_crawler: [] say "BarBot/1" at "10.0.0.1" is ["BarBot"];
        an_entry_without_conditions_matches_every_request:
            [entry(&["FooBot"], "", "")] say "BarBot/1" at "10.0.0.1" is ["FooBot"];
        tokens_keep_their_order_and_nothing_is_derived:
            [entry(&["FooBot", "Foo"], "", "")] say "BarBot/1" at "10.0.0.1" is ["FooBot", "Foo"];
        part_of_the_user_agent_is_found_in_any_case:
            [entry(&["FooBot"], "LEGACYbot/", "")] say "Mozilla/5.0 LegacyBot/2" at "10.0.0.1" is ["FooBot"];
        another_user_agent_does_not_match:
            [entry(&["FooBot"], "legacybot/", "")] say "LegacyBot 2" at "10.0.0.1" is ["LegacyBot"];
        an_address_in_the_network_matches:
            [entry(&["FooBot"], "", "10.0.0.0/8")] say "BarBot/1" at "10.255.0.1" is ["FooBot"];
        an_ipv6_address_in_the_network_matches:
            [entry(&["FooBot"], "", "fd00::/8")] say "BarBot/1" at "fd00::1" is ["FooBot"];
        an_address_outside_the_network_does_not_match:
            [entry(&["FooBot"], "", "10.0.0.0/8")] say "BarBot/1" at "11.0.0.1" is ["BarBot"];
        all_conditions_must_hold:
            [entry(&["FooBot"], "foo", "10.0.0.0/8")] say "BarBot/1" at "10.0.0.1" is ["BarBot"];
        the_first_matching_entry_applies:
            [entry(&["A"], "a/", ""), entry(&["B"], "b/", ""), entry(&["C"], "", "")]
            say "b/1" at "10.0.0.1" is ["B"];
        without_a_client_no_condition_on_networks_is_met:
            [entry(&["A"], "", "10.0.0.0/8"), entry(&["B"], "bar", "")] say "BarBot/1" at "" is ["B"];
    }

    // Ours: copies of robots.txt survive a reload that reorders the entries.
    #[test]
    fn the_digest_of_an_entry_covers_its_names_and_conditions_only() {
        let plain = entry(&["A"], "a", "10.0.0.0/8");
        let mut patient = plain.clone();
        patient.max_wait = Some(Duration::from_secs(60));
        patient.requisites = Requisites::Follow;
        let tables = [vec![plain.clone()], vec![entry(&["B"], "b", ""), patient]];
        let digests = tables.map(|entries| {
            let table = Identities::new(entries);
            let client = Some([10, 0, 0, 1].into());
            table.known(Some(b"a"), client).unwrap().digest
        });
        assert_eq!(digests[0], digests[1]);
        let mut guarded = plain.clone();
        guarded.credential = Some(Digest::of(b"token"));
        assert_eq!(guarded.digest(), plain.digest());
        for other in [
            entry(&["A", "B"], "a", "10.0.0.0/8"),
            entry(&["A"], "b", "10.0.0.0/8"),
            entry(&["A"], "", "10.0.0.0/8"),
            entry(&["A"], "a", ""),
        ] {
            assert_ne!(other.digest(), plain.digest(), "{other:?}");
        }
    }

    // Ours: `max_wait` of the first matching entry.
    #[test]
    fn the_matching_entry_sets_the_longest_wait() {
        let mut patient = entry(&["FooBot"], "foo", "");
        patient.max_wait = Some(Duration::from_secs(60));
        let table = Identities::new(vec![patient, entry(&["BarBot"], "", "")]);
        let wait = |agent: &[u8]| table.look_up(Some(agent), None).1;
        assert_eq!(wait(b"foobot/1"), Some(Duration::from_secs(60)));
        assert_eq!(wait(b"barbot/1"), None);
        assert_eq!(Identities::default().look_up(None, None).1, None);
    }

    // Ours: an entry without conditions matches every request.
    #[test]
    fn a_request_without_user_agent_gets_its_name_from_the_table() {
        let table = Identities::new(vec![entry(&["A"], "a", ""), entry(&["B"], "", "")]);
        let crawler = table.crawler(None, Some([127, 0, 0, 1].into()));
        assert_eq!(crawler.candidates(), tokens(&["B"]));
        assert_eq!(crawler.user_agent(), None);
        let silent = Identities::default().crawler(None, None);
        assert_eq!(silent, Crawler::from_user_agent([]));
    }
}
