//! Pace records of robots.txt: `Crawl-delay`, `Request-rate`, `Visit-time`.
//!
//! RFC 9309 does not define them; section 2.2.4 leaves such records to the
//! crawler. They say when, never whether.

mod records;
mod request_rate;
mod visit_time;

pub use records::{PaceRecords, PauseRecord};
pub use request_rate::RequestRate;
pub use visit_time::VisitTime;
