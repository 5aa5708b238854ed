//! Cache of annotations, for the 304 responses that do not repeat the page.
//!
//! A 304 says that a page has not changed, so its directives are still in force
//! (draft-illyes-repext-03, section 4). What a 200 said is kept for a while, by
//! URL and crawler, with the validators that a 304 must name and, where only a
//! date says that it is the same, the fields of the request that chose among
//! representations (`Vary`; RFC 9110, section 12.5.5).
//!
//! Does not know how an annotation is found or written.

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

/// The longest validator that is kept, in bytes.
const VALIDATOR_BYTES_MAX: usize = 512;
/// The most names of a `Vary` that are kept.
const VARY_NAMES_MAX: usize = 16;
/// Memory of an entry beside its own bytes, its place in the cache included.
const ENTRY_BYTES: usize = 1024;

/// Annotations of pages, within a bound in bytes. The least recently used go
/// first.
#[derive(Debug)]
pub struct AnnotationCache {
    pages: Mutex<ByteCache<PageKey, CachedAnnotation>>,
    bytes_max: usize,
    gauge: Gauge,
}

/// Page and crawler that an annotation is for: the URL, and the names of the crawler in
/// any case.
#[derive(Debug)]
struct PageKey(Arc<Inquiry>);

impl PageKey {
    /// Returns the names by which the page may address the crawler.
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

/// Properties of a request that a 304 in response to it depends on.
#[derive(Debug, Clone, Copy)]
pub struct ConditionalRequest<'a> {
    /// Method, URL, and crawler: a page may say something else to each name.
    pub inquiry: &'a Arc<Inquiry>,
    /// Fields, as sent to the origin.
    pub fields: &'a HeaderMap,
}

/// Annotation of one representation, and how to recognise that.
#[derive(Debug, Clone)]
struct CachedAnnotation {
    validators: PageValidators,
    selection: VaryKey,
    known: Arc<SavedDirectives>,
}

/// Validators of a representation (RFC 9110, section 8.8).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct PageValidators {
    etag: Option<Box<[u8]>>,
    last_modified: Option<Box<[u8]>>,
}

/// Validator by which two representations are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValidatorKind {
    /// No two representations share an entity tag (RFC 9110, section 8.8.3).
    Tag,
    /// Several representations may share a date.
    Date,
}

/// Fields of a request that select one of several representations, with their
/// values.
#[derive(Debug, Clone)]
struct VaryKey {
    /// Names of the fields beside [`PERSONAL`]; `None` if the origin does not
    /// name them all.
    names: Option<Box<[HeaderName]>>,
    /// Digest of their values; `None` if the request has none of the fields, as
    /// most have.
    values: Option<Digest>,
}

/// Fields that select by themselves: most pages for somebody in particular
/// depend on them, and few origins name them.
const PERSONAL: [HeaderName; 2] = [COOKIE, AUTHORIZATION];

impl AnnotationCache {
    /// Creates a cache of about `bytes_max` at most; 0 keeps nothing. `gauge`
    /// shows its size.
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

    /// Returns what is known of the representation that a 304 with these
    /// fields, in response to `request`, says to be unchanged.
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
        is_same.then_some(entry.known)
    }

    /// Keeps what a 200 with these fields, in response to `request`, said. One
    /// without a validator only removes what was kept: nobody can ask whether it
    /// has changed, and what it replaces is no longer sent.
    pub fn keep(
        &self,
        request: &ConditionalRequest<'_>,
        status: StatusCode,
        fields: &HeaderMap,
        known: SavedDirectives,
    ) {
        // A HEAD shows no page, and a 206 only a part of one.
        if request.inquiry.method != Method::GET.as_str() || status != StatusCode::OK {
            return;
        }
        let validators = PageValidators::of_response(fields);
        let is_kept =
            known.state() != AnnotationState::Unknown && validators != PageValidators::default();
        // Origins that send no validators cost nothing here.
        if !is_kept && self.pages().is_empty() {
            return;
        }
        let key = PageKey(Arc::clone(request.inquiry));
        let entry = CachedAnnotation {
            validators,
            selection: VaryKey::of(fields, request.fields),
            known: Arc::new(known),
        };
        let bytes = entry.bytes(request.inquiry);
        let mut pages = self.pages();
        // One that is larger than all may be would drive out the others first.
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
    /// Returns about how many bytes of memory it takes, with its key.
    fn bytes(&self, key: &Inquiry) -> usize {
        let Inquiry {
            target, crawler, ..
        } = key;
        let validators = [&self.validators.etag, &self.validators.last_modified];
        let validator_bytes = validators.into_iter().flatten().map(|value| value.len());
        ENTRY_BYTES
            + target.path_and_query().len()
            + crawler.user_agent().map_or(0, str::len)
            + self.known.bytes()
            + self.selection.bytes()
            + validator_bytes.sum::<usize>()
    }
}

impl PageValidators {
    fn of_response(fields: &HeaderMap) -> Self {
        Self {
            etag: only(fields, ETAG).map(opaque),
            last_modified: only(fields, LAST_MODIFIED).map(Into::into),
        }
    }

    fn of_request(fields: &HeaderMap) -> Self {
        // With several entity tags nobody can say which is still the same.
        let tag = only(fields, IF_NONE_MATCH).filter(|tags| !tags.contains(&b','));
        // Beside a tag a date says nothing (RFC 9110, section 13.1.3).
        let has_tag = fields.contains_key(IF_NONE_MATCH);
        let date = only(fields, IF_MODIFIED_SINCE).filter(|_| !has_tag);
        Self {
            etag: tag.map(opaque),
            last_modified: date.map(Into::into),
        }
    }

    /// Returns which of these validators a response means that names the
    /// validators `named`, or else those of its request, `asked`. An entity tag
    /// outweighs a date (RFC 9110, section 13.2.2).
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
    /// Reads the fields that a response names in `Vary`, from its request.
    fn of(response: &HeaderMap, request: &HeaderMap) -> Self {
        let names = vary_names(response);
        let values = digest_of(names.as_deref().unwrap_or_default(), request);
        Self { names, values }
    }

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

/// Returns the names in `Vary`, `None` if they are not all named.
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
        // A page says the same in every content coding.
        if name != ACCEPT_ENCODING && !PERSONAL.contains(&name) && !names.contains(&name) {
            names.push(name);
        }
    }
    Some(names.into())
}

/// Returns the digest of the values that a request has in the fields `names` and
/// [`PERSONAL`].
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

/// Returns the value of a field that stands there once and is not too long.
fn only(fields: &HeaderMap, name: HeaderName) -> Option<&[u8]> {
    let mut values = fields.get_all(name).iter();
    let value = values.next().filter(|_| values.next().is_none())?;
    let bytes = value.as_bytes().trim_ascii();
    (!bytes.is_empty() && bytes.len() <= VALIDATOR_BYTES_MAX).then_some(bytes)
}

/// Returns an entity tag without its mark of weakness: "not modified" compares
/// weakly (RFC 9110, sections 8.8.3.2 and 13.1.2).
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

    /// A GET.
    fn inquiry(url: &str, agent: &str) -> Arc<Inquiry> {
        Arc::new(Inquiry {
            crawler: Crawler::parse(agent),
            target: url.parse().unwrap(),
            method: "GET".to_owned(),
        })
    }

    /// Directives of a page that has none.
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

    /// Whether what a 200 of these fields said is repeated for a 304 of those.
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

    // Invariant 8 (ARCHITECTURE.md): what is kept is bounded, whatever origins
    // say.
    #[test]
    fn what_is_kept_has_a_bound() {
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

    // Invariant 8 (ARCHITECTURE.md): what a client sends is freed with what it counts for.
    #[test]
    fn a_page_that_is_kept_again_counts_for_what_is_kept() {
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

    // A response without a validator takes the place of one that had one.
    #[test]
    fn what_is_no_longer_sent_is_forgotten() {
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
        without_vary_there_is_one: []; [("x", "a")], [] => true;
        who_is_known_may_get_another: []; [("cookie", "a")], [("cookie", "b")] => false;
        who_is_let_in_may_get_another: []; [("authorization", "a")], [] => false;
        a_field_that_is_named_selects: [("vary", "a, Cookie")]; [("cookie", "a")], [("cookie", "b")] => false;
        one_that_is_missing_selects_too: [("vary", "cookie")]; [("cookie", "a")], [] => false;
        one_that_is_the_same_selects_the_same: [("vary", "cookie")]; [("cookie", "a")], [("cookie", "a"), ("x", "")] => true;
        every_line_counts: [("vary", "x"), ("vary", "cookie")]; [("cookie", "a")], [] => false;
        codings_say_the_same: [("vary", "Accept-Encoding")]; [("accept-encoding", "br")], [] => true;
        an_asterisk_is_anything: [("vary", "*")]; [], [] => false;
    }
}
