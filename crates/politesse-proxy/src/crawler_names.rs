//! Cache of the names found in `User-Agent` values.
//!
//! A crawl sends the same `User-Agent` in all of its requests, and finding the names in
//! it costs more than the rest of parsing a request. Does not know how names are found
//! (`politesse_robots::crawler`), or the operator's table.

use dashmap::DashMap;

use politesse_robots::crawler::Crawler;

/// Maximum number of cached values: more than a proxy has crawlers, and one or two
/// megabytes at most.
pub(super) const REMEMBERED_MAX: usize = 1024;

/// Maximum length in bytes of a cached value. Those of crawlers have about 200.
pub(super) const VALUE_BYTES_MAX: usize = 1024;

/// Crawlers, by the `User-Agent` value in which they were found.
#[derive(Debug, Default)]
pub struct CrawlerNames(DashMap<Box<[u8]>, Crawler>);

impl CrawlerNames {
    /// Returns the result of [`Crawler::from_user_agent`] for this value.
    pub fn crawler(&self, user_agent: Option<&[u8]>) -> Crawler {
        let Some(value) = user_agent.filter(|value| value.len() <= VALUE_BYTES_MAX) else {
            return Crawler::from_user_agent(user_agent);
        };
        if let Some(crawler) = self.0.get(value) {
            return crawler.clone();
        }
        let crawler = Crawler::from_user_agent([value]);
        if REMEMBERED_MAX <= self.0.len() {
            // Cleared completely: a value still in use comes back with its next request.
            self.0.clear();
        }
        self.0.insert(value.into(), crawler.clone());
        crawler
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours: a cached result equals a newly computed one, and the cache is bounded.
    #[test]
    fn a_cached_crawler_equals_a_newly_found_one() {
        let names = CrawlerNames::default();
        for number in 0..3 * REMEMBERED_MAX {
            let agent = format!("Bot{}/{number}", number % 7);
            let expected = Crawler::from_user_agent([agent.as_bytes()]);
            for _ in 0..2 {
                assert_eq!(names.crawler(Some(agent.as_bytes())), expected);
            }
        }
        let remembered = names.0.len();
        assert!(remembered <= REMEMBERED_MAX, "{remembered}");
        let long = "x".repeat(VALUE_BYTES_MAX + 1);
        names.crawler(Some(long.as_bytes()));
        names.crawler(None);
        assert_eq!(names.0.len(), remembered);
    }
}
