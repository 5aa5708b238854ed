//! Rules of many origins in one object, like WWW::RobotRules in Perl.
//!
//! For a crawler that fetches robots.txt files itself: pass it each file, then ask about
//! URLs. A file applies to one origin, which is scheme, host and port (RFC 9309, section
//! 2.3), until the time that was given with it (section 2.4). RFC 9309 advises not to use a
//! copy for more than a day. Does not read a clock: only
//! [`RulesByOrigin::forget_expired`] drops expired files.
//!
//! For a status from 200 to 299, call [`RulesByOrigin::parse`]; for one from 400 to 499
//! except 429, [`RulesByOrigin::unavailable`]; for any other status, a timeout or a failed
//! connection, [`RulesByOrigin::unreachable`] (section 2.3.1).

use std::collections::HashMap;

use jiff::Timestamp;

use super::binding::{Binding, Judgement, ROBOTS_TXT};
use super::dialect::Dialect;
use super::robots_txt::RobotsTxt;
use crate::crawler::Crawler;
use crate::file_source::FileSource;
use crate::origin::{Origin, Target};

/// Rules of all origins that one crawler visits.
///
/// ```
/// use jiff::Timestamp;
/// use politesse_robots::crawler::Crawler;
/// use politesse_robots::RulesByOrigin;
///
/// let now = Timestamp::UNIX_EPOCH;
/// let mut rules = RulesByOrigin::new(Crawler::parse("ExampleBot/1.0"));
/// let robots_txt = "https://site.example/robots.txt".parse().unwrap();
/// rules.parse(&robots_txt, b"User-agent: *\nDisallow: /a\n", Timestamp::MAX);
/// let allowed = |url: &str| rules.allowed(&url.parse().unwrap(), now);
/// assert_eq!(allowed("https://site.example/a/b"), Some(false));
/// assert_eq!(allowed("https://site.example/b"), Some(true));
/// assert_eq!(allowed("https://other.example/"), None);
/// ```
#[derive(Debug)]
pub struct RulesByOrigin {
    crawler: Crawler,
    dialect: Dialect,
    origins: HashMap<Origin, OriginRules>,
}

/// Rules of one origin, with their expiry time.
#[derive(Debug)]
struct OriginRules {
    access: OriginAccess,
    fresh_until: Timestamp,
}

/// Access result of one origin (RFC 9309, section 2.3.1).
#[derive(Debug)]
enum OriginAccess {
    Successful(Box<RobotsTxt>, Binding),
    Unavailable,
    Unreachable,
}

impl RulesByOrigin {
    /// Creates an empty set.
    #[must_use]
    pub fn new(crawler: Crawler) -> Self {
        Self::in_dialect(crawler, Dialect::default())
    }

    /// Creates an empty set whose files are parsed in `dialect`.
    #[must_use]
    pub fn in_dialect(crawler: Crawler, dialect: Dialect) -> Self {
        Self {
            crawler,
            dialect,
            origins: HashMap::new(),
        }
    }

    /// Parses the file for the origin of `url`, and replaces the earlier rules of that
    /// origin. After redirects, pass the URL that was requested first, because the rules
    /// apply to the initial origin (RFC 9309, section 2.3.1.2).
    pub fn parse(&mut self, url: &Target, content: &[u8], fresh_until: Timestamp) {
        let source = FileSource::new(&url.origin, None);
        let robots = RobotsTxt::within_limit(content, self.dialect, source);
        let binding = robots.binding(&self.crawler);
        let access = OriginAccess::Successful(Box::new(robots), binding);
        self.hold(url, access, fresh_until);
    }

    /// Records that there is no file: a status from 400 to 499. Everything is allowed (RFC
    /// 9309, section 2.3.1.3).
    pub fn unavailable(&mut self, url: &Target, fresh_until: Timestamp) {
        self.hold(url, OriginAccess::Unavailable, fresh_until);
    }

    /// Records that robots.txt could not be fetched. Everything is disallowed (RFC 9309,
    /// section 2.3.1.4).
    pub fn unreachable(&mut self, url: &Target, fresh_until: Timestamp) {
        self.hold(url, OriginAccess::Unreachable, fresh_until);
    }

    fn hold(&mut self, url: &Target, access: OriginAccess, fresh_until: Timestamp) {
        let held = OriginRules {
            access,
            fresh_until,
        };
        self.origins.insert(url.origin.clone(), held);
    }

    /// Reports whether `url` may be fetched; `None` if the robots.txt of its origin is
    /// unknown or has expired, and must be fetched first.
    #[must_use]
    pub fn allowed(&self, url: &Target, now: Timestamp) -> Option<bool> {
        Some(match &self.fresh(url, now)?.access {
            OriginAccess::Successful(_, binding) => binding.judge(url.path_and_query()).allows(),
            OriginAccess::Unavailable => true,
            // RFC 9309, section 2.2.2: the file itself may always be fetched.
            OriginAccess::Unreachable => url.path_and_query() == ROBOTS_TXT,
        })
    }

    /// Judges `url` by the file of its origin; `None` if there is no fresh one.
    #[must_use]
    pub fn judge(&self, url: &Target, now: Timestamp) -> Option<Judgement<'_>> {
        match &self.fresh(url, now)?.access {
            OriginAccess::Successful(_, binding) => Some(binding.judge(url.path_and_query())),
            OriginAccess::Unavailable | OriginAccess::Unreachable => None,
        }
    }

    /// Returns the file of the origin of `url`, with its notes, sitemaps and other records;
    /// `None` if there is no fresh one.
    #[must_use]
    pub fn robots_txt(&self, url: &Target, now: Timestamp) -> Option<&RobotsTxt> {
        match &self.fresh(url, now)?.access {
            OriginAccess::Successful(robots, _) => Some(robots),
            OriginAccess::Unavailable | OriginAccess::Unreachable => None,
        }
    }

    /// Returns the `Crawl-delay` of the origin of `url`, in seconds.
    #[must_use]
    pub fn crawl_delay(&self, url: &Target, now: Timestamp) -> Option<f64> {
        match &self.fresh(url, now)?.access {
            OriginAccess::Successful(_, binding) => binding.crawl_delay(),
            OriginAccess::Unavailable | OriginAccess::Unreachable => None,
        }
    }

    /// Returns the time until which the access result of the origin of `url` is fresh.
    #[must_use]
    pub fn fresh_until(&self, url: &Target) -> Option<Timestamp> {
        Some(self.origins.get(&url.origin)?.fresh_until)
    }

    /// Drops expired files and access results.
    pub fn forget_expired(&mut self, now: Timestamp) {
        self.origins.retain(|_, held| now < held.fresh_until);
    }

    fn fresh(&self, url: &Target, now: Timestamp) -> Option<&OriginRules> {
        let held = self.origins.get(&url.origin)?;
        (now < held.fresh_until).then_some(held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn url(text: &str) -> Target {
        text.parse().unwrap()
    }

    fn rules() -> RulesByOrigin {
        RulesByOrigin::new(Crawler::parse("ExampleBot"))
    }

    // RFC 9309, section 2.3: scheme, host and port.
    #[test]
    fn a_file_applies_only_to_its_origin() {
        let mut rules = rules();
        rules.parse(
            &url("http://a.test/robots.txt"),
            b"User-agent: *\nDisallow: /",
            at(9),
        );
        assert_eq!(rules.allowed(&url("http://a.test/x"), at(0)), Some(false));
        for other in ["https://a.test/x", "http://a.test:81/x", "http://b.test/x"] {
            assert_eq!(rules.allowed(&url(other), at(0)), None, "{other}");
        }
    }

    // RFC 9309, section 2.4.
    #[test]
    fn a_file_applies_until_it_expires() {
        let mut rules = rules();
        let page = url("http://a.test/x");
        rules.parse(&page, b"User-agent: *\nDisallow: /\nCrawl-delay: 3", at(9));
        assert_eq!(rules.allowed(&page, at(8)), Some(false));
        assert_eq!(rules.crawl_delay(&page, at(8)), Some(3.0));
        assert_eq!(
            rules
                .robots_txt(&page, at(8))
                .map(|file| file.records().count()),
            Some(3)
        );
        assert_eq!(rules.allowed(&page, at(9)), None);
        rules.forget_expired(at(8));
        assert_eq!(rules.fresh_until(&page), Some(at(9)));
        rules.forget_expired(at(9));
        assert_eq!(rules.fresh_until(&page), None);
    }

    // RFC 9309, sections 2.3.1.3 and 2.3.1.4.
    #[test]
    fn a_missing_file_allows_and_an_unreachable_one_disallows() {
        let mut rules = rules();
        rules.unavailable(&url("http://a.test/"), at(9));
        rules.unreachable(&url("http://b.test/"), at(9));
        assert_eq!(rules.allowed(&url("http://a.test/x"), at(0)), Some(true));
        assert_eq!(rules.allowed(&url("http://b.test/x"), at(0)), Some(false));
        assert_eq!(
            rules.allowed(&url("http://b.test/robots.txt"), at(0)),
            Some(true)
        );
        assert_eq!(rules.judge(&url("http://b.test/x"), at(0)), None);
    }

    // Ours.
    #[test]
    fn a_later_file_replaces_the_earlier() {
        let mut rules = RulesByOrigin::in_dialect(Crawler::parse("ExampleBot"), Dialect::Draft1996);
        let page = url("http://a.test/x");
        rules.parse(&page, b"User-agent: *\nDisallow: /", at(9));
        rules.parse(&page, b"User-agent: *\nAllow: /x\nDisallow: /", at(9));
        let judged = rules.judge(&page, at(0));
        assert!(matches!(judged, Some(Judgement::Rule(rule)) if rule.line() == 2));
    }
}
