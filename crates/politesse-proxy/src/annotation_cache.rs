//! Cache of annotations, for 304 responses, which do not repeat the page.
//!
//! A 304 says that a page has not changed, so its directives are still in force
//! (draft-illyes-repext-03, section 4). The directives of a 200 are cached by URL and
//! crawler, along with the validators that a 304 must match. A date alone does not
//! identify a representation, so the entry also stores the request fields that select one
//! (`Vary`; RFC 9110, section 12.5.5).
//!
//! Does not know how annotations are computed or serialised.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, COOKIE, ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED,
    VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use prometheus_client::metrics::gauge::Gauge;

use politesse_base::byte_cache::ByteCache;
use politesse_decision::decide::Inquiry;
use politesse_decision::digest::Digest;
use politesse_directives::{AnnotationState, SavedDirectives};
use politesse_robots::crawler::ProductToken;

/// Length limit in bytes of a cached validator.
const VALIDATOR_BYTES_MAX: usize = 512;
/// Maximum number of `Vary` names in an entry.
const VARY_NAMES_MAX: usize = 16;
/// Estimated overhead of an entry beyond its variable parts, including its slot in the
/// cache.
const ENTRY_BYTES: usize = 1024;

/// Annotations of pages, limited in bytes. The least recently used are evicted first.
#[derive(Debug)]
pub struct AnnotationCache {
    /// Entries by URL and crawler.
    pages: Mutex<ByteCache<PageKey, CachedAnnotation>>,
    /// Limit on the size of all entries.
    bytes_max: usize,
    /// Shows the size of all entries.
    gauge: Gauge,
}

/// Cache key: the URL, and the crawler's names regardless of case.
#[derive(Debug)]
struct PageKey(Arc<Inquiry>);

impl PageKey {
    /// Returns the names under which the page may address the crawler.
    fn names(&self) -> impl Iterator<Item = &ProductToken> {
        let crawler = &self.0.crawler;
        crawler.candidates().iter().chain(crawler.unlisted())
    }
}

impl PartialEq for PageKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.target == other.0.target && self.names().eq(other.names())
    }
}

impl Eq for PageKey {}

impl Hash for PageKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.target.hash(state);
        self.names().for_each(|name| name.hash(state));
    }
}

/// Properties of a request that determine which cached annotation a 304 confirms.
#[derive(Debug, Clone, Copy)]
pub struct ConditionalRequest<'a> {
    /// Method, URL and crawler. A page may have different directives for each crawler
    /// name.
    pub inquiry: &'a Arc<Inquiry>,
    /// Fields as sent to the origin.
    pub fields: &'a HeaderMap,
}

/// Annotation of one representation, and the data to recognise that representation.
#[derive(Debug, Clone)]
struct CachedAnnotation {
    /// Validators of the representation.
    validators: PageValidators,
    /// Request fields that selected the representation (`Vary`).
    selection: VaryKey,
    /// The annotation.
    directives: Arc<SavedDirectives>,
}

/// Validators of a representation (RFC 9110, section 8.8).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct PageValidators {
    /// Entity tag, without its weakness prefix.
    etag: Option<Box<[u8]>>,
    /// Date of the last change, as written.
    last_modified: Option<Box<[u8]>>,
}

/// Kind of validator that found two representations equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValidatorKind {
    /// No two representations share an entity tag (RFC 9110, section 8.8.3).
    Tag,
    /// Several representations may share a date.
    Date,
}

/// Request fields that select one of several representations, with their values.
#[derive(Debug, Clone)]
struct VaryKey {
    /// Names of the selecting fields in addition to [`PERSONAL`]; `None` if the origin
    /// does not name them all.
    names: Option<Box<[HeaderName]>>,
    /// Digest of their values; `None` if the request has none of the fields, which is the
    /// usual case.
    values: Option<Digest>,
}

/// Fields that always count as selecting: most personalised pages depend on them, but few
/// origins list them in `Vary`.
const PERSONAL: [HeaderName; 2] = [COOKIE, AUTHORIZATION];

impl AnnotationCache {
    /// Creates a cache limited to about `bytes_max`; 0 disables it. `gauge` shows its
    /// size.
    pub fn new(bytes_max: usize, gauge: Gauge) -> Self {
        Self {
            pages: Mutex::new(ByteCache::new(bytes_max)),
            bytes_max,
            gauge,
        }
    }

    fn pages(&self) -> MutexGuard<'_, ByteCache<PageKey, CachedAnnotation>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the directives of the representation that a 304 with these fields, sent in
    /// response to `request`, confirms as unchanged.
    pub fn recall(
        &self,
        request: &ConditionalRequest<'_>,
        fields: &HeaderMap,
    ) -> Option<Arc<SavedDirectives>> {
        let key = PageKey(Arc::clone(request.inquiry));
        let entry = self.pages().get(&key)?.clone();
        let named = PageValidators::of_response(fields);
        let asked = PageValidators::of_request(request.fields);
        let is_same = match entry.validators.meant_by(&named, &asked)? {
            ValidatorKind::Tag => true,
            ValidatorKind::Date => entry.selection.is_selected_by(request.fields),
        };
        is_same.then_some(entry.directives)
    }

    /// Caches the directives of a 200 with these fields, sent in response to `request`. A
    /// response without a validator only removes the existing entry: it cannot be
    /// revalidated, and the origin no longer serves the old one.
    pub fn keep(
        &self,
        request: &ConditionalRequest<'_>,
        status: StatusCode,
        fields: &HeaderMap,
        directives: SavedDirectives,
    ) {
        // A HEAD response contains no page, and a 206 only part of one.
        if request.inquiry.method != Method::GET.as_str() || status != StatusCode::OK {
            return;
        }
        let validators = PageValidators::of_response(fields);
        let is_kept = directives.state() != AnnotationState::Unknown
            && validators != PageValidators::default();
        // Nothing to do, and no key to build, for origins that send no validators.
        if !is_kept && self.pages().is_empty() {
            return;
        }
        let key = PageKey(Arc::clone(request.inquiry));
        let entry = CachedAnnotation {
            validators,
            selection: VaryKey::of(fields, request.fields),
            directives: Arc::new(directives),
        };
        let bytes = entry.bytes(request.inquiry);
        let mut pages = self.pages();
        // An entry larger than the whole cache would first evict all others.
        if is_kept && bytes <= self.bytes_max {
            pages.insert(key, entry, bytes);
        } else {
            pages.remove(&key);
        }
        self.gauge
            .set(i64::try_from(pages.bytes()).unwrap_or(i64::MAX));
    }
}

impl CachedAnnotation {
    /// Returns the approximate memory of the entry and its key in bytes.
    fn bytes(&self, key: &Inquiry) -> usize {
        let Inquiry {
            target, crawler, ..
        } = key;
        let validators = [&self.validators.etag, &self.validators.last_modified];
        let validator_bytes = validators.into_iter().flatten().map(|value| value.len());
        ENTRY_BYTES
            + target.path_and_query().len()
            + crawler.user_agent().map_or(0, str::len)
            + self.directives.bytes()
            + self.selection.bytes()
            + validator_bytes.sum::<usize>()
    }
}

impl PageValidators {
    /// Reads the validators in the fields of a response.
    fn of_response(fields: &HeaderMap) -> Self {
        Self {
            etag: only(fields, ETAG).map(opaque),
            last_modified: only(fields, LAST_MODIFIED).map(Into::into),
        }
    }

    /// Reads the validators in the conditions of a request.
    fn of_request(fields: &HeaderMap) -> Self {
        // With several entity tags it is unclear which one a 304 confirms.
        let tag = only(fields, IF_NONE_MATCH).filter(|tags| !tags.contains(&b','));
        // A date is ignored if there is an entity tag (RFC 9110, section 13.1.3).
        let has_tag = fields.contains_key(IF_NONE_MATCH);
        let date = only(fields, IF_MODIFIED_SINCE).filter(|_| !has_tag);
        Self {
            etag: tag.map(opaque),
            last_modified: date.map(Into::into),
        }
    }

    /// Returns which of these validators a 304 confirms: those it names itself (`named`),
    /// or else those of its request (`asked`). An entity tag outweighs a date (RFC 9110,
    /// section 13.2.2).
    fn meant_by(&self, named: &Self, asked: &Self) -> Option<ValidatorKind> {
        if let Some(etag) = named.etag.as_ref().or(asked.etag.as_ref()) {
            return (self.etag.as_ref() == Some(etag)).then_some(ValidatorKind::Tag);
        }
        let date = named
            .last_modified
            .as_ref()
            .or(asked.last_modified.as_ref())?;
        (self.last_modified.as_ref() == Some(date)).then_some(ValidatorKind::Date)
    }
}

impl VaryKey {
    /// Reads the request fields that the response names in `Vary`.
    fn of(response: &HeaderMap, request: &HeaderMap) -> Self {
        let names = vary_names(response);
        let values = digest_of(names.as_deref().unwrap_or_default(), request);
        Self { names, values }
    }

    /// Reports whether a request has the same values in the selecting fields.
    fn is_selected_by(&self, request: &HeaderMap) -> bool {
        let names = self.names.as_deref();
        names.is_some_and(|names| digest_of(names, request) == self.values)
    }

    fn bytes(&self) -> usize {
        let names = self.names.iter().flatten();
        names
            .map(|name| size_of::<HeaderName>() + name.as_str().len())
            .sum()
    }
}

/// Returns the names in `Vary`; `None` if they do not name all selecting fields.
fn vary_names(response: &HeaderMap) -> Option<Box<[HeaderName]>> {
    let mut names = Vec::new();
    let lines = response
        .get_all(VARY)
        .into_iter()
        .map(HeaderValue::as_bytes);
    let items = lines.flat_map(|line| line.split(|&byte| byte == b',').map(<[u8]>::trim_ascii));
    for item in items.filter(|item| !item.is_empty()) {
        let name = HeaderName::from_bytes(item)
            .ok()
            .filter(|name| name != "*" && names.len() < VARY_NAMES_MAX)?;
        // The directives of a page are the same in every content coding.
        if name != ACCEPT_ENCODING && !PERSONAL.contains(&name) && !names.contains(&name) {
            names.push(name);
        }
    }
    Some(names.into())
}

/// Returns the digest of the values of a request's fields `names` and [`PERSONAL`].
fn digest_of(names: &[HeaderName], request: &HeaderMap) -> Option<Digest> {
    let mut text = Vec::new();
    for name in names.iter().chain(&PERSONAL) {
        for value in request.get_all(name) {
            text.extend_from_slice(name.as_str().as_bytes());
            text.push(b':');
            text.extend_from_slice(value.as_bytes());
            text.push(b'\n');
        }
    }
    (!text.is_empty()).then(|| Digest::of(&text))
}

/// Returns the value of a field that occurs exactly once and is not too long.
fn only(fields: &HeaderMap, name: HeaderName) -> Option<&[u8]> {
    let mut values = fields.get_all(name).iter();
    let value = values.next().filter(|_| values.next().is_none())?;
    let bytes = value.as_bytes().trim_ascii();
    (!bytes.is_empty() && bytes.len() <= VALIDATOR_BYTES_MAX).then_some(bytes)
}

/// Returns an entity tag without its weakness prefix: "not modified" compares weakly (RFC
/// 9110, sections 8.8.3.2 and 13.1.2).
fn opaque(tag: &[u8]) -> Box<[u8]> {
    tag.strip_prefix(b"W/").unwrap_or(tag).into()
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher as _, RandomState};

    use super::*;
    use politesse_directives::{AnnotationContext, DirectiveCollector, DirectiveLimits};
    use politesse_robots::crawler::Crawler;

    fn map(fields: &[(&'static str, &str)]) -> HeaderMap {
        let fields = fields.iter().map(|&(name, value)| {
            let value = HeaderValue::from_str(value).unwrap();
            (HeaderName::from_static(name), value)
        });
        fields.collect()
    }

    /// Builds the inquiry of a GET.
    fn inquiry(url: &str, agent: &str) -> Arc<Inquiry> {
        Arc::new(Inquiry {
            crawler: Crawler::parse(agent),
            target: url.parse().unwrap(),
            method: "GET".to_owned(),
        })
    }

    /// Directives of a page without any.
    fn nothing() -> SavedDirectives {
        let reading = AnnotationContext {
            tokens: &[],
            now: jiff::Timestamp::UNIX_EPOCH,
            robots: None,
            limits: DirectiveLimits::default(),
        };
        let annotation = DirectiveCollector::new(reading).annotation();
        annotation.into_known()
    }

    const DATE: &str = "Sat, 21 Nov 2026 00:00:00 GMT";

    /// Tests whether a 304 with fields `told` confirms a 200 with fields `stored`.
    macro_rules! repeated {
        ($($name:ident: $stored:expr; asked $asked:expr; told $told:expr => $repeated:expr;)*) => {$(
            #[test]
            fn $name() {
                let stored = PageValidators::of_response(&map(&$stored));
                let asked = PageValidators::of_request(&map(&$asked));
                let told = PageValidators::of_response(&map(&$told));
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
        the_tag_of_the_request_counts_if_the_304_has_none:
            [("etag", "\"a\"")]; asked [("if-none-match", "\"a\"")]; told [] => true;
        several_tags_confirm_nothing:
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
        without_a_validator_nothing_is_confirmed:
            [("etag", "\"a\""), ("last-modified", DATE)]; asked []; told [] => false;
        two_etag_fields_confirm_nothing:
            [("etag", "\"a\"")]; asked []; told [("etag", "\"a\""), ("etag", "\"b\"")] => false;
    }

    #[test]
    fn pages_are_cached_by_url_and_crawler() {
        let hasher = RandomState::new();
        let first = PageKey(inquiry("http://h/a", "Foo"));
        for (url, agent, is_same) in [
            ("http://h/a", "foo", true),
            ("http://h/a", "Bar", false),
            ("http://h/a", "", false),
            ("http://h/b", "Foo", false),
        ] {
            let other = PageKey(inquiry(url, agent));
            assert_eq!(first == other, is_same, "{url} {agent}");
            assert_eq!(
                hasher.hash_one(&first) == hasher.hash_one(&other),
                is_same,
                "{url} {agent}"
            );
        }
    }

    // Invariant 8 (ARCHITECTURE.md): the cache is bounded, whatever an origin sends.
    #[test]
    fn the_cache_never_exceeds_its_byte_limit() {
        let gauge = Gauge::default();
        let pages = AnnotationCache::new(64 * 1024, gauge.clone());
        let reading = AnnotationContext {
            tokens: &[],
            now: jiff::Timestamp::UNIX_EPOCH,
            robots: None,
            limits: DirectiveLimits::default(),
        };
        for number in 0..200 {
            let url = format!("http://h/{number}");
            let link = format!(
                "<https://h/{}>; rel=license; type=application/rsl+xml",
                "l".repeat(1500)
            );
            let fields = map(&[("etag", "\"a\""), ("link", &link)]);
            let mut collector = DirectiveCollector::new(reading);
            collector.add_fields(&fields);
            let known = collector.annotation().into_known();
            assert!(1500 < known.bytes());
            let asked = ConditionalRequest {
                inquiry: &inquiry(&url, ""),
                fields: &HeaderMap::new(),
            };
            pages.keep(&asked, StatusCode::OK, &fields, known);
        }
        let kept = pages.pages();
        let bytes = kept.iter().map(|(key, entry)| entry.bytes(&key.0));
        assert_eq!(bytes.sum::<usize>(), kept.bytes());
        assert!(kept.bytes() <= 64 * 1024);
        assert!(2 < kept.len());
        assert_eq!(gauge.get(), i64::try_from(kept.bytes()).unwrap());
    }

    // Invariant 8 (ARCHITECTURE.md): the key of a replaced entry is freed along with its
    // share of the bound.
    #[test]
    fn replacing_a_page_counts_only_the_new_entry() {
        let pages = AnnotationCache::new(1024 * 1024, Gauge::default());
        let fields = map(&[("etag", "\"a\"")]);
        for comment in [60_000, 1] {
            let agent = format!("Foo/1 ({})", "x".repeat(comment));
            let asked = ConditionalRequest {
                inquiry: &inquiry("http://h/", &agent),
                fields: &HeaderMap::new(),
            };
            pages.keep(&asked, StatusCode::OK, &fields, nothing());
        }
        let kept = pages.pages();
        let bytes = kept.iter().map(|(key, entry)| entry.bytes(&key.0));
        assert_eq!((kept.len(), bytes.sum::<usize>()), (1, kept.bytes()));
    }

    // Ours: a response without a validator replaces one that had a validator.
    #[test]
    fn a_page_without_a_validator_removes_the_cached_one() {
        let pages = AnnotationCache::new(64 * 1024, Gauge::default());
        let asked = ConditionalRequest {
            inquiry: &inquiry("http://h/", ""),
            fields: &HeaderMap::new(),
        };
        let tagged = map(&[("etag", "\"a\"")]);
        pages.keep(&asked, StatusCode::OK, &tagged, nothing());
        assert!(pages.recall(&asked, &tagged).is_some());
        pages.keep(&asked, StatusCode::OK, &HeaderMap::new(), nothing());
        assert!(pages.recall(&asked, &tagged).is_none());
    }

    macro_rules! same {
        ($($name:ident: $vary:expr; $first:expr, $second:expr => $same:literal;)*) => {$(
            #[test]
            fn $name() {
                let selected = VaryKey::of(&map(&$vary), &map(&$first));
                assert_eq!(selected.is_selected_by(&map(&$second)), $same);
            }
        )*};
    }

    // RFC 9110, section 12.5.5; RFC 9111, section 4.1.
    same! {
        without_vary_other_fields_do_not_matter: []; [("x", "a")], [] => true;
        a_cookie_always_selects: []; [("cookie", "a")], [("cookie", "b")] => false;
        authorization_always_selects: []; [("authorization", "a")], [] => false;
        a_named_field_selects: [("vary", "a, Cookie")]; [("cookie", "a")], [("cookie", "b")] => false;
        a_missing_named_field_selects_too: [("vary", "cookie")]; [("cookie", "a")], [] => false;
        equal_named_fields_select_the_same_page: [("vary", "cookie")]; [("cookie", "a")], [("cookie", "a"), ("x", "")] => true;
        every_vary_line_counts: [("vary", "x"), ("vary", "cookie")]; [("cookie", "a")], [] => false;
        content_codings_do_not_matter: [("vary", "Accept-Encoding")]; [("accept-encoding", "br")], [] => true;
        an_asterisk_matches_no_later_request: [("vary", "*")]; [], [] => false;
    }
}
