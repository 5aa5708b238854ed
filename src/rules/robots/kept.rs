//! What must be known of an origin's robots.txt to go on where one stopped.

use std::sync::Arc;

use super::access::Snapshot;
use crate::rules::crawler::ProductToken;
use crate::rules::origin::Origin;

/// Whose snapshot it is: that of an origin, for the product token it was
/// fetched for; `None` where one serves every crawler.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Whose {
    /// The initial origin.
    pub origin: Origin,
    /// The token.
    pub token: Option<ProductToken>,
}

/// The last that is known of a robots.txt, fresh or not.
#[derive(Debug, Clone)]
pub struct Kept {
    /// What holds, or held: its times say which.
    pub snapshot: Arc<Snapshot>,
    /// How often in a row the origin was unreachable.
    pub failures: u32,
}
