//! What is known of representations, for the responses that do not send them
//! again.
//!
//! A 304 says that a page has not changed; its directives are still in force
//! (draft-illyes-repext-03, section 4). So what a 200 said is kept for a while,
//! by URL and crawler, with the validators that a 304 must name.

use std::sync::Arc;

use http::header::{ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use prometheus_client::metrics::gauge::Gauge;

use super::selected::VaryKey;
use crate::decision::digest::Digest;
use politesse_directives::{Known, State};

/// Keeps what is known, within a bound. What was used least lately gives way.
#[derive(Debug)]
pub struct AnnotationCache {
    by_url: Cache<Digest, CachedAnnotation>,
    gauge: Gauge,
}

/// A request, as far as a response that says "not modified" depends on it.
#[derive(Debug)]
pub struct ConditionalRequest {
    method: Method,
    key: Digest,
    validators: PageValidators,
    fields: HeaderMap,
}

/// A representation, and what is known of it.
#[derive(Debug, Clone)]
struct CachedAnnotation {
    validators: PageValidators,
    selected: VaryKey,
    known: Arc<Known>,
}

/// What tells whether a representation is still the same (RFC 9110, section
/// 8.8).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct PageValidators {
    etag: Option<Box<[u8]>>,
    last_modified: Option<Box<[u8]>>,
}

/// By what a representation is known to be the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValidatorKind {
    /// No two representations share it (RFC 9110, section 8.8.3).
    Tag,
    /// Several may.
    Date,
}

/// No longer validator is kept, in bytes.
const VALIDATOR_BYTES_MAX: usize = 512;

/// What an entry takes beside its own bytes, its place in the cache included.
const ENTRY_BYTES: usize = 1024;

impl ConditionalRequest {
    /// The request of `method` for `url` by a crawler of these tokens: what
    /// one crawler was told is not repeated to another.
    pub fn of((method, url): (&Method, &str), tokens: &[&str], fields: &HeaderMap) -> Self {
        let mut key = url.as_bytes().to_vec();
        for token in tokens {
            key.push(b'\n');
            key.extend_from_slice(token.to_ascii_lowercase().as_bytes());
        }
        Self {
            method: method.clone(),
            key: Digest::of(&key),
            validators: PageValidators::asked_for(fields),
            fields: fields.clone(),
        }
    }
}

impl AnnotationCache {
    /// Keeps at most about `bytes_max`; 0 keeps nothing. `gauge` shows how
    /// much is kept.
    pub fn new(bytes_max: usize, gauge: Gauge) -> Self {
        let by_url = Cache::builder()
            .max_capacity(bytes_max as u64)
            .weigher(|_, entry: &CachedAnnotation| entry.weight())
            .eviction_policy(EvictionPolicy::lru())
            .build();
        Self { by_url, gauge }
    }

    /// What is known of the representation that the response to `asked` says
    /// has not been modified.
    pub fn recall(&self, asked: &ConditionalRequest, got: &HeaderMap) -> Option<Arc<Known>> {
        let entry = self.by_url.get(&asked.key)?;
        let told = PageValidators::told(got);
        let is_same = match entry.validators.meant_by(&told, &asked.validators)? {
            ValidatorKind::Tag => true,
            ValidatorKind::Date => entry.selected.is_selected_by(&asked.fields),
        };
        is_same.then_some(entry.known)
    }

    /// Keeps what the response to `asked` said. One without a validator cannot
    /// be asked about again; it shows that what was kept is no longer sent.
    pub fn keep(
        &self,
        asked: &ConditionalRequest,
        (status, fields): (StatusCode, &HeaderMap),
        known: &Known,
    ) {
        if asked.method != Method::GET || status != StatusCode::OK {
            return;
        }
        let validators = PageValidators::told(fields);
        let is_known = known.state() != State::Unknown;
        if is_known && validators != PageValidators::default() {
            let known = Arc::new(known.clone());
            let selected = VaryKey::of(fields, &asked.fields);
            let entry = CachedAnnotation {
                validators,
                selected,
                known,
            };
            self.by_url.insert(asked.key, entry);
        } else {
            self.by_url.invalidate(&asked.key);
        }
        self.by_url.run_pending_tasks();
        let kept = self.by_url.weighted_size();
        self.gauge.set(i64::try_from(kept).unwrap_or(i64::MAX));
    }
}

impl CachedAnnotation {
    fn weight(&self) -> u32 {
        let validators = [&self.validators.etag, &self.validators.last_modified];
        let validators = validators.into_iter().flatten().map(|it| it.len());
        let bytes =
            ENTRY_BYTES + self.known.bytes() + self.selected.bytes() + validators.sum::<usize>();
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }
}

impl PageValidators {
    /// Those of a response.
    fn told(fields: &HeaderMap) -> Self {
        Self {
            etag: only(fields, ETAG).map(opaque),
            last_modified: only(fields, LAST_MODIFIED).map(Into::into),
        }
    }

    /// Those that a request names. Of several entity tags nobody can say which
    /// is still the same.
    fn asked_for(fields: &HeaderMap) -> Self {
        let tag = only(fields, IF_NONE_MATCH).filter(|tags| !tags.contains(&b','));
        // Beside a tag a date says nothing (RFC 9110, section 13.1.3).
        let has_tag = fields.contains_key(IF_NONE_MATCH);
        let date = only(fields, IF_MODIFIED_SINCE).filter(|_| !has_tag);
        Self {
            etag: tag.map(opaque),
            last_modified: date.map(Into::into),
        }
    }

    /// Which of these is meant by a response that names `told` to a request
    /// that named `asked`. An entity tag outweighs a date (RFC 9110, section
    /// 13.2.2).
    fn meant_by(&self, told: &Self, asked: &Self) -> Option<ValidatorKind> {
        if let Some(etag) = told.etag.as_ref().or(asked.etag.as_ref()) {
            return (self.etag.as_ref() == Some(etag)).then_some(ValidatorKind::Tag);
        }
        let date = told
            .last_modified
            .as_ref()
            .or(asked.last_modified.as_ref())?;
        (self.last_modified.as_ref() == Some(date)).then_some(ValidatorKind::Date)
    }
}

/// The value of a field that stands there once, and is not too long.
fn only(fields: &HeaderMap, name: HeaderName) -> Option<&[u8]> {
    let mut values = fields.get_all(name).iter().map(HeaderValue::as_bytes);
    let value = values.next().filter(|_| values.next().is_none())?;
    let value = value.trim_ascii();
    (!value.is_empty() && value.len() <= VALIDATOR_BYTES_MAX).then_some(value)
}

/// An entity tag without what says that it is weak: "not modified" compares
/// weakly (RFC 9110, sections 8.8.3.2 and 13.1.2).
fn opaque(tag: &[u8]) -> Box<[u8]> {
    tag.strip_prefix(b"W/").unwrap_or(tag).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use politesse_directives::{Gathering, Limits, Reading};

    fn map(fields: &[(&'static str, &str)]) -> HeaderMap {
        let fields = fields.iter().map(|&(name, value)| {
            let value = HeaderValue::from_str(value).unwrap();
            (HeaderName::from_static(name), value)
        });
        fields.collect()
    }

    const DATE: &str = "Sat, 21 Nov 2026 00:00:00 GMT";

    /// Whether what a 200 of these fields said is repeated for a 304 of those.
    macro_rules! repeated {
        ($($name:ident: $stored:expr; asked $asked:expr; told $told:expr => $repeated:expr;)*) => {$(
            #[test]
            fn $name() {
                let stored = PageValidators::told(&map(&$stored));
                let asked = PageValidators::asked_for(&map(&$asked));
                let told = PageValidators::told(&map(&$told));
                assert_eq!(stored.meant_by(&told, &asked).is_some(), $repeated);
            }
        )*};
    }

    // RFC 9110, sections 8.8.3.2, 13.1.2, 13.1.3, 13.2.2 and 15.4.5.
    repeated! {
        the_same_tag_is_the_same_page:
            [("etag", "\"a\"")]; asked []; told [("etag", "\"a\"")] => true;
        a_weak_tag_is_the_same_tag:
            [("etag", "\"a\"")]; asked []; told [("etag", "W/\"a\"")] => true;
        another_tag_is_another_page:
            [("etag", "\"a\"")]; asked [("if-none-match", "\"a\"")]; told [("etag", "\"b\"")] => false;
        the_tag_asked_for_counts_where_none_is_told:
            [("etag", "\"a\"")]; asked [("if-none-match", "\"a\"")]; told [] => true;
        of_several_tags_none_counts:
            [("etag", "\"a\"")]; asked [("if-none-match", "\"a\", \"b\"")]; told [] => false;
        a_tag_outweighs_a_date:
            [("etag", "\"a\""), ("last-modified", DATE)];
            asked [("if-none-match", "\"b\""), ("if-modified-since", DATE)]; told [] => false;
        several_tags_outweigh_a_date:
            [("etag", "\"c\""), ("last-modified", DATE)];
            asked [("if-none-match", "\"a\", \"b\""), ("if-modified-since", DATE)]; told [] => false;
        the_same_date_is_the_same_page:
            [("last-modified", DATE)]; asked [("if-modified-since", DATE)]; told [] => true;
        another_date_may_be_another_page:
            [("last-modified", DATE)];
            asked [("if-modified-since", "Sat, 21 Nov 2026 00:00:01 GMT")]; told [] => false;
        nothing_named_means_nothing:
            [("etag", "\"a\""), ("last-modified", DATE)]; asked []; told [] => false;
        two_tags_are_none:
            [("etag", "\"a\"")]; asked []; told [("etag", "\"a\""), ("etag", "\"b\"")] => false;
    }

    #[test]
    fn another_crawler_and_another_url_ask_for_another_page() {
        let fields = HeaderMap::new();
        let key = |url: &str, tokens: &[&str]| {
            ConditionalRequest::of((&Method::GET, url), tokens, &fields).key
        };
        assert_eq!(key("http://h/a", &["Foo"]), key("http://h/a", &["foo"]));
        assert_ne!(key("http://h/a", &["Foo"]), key("http://h/a", &["Bar"]));
        assert_ne!(key("http://h/a", &["Foo"]), key("http://h/a", &[]));
        assert_ne!(key("http://h/a", &["Foo"]), key("http://h/b", &["Foo"]));
    }

    // Invariant 8: what is kept is bounded, whatever origins say.
    #[test]
    fn what_is_kept_has_a_bound() {
        let gauge = Gauge::default();
        let pages = AnnotationCache::new(64 * 1024, gauge.clone());
        let reading = Reading {
            tokens: &[],
            now: jiff::Timestamp::UNIX_EPOCH,
            robots: None,
            limits: Limits::default(),
        };
        for number in 0..200 {
            let url = format!("http://h/{number}");
            let link = format!(
                "<https://h/{}>; rel=license; type=application/rsl+xml",
                "l".repeat(1500)
            );
            let fields = map(&[("etag", "\"a\""), ("link", &link)]);
            let mut gathering = Gathering::new(reading);
            gathering.fields(&fields);
            let annotation = gathering.annotation();
            assert!(1500 < annotation.known().bytes());
            let asked = ConditionalRequest::of((&Method::GET, &url), &[], &HeaderMap::new());
            pages.keep(&asked, (StatusCode::OK, &fields), annotation.known());
        }
        pages.by_url.run_pending_tasks();
        assert!(pages.by_url.weighted_size() <= 64 * 1024);
        assert!(2 < pages.by_url.entry_count());
        assert!(0 < gauge.get());
    }

    // A response without a validator takes the place of one that had one.
    #[test]
    fn what_is_no_longer_sent_is_forgotten() {
        let pages = AnnotationCache::new(64 * 1024, Gauge::default());
        let reading = Reading {
            tokens: &[],
            now: jiff::Timestamp::UNIX_EPOCH,
            robots: None,
            limits: Limits::default(),
        };
        let known = Gathering::new(reading).annotation();
        let asked = ConditionalRequest::of((&Method::GET, "http://h/"), &[], &HeaderMap::new());
        let tagged = map(&[("etag", "\"a\"")]);
        pages.keep(&asked, (StatusCode::OK, &tagged), known.known());
        assert!(pages.recall(&asked, &tagged).is_some());
        pages.keep(&asked, (StatusCode::OK, &HeaderMap::new()), known.known());
        assert!(pages.recall(&asked, &tagged).is_none());
    }
}
