//! Table of the configured crawlers: identifies the crawler that sends a request by its
//! credential, by the operator's entries, or by its User-Agent.
//!
//! A name is protected if its entry has a credential: a request that uses the name
//! without that credential is refused. A name is pinned if its entry has `client`: it is
//! foreign to all other clients (docs/clients.md). Does not know which URLs a crawler may
//! fetch, or how a foreign name is handled.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;

use super::crawler_names::{CrawlerNames, REMEMBERED_MAX, VALUE_BYTES_MAX};
use super::credentials::{AuthMode, CrawlerCredentials, CredentialError, VerifiedCredential};
use super::problem::{MalformedRequest, Problem};
use politesse_decision::digest::Digest;
use politesse_decision::inquiry::{Identities, Identity, KnownEntry, Requisites};
use politesse_decision::label::CrawlLabel;
use politesse_decision::preferences::PreferenceTerms;
use politesse_directives::PurposeSet;
use politesse_robots::crawler::{Crawler, ProductToken};

/// Table of the crawlers of one configuration.
#[derive(Debug)]
pub struct CrawlerTable {
    /// Entries of the configuration, in order.
    identities: Identities,
    /// Credentials of the entries, and whether a credential is required.
    pub credentials: CrawlerCredentials,
    /// Names of entries with a credential.
    protected: RestrictedNames,
    /// Names of entries with `client`.
    pinned: RestrictedNames,
    /// Names found in `User-Agent` values. Shared by all configurations, because they are
    /// independent of them.
    pub names: Arc<CrawlerNames>,
}

/// Properties of a request that identify its crawler.
#[derive(Debug, Clone, Copy)]
pub struct RequestSender<'a> {
    /// Value of `User-Agent`.
    pub user_agent: Option<&'a [u8]>,
    /// Address of the client.
    pub client: IpAddr,
    /// Credential that the client has presented.
    pub credential: Option<&'a VerifiedCredential>,
    /// Purposes of the command that sends the request. They replace those of its entry.
    pub purposes: PurposeSet,
}

/// Crawler that sends a request, with its settings.
#[derive(Debug)]
pub struct KnownCrawler {
    /// The crawler.
    pub crawler: Crawler,
    /// Longest wait for turns that the operator allows it (`crawler.max_wait`), if it
    /// differs from the general limit.
    pub max_wait: Option<Duration>,
    /// Label of its crawl (`crawler.label`).
    pub label: Option<CrawlLabel>,
    /// Purposes declared for it, if any.
    pub preferences: Option<PreferenceTerms>,
    /// Whether files embedded in its pages need turns of their own.
    pub requisites: Requisites,
    /// Digest of its entry ([`Identity::digest`]), if it has one.
    pub entry: Option<Digest>,
    /// Name in its `User-Agent` that the operator pins to other clients.
    pub foreign_name: Option<ProductToken>,
}

impl CrawlerTable {
    /// Creates the table for `identities`.
    pub fn new(mode: AuthMode, identities: &Identities, names: Arc<CrawlerNames>) -> Self {
        let credentials = CrawlerCredentials::new(mode, identities);
        let pins = |entry: &&Identity| entry.clients.is_some();
        Self {
            identities: identities.clone(),
            protected: RestrictedNames::new(credentials.entries()),
            pinned: RestrictedNames::new(identities.entries().iter().filter(pins)),
            credentials,
            names,
        }
    }

    /// Identifies the crawler that sends a request.
    ///
    /// # Errors
    ///
    /// [`Problem::Credential`] if the credential is not valid for this sender, or if the
    /// sender uses a protected name; [`MalformedRequest::Names`] if the User-Agent has
    /// more names than are read, because a robots.txt could have a group for one of the
    /// others.
    pub fn identify(&self, sender: &RequestSender<'_>) -> Result<KnownCrawler, Problem> {
        let known = match sender.credential {
            Some(credential) => self.by_credential(sender, credential)?,
            None => {
                self.refuse_protected(sender)?;
                self.unproved(sender)
            }
        };
        if known.crawler.is_cut() {
            return Err(MalformedRequest::Names.into());
        }
        Ok(known)
    }

    /// Identifies the crawler of a request with a credential.
    ///
    /// # Errors
    ///
    /// [`CredentialError::Wrong`] if the request does not meet the other conditions of an
    /// entry with that credential; [`CredentialError::Protected`] if its User-Agent has a
    /// protected name that is not in the entry.
    fn by_credential(
        &self,
        sender: &RequestSender<'_>,
        credential: &VerifiedCredential,
    ) -> Result<KnownCrawler, CredentialError> {
        let entry = self
            .credentials
            .entry(credential, sender.user_agent, sender.client)
            .ok_or(CredentialError::Wrong)?;
        let tokens = &entry.identity.tokens;
        let by_user_agent = self.names.crawler(sender.user_agent);
        let used = self.protected.used_by(&by_user_agent, sender.user_agent);
        if !used.iter().all(|name| tokens.contains(name)) {
            return Err(CredentialError::Protected);
        }
        let crawler = Crawler::vouched_for(tokens, &by_user_agent);
        Ok(self.known(sender, crawler, Some(entry)))
    }

    /// Refuses a request that uses a protected name without a credential.
    fn refuse_protected(&self, sender: &RequestSender<'_>) -> Result<(), CredentialError> {
        if self.protected.tokens.is_empty() {
            return Ok(());
        }
        let agent = sender.user_agent;
        let used = self.protected.used_by(&self.names.crawler(agent), agent);
        // An entry without a credential cannot grant a protected name: the operator wants
        // the credential of that name to be presented.
        let known = self.identities.known(agent, Some(sender.client));
        let mut given = known.iter().flat_map(|entry| &entry.identity.tokens);
        if !used.is_empty() || given.any(|name| self.protected.tokens.contains(name)) {
            return Err(CredentialError::Protected);
        }
        Ok(())
    }

    /// Identifies the crawler of a request without a credential.
    pub fn unproved(&self, sender: &RequestSender<'_>) -> KnownCrawler {
        let agent = sender.user_agent;
        let known = self.identities.known(agent, Some(sender.client));
        let crawler = match known {
            Some(entry) => Crawler::known_as(&entry.identity.tokens, agent),
            None => self.names.crawler(agent),
        };
        self.known(sender, crawler, known)
    }

    /// Adds the settings of `entry`, or the defaults, to a crawler.
    fn known(
        &self,
        sender: &RequestSender<'_>,
        crawler: Crawler,
        entry: Option<KnownEntry<'_>>,
    ) -> KnownCrawler {
        let own = entry.map_or(&[][..], |entry| &entry.identity.tokens);
        KnownCrawler {
            crawler,
            max_wait: entry.and_then(|entry| entry.identity.max_wait),
            label: entry.and_then(|entry| entry.identity.label.clone()),
            preferences: self
                .identities
                .preferences(entry.map(|entry| entry.identity), sender.purposes),
            requisites: entry.map_or(Requisites::Turn, |entry| entry.identity.requisites),
            entry: entry.map(|entry| entry.digest),
            foreign_name: self.foreign_name(sender, own),
        }
    }

    /// Returns a name in the `User-Agent` that entries pin to other clients. `own` are
    /// the names that the operator gives to the sender.
    fn foreign_name(
        &self,
        sender: &RequestSender<'_>,
        own: &[ProductToken],
    ) -> Option<ProductToken> {
        if self.pinned.tokens.is_empty() {
            return None;
        }
        let (agent, client) = (sender.user_agent, Some(sender.client));
        let used = self.pinned.used_by(&self.names.crawler(agent), agent);
        let may_use = |name: &&ProductToken| {
            let mut entries = self.identities.entries().iter();
            own.contains(name)
                || entries.any(|entry| {
                    let pins = entry.clients.is_some() && entry.tokens.contains(name);
                    pins && entry.fits(agent, client)
                })
        };
        used.iter().find(|name| !may_use(name)).cloned()
    }
}

/// Names reserved for certain clients, and the search for them in a User-Agent.
#[derive(Debug)]
struct RestrictedNames {
    /// The names.
    tokens: HashSet<ProductToken>,
    /// Names by their text in lower case.
    texts: HashMap<Box<[u8]>, ProductToken>,
    /// Lengths of the names, in bytes.
    lengths: BTreeSet<usize>,
    /// Names found before, by User-Agent. A crawl sends the same one with each request.
    found: DashMap<Box<[u8]>, Arc<[ProductToken]>>,
}

impl RestrictedNames {
    fn new<'a>(entries: impl Iterator<Item = &'a Identity>) -> Self {
        let listed = entries.flat_map(|entry| &entry.tokens);
        let tokens: HashSet<_> = listed.cloned().collect();
        let lower = |token: &ProductToken| token.as_str().to_ascii_lowercase().into_bytes();
        let texts: HashMap<Box<[u8]>, _> = tokens
            .iter()
            .map(|token| (lower(token).into(), token.clone()))
            .collect();
        Self {
            lengths: texts.keys().map(|text| text.len()).collect(),
            tokens,
            texts,
            found: DashMap::new(),
        }
    }

    /// Returns the restricted names in `user_agent`, spelled as configured: those among
    /// the candidates of `crawler`, and those that occur anywhere as separate words,
    /// because a site may recognise a crawler by them.
    fn used_by(&self, crawler: &Crawler, user_agent: Option<&[u8]>) -> Arc<[ProductToken]> {
        let agent = user_agent.unwrap_or_default();
        if self.tokens.is_empty() || agent.is_empty() {
            return Arc::default();
        }
        if let Some(found) = self.found.get(agent) {
            return Arc::clone(&found);
        }
        let candidates = crawler.candidates().iter();
        let named = candidates.filter_map(|token| self.tokens.get(token));
        let mut names: Vec<_> = named.cloned().collect();
        names.extend(self.words_in(&agent.to_ascii_lowercase()));
        let names: Arc<[_]> = names.into();
        if agent.len() <= VALUE_BYTES_MAX {
            if REMEMBERED_MAX <= self.found.len() {
                // Cleared completely, as in `CrawlerNames`: a User-Agent still in use
                // comes back with its next request.
                self.found.clear();
            }
            self.found.insert(agent.into(), Arc::clone(&names));
        }
        names
    }

    /// Returns the restricted names that occur as separate words in the lower-case
    /// `text`.
    fn words_in(&self, text: &[u8]) -> impl Iterator<Item = ProductToken> {
        let starts = (0..text.len()).filter(|&at| !continues_name(text[..at].iter().rev()));
        starts.flat_map(move |at| {
            let lengths = self.lengths.iter();
            let ends = lengths
                .map(move |length| at + length)
                .take_while(|&end| end <= text.len())
                .filter(|&end| !continues_name(text[end..].iter()));
            ends.filter_map(move |end| self.texts.get(&text[at..end]).cloned())
        })
    }
}

/// Reports whether the bytes next to a name make it part of a longer one: `FooBot` in
/// `FooBot-News` or in `foobot.example`. `bytes` begin with the one next to the name.
fn continues_name<'a>(mut bytes: impl Iterator<Item = &'a u8>) -> bool {
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || 0x80 <= *byte;
    match bytes.next() {
        Some(b'-' | b'_') => true,
        // A full stop at the end of a sentence does not continue a domain name.
        Some(b'.' | b'@') => bytes.next().is_some_and(is_letter),
        next => next.is_some_and(is_letter),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;
    use http::HeaderMap;
    use http::header::PROXY_AUTHORIZATION;

    use crate::credentials::LastCredential;

    fn identity(names: &[&str], credential: Option<&str>) -> Identity {
        let tokens = names.iter().map(|name| ProductToken::new(name).unwrap());
        Identity {
            tokens: tokens.collect(),
            user_agent: None,
            clients: None,
            credential: credential.map(|token| Digest::of(token.as_bytes())),
            max_wait: None,
            label: None,
            purposes: PurposeSet::default(),
            enforce: None,
            requisites: Requisites::Turn,
        }
    }

    fn table(entries: Vec<Identity>) -> CrawlerTable {
        let identities = Identities::new(entries);
        CrawlerTable::new(AuthMode::Optional, &identities, Arc::default())
    }

    /// Returns the candidates and the unlisted names of a sender, or the error word.
    fn names(table: &CrawlerTable, agent: &str, pair: &str) -> Result<[String; 2], &'static str> {
        let mut fields = HeaderMap::new();
        if !pair.is_empty() {
            let base64 = base64::engine::general_purpose::STANDARD.encode(pair);
            let value = format!("Basic {base64}").parse().unwrap();
            fields.insert(PROXY_AUTHORIZATION, value);
        }
        let credential = table
            .credentials
            .verify(&fields, &LastCredential::default())
            .map_err(CredentialError::as_str)?;
        let sender = RequestSender {
            purposes: PurposeSet::default(),
            user_agent: Some(agent.as_bytes()),
            client: [127, 0, 0, 1].into(),
            credential: credential.as_ref(),
        };
        match table.identify(&sender) {
            Ok(known) => Ok([known.crawler.candidates(), known.crawler.unlisted()].map(joined)),
            Err(Problem::Credential(error)) => Err(error.as_str()),
            Err(other) => panic!("{other}"),
        }
    }

    fn joined(tokens: &[ProductToken]) -> String {
        let texts: Vec<_> = tokens.iter().map(ProductToken::as_str).collect();
        texts.join(" ")
    }

    /// Generates one test per row: the names of a sender with a User-Agent and a
    /// credential.
    macro_rules! senders {
        ($($name:ident: $agent:literal with $pair:literal is $expected:expr;)*) => {$(
            #[test]
            fn $name() {
                let table = table(vec![
                    identity(&["FooBot", "Foo"], Some("t1")),
                    identity(&["BarBot"], Some("t2")),
                    identity(&["Foo web spider"], Some("t3")),
                ]);
                let expected: Result<[&str; 2], &str> = $expected;
                let expected = expected.map(|names| names.map(str::to_owned));
                assert_eq!(names(&table, $agent, $pair), expected);
            }
        )*};
    }

    // Ours.
    senders! {
        a_credential_adds_its_names: "curl/8" with "FooBot:t1" is Ok(["FooBot Foo", "curl"]);
        a_listed_name_is_not_repeated_as_unlisted: "foobot/2 Foo/1" with "FooBot:t1" is Ok(["FooBot Foo", ""]);
        a_credential_works_without_a_user_agent: "" with "BarBot:t2" is Ok(["BarBot", ""]);
        a_name_of_another_credential_is_protected: "BarBot/2" with "FooBot:t1" is Err("protected");
        a_wrong_token_proves_nothing: "Other/1" with "FooBot:t2" is Err("wrong");
        a_second_name_is_not_a_user_name: "Other/1" with "Foo:t1" is Err("wrong");
        without_a_credential_the_user_agent_counts: "Other/1" with "" is Ok(["Other", ""]);
        a_protected_name_requires_its_credential: "FooBot/2" with "" is Err("protected");
        a_second_protected_name_requires_its_credential: "Foo/2" with "" is Err("protected");
        case_does_not_hide_a_protected_name: "fOObOT" with "" is Err("protected");
        another_name_does_not_hide_a_protected_name: "Other/1 FooBot/2" with "" is Err("protected");
        a_browser_does_not_hide_a_protected_name: "Mozilla/5.0 (Linux; FooBot) Safari/1" with "" is Err("protected");
        a_version_does_not_hide_a_protected_name: "foobot_2.1" with "" is Err("protected");
        a_full_stop_does_not_hide_a_protected_name: "Mozilla/5.0 (as FooBot.)" with "" is Err("protected");
        brackets_do_not_hide_a_protected_name: "[FooBot" with "" is Err("protected");
        a_name_of_words_is_protected: "Mozilla/5.0 (a; foo web spider)" with "" is Err("protected");
        a_longer_name_is_a_different_name: "FooBot-News/1 xFooBot/1" with "" is Ok(["FooBot-News xFooBot", ""]);
        a_domain_is_not_a_name: "Other/1 (+https://www.foobot.example/)" with "" is Ok(["Other", ""]);
        a_mail_address_is_not_a_name: "Other/1 (foobot@a.example)" with "" is Ok(["Other", ""]);
    }

    // Ours: an older entry must not override a later `crawler add`.
    #[test]
    fn an_entry_without_a_credential_cannot_grant_a_protected_name() {
        let table = table(vec![
            identity(&["FooBot"], None),
            identity(&["FooBot"], Some("t1")),
        ]);
        assert_eq!(names(&table, "curl/8", ""), Err("protected"));
        let proved = names(&table, "curl/8", "FooBot:t1");
        assert_eq!(proved, Ok(["FooBot".to_owned(), "curl".to_owned()]));
    }

    // Ours.
    #[test]
    fn a_credential_adds_the_patience_of_its_entry() {
        let mut patient = identity(&["FooBot"], Some("t1"));
        patient.max_wait = Some(Duration::from_secs(300));
        let table = table(vec![patient, identity(&["BarBot"], None)]);
        let mut fields = HeaderMap::new();
        fields.insert(PROXY_AUTHORIZATION, "Bearer t1".parse().unwrap());
        let last = LastCredential::default();
        let credential = table.credentials.verify(&fields, &last).unwrap();
        let wait = |credential| {
            let sender = RequestSender {
                purposes: PurposeSet::default(),
                user_agent: None,
                client: [127, 0, 0, 1].into(),
                credential,
            };
            table.identify(&sender).unwrap().max_wait
        };
        assert_eq!(wait(credential.as_ref()), Some(Duration::from_secs(300)));
        assert_eq!(wait(None), None);
    }

    // Ours.
    #[test]
    fn nothing_is_protected_if_credentials_are_off() {
        let identities = Identities::new(vec![identity(&["FooBot"], Some("t1"))]);
        let table = CrawlerTable::new(AuthMode::Off, &identities, Arc::default());
        let by_user_agent = Ok(["FooBot".to_owned(), String::new()]);
        assert_eq!(names(&table, "FooBot/1", ""), by_user_agent);
        assert_eq!(names(&table, "FooBot/1", "x:y"), by_user_agent);
    }

    // Ours: docs/clients.md.
    #[test]
    fn a_pinned_name_is_foreign_unless_a_matching_entry_pins_or_gives_it() {
        let pinned = |name: &str, network: &str| Identity {
            clients: Some(vec![network.parse().unwrap()]),
            ..identity(&[name], None)
        };
        let given = Identity {
            user_agent: Some("inhouse".to_owned()),
            ..identity(&["FooBot"], None)
        };
        let table = table(vec![
            pinned("FooBot", "10.0.0.1/32"),
            pinned("FooBot", "10.0.0.2/32"),
            pinned("BarBot", "10.0.0.3/32"),
            given,
        ]);
        let foreign = |agent: &str, last| {
            let sender = RequestSender {
                purposes: PurposeSet::default(),
                user_agent: Some(agent.as_bytes()),
                client: [10, 0, 0, last].into(),
                credential: None,
            };
            let known = table.identify(&sender).unwrap();
            known.foreign_name.map(|name| name.to_string())
        };
        let theirs = Some("FooBot".to_owned());
        assert_eq!(foreign("foobot/1", 1), None);
        assert_eq!(foreign("foobot/1", 2), None);
        assert_eq!(foreign("foobot/1", 3), theirs);
        assert_eq!(foreign("foobot/1", 4), theirs);
        assert_eq!(foreign("Other/1 (fooBOT)", 4), theirs);
        assert_eq!(foreign("FooBot-News/1", 4), None);
        assert_eq!(foreign("foobot/1 inhouse", 4), None);
    }

    // Ours: the cache works like `CrawlerNames`, and returns the same names again.
    #[test]
    fn the_cache_of_found_names_is_bounded() {
        let table = table(vec![identity(&["FooBot"], Some("t1"))]);
        for number in 0..2 * REMEMBERED_MAX {
            let agent = format!("Other{}/1 (FooBot)", number % 1500);
            assert_eq!(names(&table, &agent, ""), Err("protected"));
        }
        assert!(table.protected.found.len() <= REMEMBERED_MAX);
    }
}
