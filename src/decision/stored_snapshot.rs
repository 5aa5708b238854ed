//! What must be known of an origin's robots.txt to go on where one stopped.

use std::sync::Arc;

use super::access::{AccessResult, Cause, NoConnection, Snapshot};
use politesse_robots::Dialect;
use politesse_robots::crawler::ProductToken;
use politesse_robots::origin::Origin;

/// Whose snapshot it is: that of an origin, for the product token it was
/// fetched for; `None` where one serves every crawler.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CacheKey {
    /// The initial origin.
    pub origin: Origin,
    /// The token.
    pub token: Option<ProductToken>,
}

/// The last that is known of a robots.txt, fresh or not.
#[derive(Debug, Clone)]
pub struct StoredSnapshot {
    /// What holds, or held: its times say which.
    pub snapshot: Arc<Snapshot>,
    /// How often in a row the origin was unreachable.
    pub failures: u32,
    /// Where the operator's word led, if the origin was not asked at its own
    /// address: what was said there is not what is said elsewhere.
    pub led_to: Option<String>,
}

impl StoredSnapshot {
    /// Whose it is.
    pub fn key(&self) -> CacheKey {
        CacheKey {
            origin: self.snapshot.origin.clone(),
            token: self.snapshot.token.clone(),
        }
    }

    /// Whether it is known from outside, and so worth keeping beyond the
    /// process. A failure of our own, or an address that we may not dial, costs
    /// nobody anything to find out again, and may be gone after the restart
    /// that was to mend it.
    pub fn is_of_the_origin(&self) -> bool {
        match &self.snapshot.result {
            AccessResult::Unreachable(
                Cause::Internal
                | Cause::Busy
                | Cause::NoConnection(
                    NoConnection::Prohibited
                    | NoConnection::NoSocket
                    | NoConnection::Parent
                    | NoConnection::ParentCredentials,
                ),
            ) => false,
            AccessResult::Unreachable(_)
            | AccessResult::Successful(_)
            | AccessResult::Unavailable => true,
        }
    }

    /// The same, its file read by `dialect`.
    #[must_use]
    pub fn read_by(self, dialect: Dialect) -> Self {
        let Some(file) = self.snapshot.file() else {
            return self;
        };
        if file.robots.dialect() == dialect {
            return self;
        }
        let snapshot = Snapshot {
            result: AccessResult::Successful(Arc::new(file.read_again(dialect))),
            ..(*self.snapshot).clone()
        };
        Self {
            snapshot: Arc::new(snapshot),
            ..self
        }
    }
}
