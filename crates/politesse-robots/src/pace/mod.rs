//! Pace records of robots.txt: `Crawl-delay`, `Request-rate`, `Visit-time`.
//!
//! RFC 9309 does not define them; section 2.2.4 leaves such records to the
//! crawler. They say when, never whether.

pub mod asked;
pub mod request_rate;
pub mod visit_time;
