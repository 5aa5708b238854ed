//! Names found in `User-Agent` values, remembered.
//!
//! A crawl sends one `User-Agent` in all of its requests, and finding the names
//! in it costs more than the rest of reading a request. Does not know how names
//! are found (`politesse_robots::crawler`), nor the operator's table.

use dashmap::DashMap;

use politesse_robots::crawler::Crawler;

/// Values that are remembered: more than a proxy has crawlers, and a megabyte or
/// two at most.
pub(super) const REMEMBERED_MAX: usize = 1024;

/// Longest value that is remembered, in bytes. Those of crawlers have some 200.
pub(super) const VALUE_BYTES_MAX: usize = 1024;

/// Crawlers by the `User-Agent` that they were found in.
#[derive(Debug, Default)]
pub struct CrawlerNames(DashMap<Box<[u8]>, Crawler>);

impl CrawlerNames {
    /// Returns what [`Crawler::from_user_agent`] finds in this value.
    pub fn crawler(&self, user_agent: Option<&[u8]>) -> Crawler {
        let Some(value) = user_agent.filter(|value| value.len() <= VALUE_BYTES_MAX) else {
            return Crawler::from_user_agent(user_agent);
        };
        if let Some(crawler) = self.0.get(value) {
            return crawler.clone();
        }
        let crawler = Crawler::from_user_agent([value]);
        if REMEMBERED_MAX <= self.0.len() {
            // All at once: those in use are back with the next request of each.
            self.0.clear();
        }
        self.0.insert(value.into(), crawler.clone());
        crawler
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours: what is remembered is what would be found anew, and is bounded.
    #[test]
    fn a_remembered_crawler_is_the_one_that_would_be_found() {
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
