//! Where a fetch of robots.txt has been.
//!
//! RFC 9309, section 2.3.1.2. It outlives the time limit of the fetch, so that
//! a snapshot can say where the time ran out.

use std::time::Duration;

use crate::decision::access::{Cause, NoConnection};
use crate::robots_cache::answer::{Answer, Place};
use crate::robots_cache::fetch::{FetchError, Hop};
use crate::upstream::body::BodyError;
use crate::upstream::error::UpstreamError;
use politesse_robots::origin::Target;

/// The way from the first URL to the last.
#[derive(Debug)]
pub(super) struct Trail {
    pub(super) last: Target,
    /// The URLs whose redirects were followed, in order.
    before: Vec<Target>,
    pub(super) status: Option<u16>,
    /// Whether the last URL was asked only for what has changed.
    pub(super) conditional: bool,
    /// Whether it waits for a place to ask the last URL from.
    pub(super) waits: bool,
    /// How long the last URL could not be asked, since others take turns there.
    pub(super) not_before: Option<Duration>,
}

impl Trail {
    pub(super) fn new(first: Target) -> Self {
        Self {
            last: first,
            before: Vec::new(),
            status: None,
            conditional: false,
            waits: false,
            not_before: None,
        }
    }

    /// Why there is no answer now that the time is up.
    pub(super) fn late(&self) -> Cause {
        if self.waits {
            Cause::Busy
        } else {
            Cause::Timeout
        }
    }

    /// Refuses a redirect that is one too many, or leads round.
    pub(super) fn check(&self, next: &Target, redirects_max: u8) -> Result<(), Cause> {
        let seen = self.last == *next || self.before.contains(next);
        if seen || usize::from(redirects_max) <= self.before.len() {
            return Err(Cause::Redirects);
        }
        Ok(())
    }

    pub(super) fn follow(&mut self, next: Target) {
        self.before.push(std::mem::replace(&mut self.last, next));
        (self.status, self.conditional) = (None, false);
    }

    /// What a failure means here. Only the initial origin counts as one that
    /// cannot be connected to: the crawler asked for nothing of the others.
    pub(super) fn cause(&self, error: &FetchError) -> Cause {
        let no_connection = |cause| match self.before.as_slice() {
            [] => Cause::NoConnection(cause),
            _ => Cause::RedirectTarget,
        };
        match error {
            FetchError::Upstream(UpstreamError::NoConnection(cause)) => no_connection(*cause),
            FetchError::Upstream(UpstreamError::Prohibited(_)) => {
                no_connection(NoConnection::Prohibited)
            }
            FetchError::Upstream(UpstreamError::Target) => Cause::RedirectTarget,
            FetchError::Upstream(UpstreamError::FirstByteTimeout)
            | FetchError::Body(BodyError::Stalled) => Cause::Timeout,
            FetchError::Coding => Cause::Coding,
            FetchError::Upstream(_) | FetchError::Body(_) => Cause::Broken,
        }
    }

    /// What it came to, with where.
    pub(super) fn answer(self, result: Result<Hop, Cause>) -> Answer {
        let place = Place {
            hops: self.before.iter().map(Target::to_string).collect(),
            url: self.last.to_string(),
            status: self.status,
            conditional: self.conditional,
        };
        Answer {
            place,
            result,
            not_before: self.not_before,
        }
    }
}
