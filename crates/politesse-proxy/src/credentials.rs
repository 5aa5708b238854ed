//! Client credentials: tokens with which a crawler proves its identity.
//!
//! RFC 9110, section 11.7, RFC 7617 (Basic) and RFC 6750 (Bearer). A token consists of
//! 256 random bits, and the entry of `crawler` in the configuration contains its SHA-256.
//! A fast digest is enough: the token cannot be guessed, and wrong guesses cost little.
//!
//! Checks only that a token is configured. `connection` refuses requests that lack a
//! credential, and `crawler_table` those that lack another condition of the entry, or that
//! use a name protected by another credential.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher as _;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::PROXY_AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use thiserror::Error;

use politesse_decision::digest::Digest;
use politesse_decision::inquiry::{Identities, Identity, KnownEntry};

/// Treatment of credentials (`proxy.auth`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthMode {
    /// Credentials are ignored, and entries with a credential match no request.
    Off,
    /// A client without a credential is identified by its User-Agent.
    Optional,
    /// A client without a credential gets a 407. Listeners opened for a command on this
    /// machine are exempt.
    Required,
}

/// Reason why a request is answered with 407 (RFC 9110, section 15.5.8). This module
/// returns only [`CredentialError::Wrong`]; see the module documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CredentialError {
    /// No credential was sent, but `proxy.auth` is "required".
    #[error("this proxy wants a credential, as Basic NAME:TOKEN or as Bearer TOKEN")]
    Missing,
    /// The credential is malformed or unknown, or not valid for this name, address or
    /// User-Agent.
    #[error("the credential that was sent is not valid here")]
    Wrong,
    /// The User-Agent contains a name that requires a credential.
    #[error("the User-Agent has the name of a crawler that is known by its credential")]
    Protected,
}

impl CredentialError {
    /// Returns the label value for metrics and the log.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Wrong => "wrong",
            Self::Protected => "protected",
        }
    }
}

/// Credential presented by a client and found valid at that time.
#[derive(Clone, PartialEq, Eq)]
pub struct VerifiedCredential {
    /// SHA-256 of the token.
    token_digest: Digest,
    /// First product token of its entry.
    name: Arc<str>,
}

impl VerifiedCredential {
    /// Returns the name that the credential proves: the first product token of its entry.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }
}

impl fmt::Debug for VerifiedCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VerifiedCredential({})", self.name)
    }
}

/// Most recent valid credential of a connection, with the field value that contained it.
///
/// A crawler sends the same field value with each request. Comparing it saves decoding
/// and hashing it again.
#[derive(Default)]
pub struct LastCredential(Mutex<Option<ReceivedCredential>>);

/// Value of `Proxy-Authorization`, and the credential in it.
struct ReceivedCredential {
    field: Box<[u8]>,
    verified: VerifiedCredential,
}

impl LastCredential {
    /// Returns the stored credential if `field` equals the field value that contained it.
    fn of(&self, field: &HeaderValue) -> Option<VerifiedCredential> {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let received = last.as_ref()?;
        let is_same = verify_slices_are_equal(&received.field, field.as_bytes()).is_ok();
        is_same.then(|| received.verified.clone())
    }

    fn set(&self, field: &HeaderValue, verified: &VerifiedCredential) {
        let received = ReceivedCredential {
            field: field.as_bytes().into(),
            verified: verified.clone(),
        };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(received);
    }
}

impl fmt::Debug for LastCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LastCredential")
    }
}

/// Entries with a credential in one configuration, indexed by the digests of the tokens.
pub struct CrawlerCredentials {
    mode: AuthMode,
    /// Hashes token digests with a random key, so that the time of a lookup reveals nothing
    /// about a digest: two digests are compared in constant time, and only if their keyed
    /// hashes are equal.
    hasher: RandomState,
    /// Entries by the keyed hashes of their token digests. Empty if credentials are off.
    entries: HashMap<u64, Vec<CredentialEntry>>,
}

/// Entry of `crawler` that has a credential.
struct CredentialEntry {
    /// SHA-256 of the token.
    token_digest: Digest,
    identity: Identity,
    /// Digest of the entry itself ([`Identity::digest`]), which does not cover the token.
    entry_digest: Digest,
}

impl CredentialEntry {
    /// Returns the user name: the first product token of the entry.
    fn name(&self) -> &str {
        let first = self.identity.tokens.first();
        first.map_or("", |token| token.as_str())
    }
}

impl fmt::Debug for CrawlerCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CrawlerCredentials")
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

impl CrawlerCredentials {
    /// Collects the entries of `identities` that have a credential; none if `mode` is
    /// [`AuthMode::Off`].
    #[must_use]
    pub fn new(mode: AuthMode, identities: &Identities) -> Self {
        let hasher = RandomState::new();
        let mut entries: HashMap<u64, Vec<CredentialEntry>> = HashMap::new();
        let used = match mode {
            AuthMode::Off => &[],
            AuthMode::Optional | AuthMode::Required => identities.entries(),
        };
        for identity in used {
            if let Some(token_digest) = identity.credential {
                let same_hash = entries.entry(hasher.hash_one(token_digest)).or_default();
                same_hash.push(CredentialEntry {
                    token_digest,
                    identity: identity.clone(),
                    entry_digest: identity.digest(),
                });
            }
        }
        Self {
            mode,
            hasher,
            entries,
        }
    }

    /// Reports whether a client may omit the credential.
    #[must_use]
    pub fn are_optional(&self) -> bool {
        self.mode != AuthMode::Required
    }

    /// Verifies the credential in `fields`; `None` if they contain no credential, or if
    /// credentials are ignored.
    ///
    /// # Errors
    ///
    /// [`CredentialError::Wrong`].
    pub fn verify(
        &self,
        fields: &HeaderMap,
        last: &LastCredential,
    ) -> Result<Option<VerifiedCredential>, CredentialError> {
        if !self.are_checked() {
            return Ok(None);
        }
        let mut values = fields.get_all(PROXY_AUTHORIZATION).iter();
        let Some(field) = values.next() else {
            return Ok(None);
        };
        // RFC 9110, section 11.7.2: there is only one. Of two, it is unknown which one is
        // meant.
        if values.next().is_some() {
            return Err(CredentialError::Wrong);
        }
        if let Some(verified) = last.of(field) {
            return self.recheck(&verified);
        }
        let sent = SentCredential::read(field).ok_or(CredentialError::Wrong)?;
        let token_digest = Digest::of(&sent.token);
        let mut entries = self.entries_with(&token_digest);
        let entry = entries
            .find(|entry| sent.is_for(entry))
            .ok_or(CredentialError::Wrong)?;
        let verified = VerifiedCredential {
            token_digest,
            name: entry.name().into(),
        };
        last.set(field, &verified);
        Ok(Some(verified))
    }

    /// Checks again a credential that was verified earlier, and returns it: a reload may
    /// have removed its entry while the connection is open. `None` if credentials are
    /// ignored by now.
    ///
    /// # Errors
    ///
    /// [`CredentialError::Wrong`] if the credential is no longer configured for its name.
    pub fn recheck(
        &self,
        verified: &VerifiedCredential,
    ) -> Result<Option<VerifiedCredential>, CredentialError> {
        if !self.are_checked() {
            return Ok(None);
        }
        let mut entries = self.entries_with(&verified.token_digest);
        if entries.any(|entry| *entry.name() == *verified.name) {
            return Ok(Some(verified.clone()));
        }
        Err(CredentialError::Wrong)
    }

    /// Returns the first entry with a verified credential whose other conditions, on the
    /// User-Agent and the address of the client, match as well.
    pub fn entry(
        &self,
        verified: &VerifiedCredential,
        user_agent: Option<&[u8]>,
        client: IpAddr,
    ) -> Option<KnownEntry<'_>> {
        let mut entries = self.entries_with(&verified.token_digest);
        let entry = entries.find(|entry| {
            *entry.name() == *verified.name && entry.identity.fits(user_agent, Some(client))
        })?;
        Some(KnownEntry {
            identity: &entry.identity,
            digest: entry.entry_digest,
        })
    }

    /// Returns all entries with a credential, in arbitrary order.
    pub fn entries(&self) -> impl Iterator<Item = &Identity> {
        self.entries.values().flatten().map(|entry| &entry.identity)
    }

    /// Reports whether credentials are checked, rather than ignored. Unless they are
    /// required, a configuration without any must still serve clients that always send
    /// one.
    fn are_checked(&self) -> bool {
        !self.entries.is_empty() || self.mode == AuthMode::Required
    }

    /// Returns the entries whose token has this digest.
    fn entries_with(&self, token_digest: &Digest) -> impl Iterator<Item = &CredentialEntry> {
        let same_hash = self.entries.get(&self.hasher.hash_one(token_digest));
        let bytes = *token_digest.as_bytes();
        let entries = same_hash.into_iter().flatten();
        entries.filter(move |entry| {
            verify_slices_are_equal(entry.token_digest.as_bytes(), &bytes).is_ok()
        })
    }
}

/// Credential as sent.
struct SentCredential {
    /// User name; absent for a bearer token.
    name: Option<Vec<u8>>,
    token: Vec<u8>,
}

impl SentCredential {
    /// Parses the value of `Proxy-Authorization`; `None` if it is malformed, or neither
    /// Basic nor Bearer.
    fn read(field: &HeaderValue) -> Option<Self> {
        let (scheme, parameter) = field.to_str().ok()?.split_once(' ')?;
        let parameter = parameter.trim_matches(' ');
        if scheme.eq_ignore_ascii_case("bearer") {
            let token = parameter.into();
            return Some(Self { name: None, token });
        }
        if !scheme.eq_ignore_ascii_case("basic") {
            return None;
        }
        let mut pair = STANDARD.decode(parameter).ok()?;
        // Splits at the last colon: a name may contain one, a token may not.
        let colon = pair.iter().rposition(|byte| *byte == b':')?;
        let token = pair.split_off(colon + 1);
        pair.truncate(colon);
        Some(Self {
            name: Some(pair),
            token,
        })
    }

    /// Reports whether the user name, if one was sent, is that of the entry.
    fn is_for(&self, entry: &CredentialEntry) -> bool {
        let is_name = |sent: &Vec<u8>| sent.eq_ignore_ascii_case(entry.name().as_bytes());
        self.name.as_ref().is_none_or(is_name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use politesse_decision::inquiry::Requisites;
    use politesse_directives::PurposeSet;
    use politesse_robots::crawler::ProductToken;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn identity(name: &str, token: Option<&str>) -> Identity {
        Identity {
            tokens: vec![ProductToken::new(name).unwrap()],
            user_agent: None,
            clients: None,
            credential: token.map(|token| Digest::of(token.as_bytes())),
            max_wait: None,
            label: None,
            purposes: PurposeSet::default(),
            enforce: None,
            requisites: Requisites::default(),
        }
    }

    fn credentials(mode: AuthMode) -> CrawlerCredentials {
        let entries = vec![
            identity("FooBot", Some(TOKEN)),
            identity("a:b", Some("other")),
            identity("BarBot", None),
        ];
        CrawlerCredentials::new(mode, &Identities::new(entries))
    }

    fn fields(values: &[&str]) -> HeaderMap {
        let mut fields = HeaderMap::new();
        for value in values {
            fields.append(PROXY_AUTHORIZATION, value.parse().unwrap());
        }
        fields
    }

    fn basic(pair: &str) -> String {
        format!("Basic {}", STANDARD.encode(pair))
    }

    /// Returns the name that these fields prove, or the error word.
    fn proved(
        credentials: &CrawlerCredentials,
        values: &[&str],
    ) -> Result<Option<String>, &'static str> {
        let verified = credentials.verify(&fields(values), &LastCredential::default());
        let name = |verified: VerifiedCredential| verified.name().to_string();
        verified
            .map(|verified| verified.map(name))
            .map_err(CredentialError::as_str)
    }

    // RFC 7617, section 2; RFC 6750, section 2.1; RFC 9110, section 11.1.
    #[test]
    fn a_token_proves_its_name_by_basic_or_bearer() {
        let credentials = credentials(AuthMode::Optional);
        for value in [
            format!("Bearer {TOKEN}"),
            format!("bEARER  {TOKEN}"),
            basic(&format!("FooBot:{TOKEN}")),
            basic(&format!("foobot:{TOKEN}")).replace("Basic", "bASIC"),
        ] {
            let proved = proved(&credentials, &[&value]);
            assert_eq!(proved, Ok(Some("FooBot".to_owned())), "{value}");
        }
        let colon = proved(&credentials, &[&basic("a:b:other")]);
        assert_eq!(colon, Ok(Some("a:b".to_owned())));
    }

    // Ours: no type that has held a token shows it or its digest.
    #[test]
    fn no_type_that_holds_a_credential_shows_it() {
        let credentials = credentials(AuthMode::Required);
        let last = LastCredential::default();
        let field = basic(&format!("FooBot:{TOKEN}"));
        let right = fields(&[&field]);
        let verified = credentials.verify(&right, &last).unwrap().unwrap();
        assert!(last.of(&right[PROXY_AUTHORIZATION]).is_some());
        let wrong = credentials.verify(&fields(&[&basic(TOKEN)]), &last);
        let error = wrong.unwrap_err();
        let shown = format!("{credentials:?} {last:?} {verified:?} {error:?} {error}");
        let encoded = field.trim_start_matches("Basic ");
        // `Debug` of a byte slice would show the token as numbers.
        let numbers = format!("{:?}", TOKEN.as_bytes());
        for secret in [TOKEN, encoded, numbers.trim_matches(['[', ']'])] {
            assert!(!shown.contains(secret), "{shown}");
        }
        assert!(shown.contains("FooBot"), "{shown}");
    }

    // Ours.
    #[test]
    fn any_other_value_is_a_wrong_credential() {
        let credentials = credentials(AuthMode::Optional);
        for value in [
            "Bearer",
            "Bearer x",
            "Basic",
            "Basic ???",
            "Digest x",
            "",
            &basic(TOKEN),
            &basic(&format!(":{TOKEN}")),
            &basic(&format!("BarBot:{TOKEN}")),
            &basic(&format!("FooBot:{TOKEN}0")),
            &basic("FooBot:other"),
            &basic("FooBot:"),
            // The digest itself is not a credential.
            &format!("Bearer {}", Digest::of(TOKEN.as_bytes())),
        ] {
            assert_eq!(proved(&credentials, &[value]), Err("wrong"), "{value}");
        }
        let right = format!("Bearer {TOKEN}");
        assert_eq!(proved(&credentials, &[&right, &right]), Err("wrong"));
        assert_eq!(proved(&credentials, &[]), Ok(None));
    }

    // Ours.
    #[test]
    fn the_field_is_ignored_if_no_credentials_are_configured() {
        let none = CrawlerCredentials::new(AuthMode::Optional, &Identities::default());
        assert_eq!(proved(&none, &["Basic x"]), Ok(None));
        let right = format!("Bearer {TOKEN}");
        let off = credentials(AuthMode::Off);
        assert_eq!(proved(&off, &[&right]), Ok(None));
        let required = CrawlerCredentials::new(AuthMode::Required, &Identities::default());
        assert_eq!(proved(&required, &[&right]), Err("wrong"));
        assert!(!required.are_optional() && off.are_optional());
    }

    // Ours: the most recent field value is not hashed again; a different one is.
    #[test]
    fn a_connection_caches_its_last_credential_while_it_is_valid() {
        let (with, without) = (
            credentials(AuthMode::Optional),
            CrawlerCredentials::new(AuthMode::Required, &Identities::default()),
        );
        let last = LastCredential::default();
        let sent = fields(&[&basic(&format!("FooBot:{TOKEN}"))]);
        let first = with.verify(&sent, &last).unwrap();
        assert_eq!(last.of(sent.values().next().unwrap()), first);
        assert_eq!(with.verify(&sent, &last), Ok(first.clone()));
        let verified = first.clone().unwrap();
        assert_eq!(with.recheck(&verified), Ok(first));
        let wrong = fields(&[&basic(&format!("FooBot:{TOKEN}0"))]);
        assert_eq!(with.verify(&wrong, &last), Err(CredentialError::Wrong));
        assert_eq!(without.verify(&sent, &last), Err(CredentialError::Wrong));
        assert_eq!(without.recheck(&verified), Err(CredentialError::Wrong));
    }

    // Ours.
    #[test]
    fn the_other_conditions_of_an_entry_must_match_too() {
        let mut at_home = identity("FooBot", Some(TOKEN));
        at_home.clients = Some(vec!["10.0.0.0/8".parse().unwrap()]);
        let table = Identities::new(vec![at_home]);
        let credentials = CrawlerCredentials::new(AuthMode::Optional, &table);
        let sent = fields(&[&format!("Bearer {TOKEN}")]);
        let verified = credentials.verify(&sent, &LastCredential::default());
        let verified = verified.unwrap().unwrap();
        let entry = |client: [u8; 4]| credentials.entry(&verified, None, client.into());
        assert!(entry([10, 0, 0, 1]).is_some());
        assert!(entry([11, 0, 0, 1]).is_none());
    }

    // Ours: neither a token nor its digest can leak into a log.
    #[test]
    fn debug_shows_no_token() {
        let credentials = credentials(AuthMode::Optional);
        let last = LastCredential::default();
        let sent = fields(&[&format!("Bearer {TOKEN}")]);
        let verified = credentials.verify(&sent, &last).unwrap();
        let text = format!("{credentials:?} {last:?} {verified:?}");
        let digest = Digest::of(TOKEN.as_bytes()).to_string();
        assert!(!text.contains(TOKEN) && !text.contains(&digest), "{text}");
    }

    // Ours: a client may try any number of wrong tokens.
    #[test]
    fn a_hundred_thousand_wrong_tokens_are_all_rejected() {
        let credentials = credentials(AuthMode::Optional);
        let last = LastCredential::default();
        for number in 0..100_000 {
            let sent = fields(&[&format!("Bearer {number:064x}")]);
            assert_eq!(
                credentials.verify(&sent, &last),
                Err(CredentialError::Wrong)
            );
        }
        let right = format!("Bearer {TOKEN}");
        assert!(proved(&credentials, &[&right]).is_ok());
    }
}
