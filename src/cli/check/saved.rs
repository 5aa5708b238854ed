//! A robots.txt that was saved: what asking for it would have led to.
//!
//! RFC 9309, section 2.3.1. Where the file lies is not known here.

use std::io::{self, Read};
use std::sync::Arc;

use bytes::Bytes;

use super::terms::Terms;
use crate::clock;
use crate::decision::access::{Cause, StatusMeaning, status_meaning};
use crate::decision::snapshot::{AccessResult, RobotsBody, RobotsFile, Snapshot};
use politesse_robots::origin::Origin;

/// The bytes of a file, as far as telling whether it is too long needs them.
pub(super) fn bytes(input: impl Read, terms: &Terms) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    let most = u64::try_from(terms.bytes_max).unwrap_or(u64::MAX);
    input
        .take(most.saturating_add(1))
        .read_to_end(&mut body)
        .map(|_| body)
}

/// The snapshot of an origin that answers with `status` and `body`.
pub(super) fn snapshot(
    origin: &Origin,
    (status, body): (u16, impl Into<Bytes>),
    terms: &Terms,
) -> Snapshot {
    let now = clock::now();
    let result = match status_meaning(status) {
        StatusMeaning::Parse => {
            let body = RobotsBody::within(body.into(), terms.bytes_max);
            AccessResult::Successful(Arc::new(RobotsFile::read(body, terms.dialect())))
        }
        StatusMeaning::Unavailable => AccessResult::Unavailable,
        StatusMeaning::Redirect | StatusMeaning::Unreachable => {
            AccessResult::Unreachable(Cause::Status)
        }
    };
    Snapshot {
        origin: origin.clone(),
        token: None,
        url: origin.robots_txt().to_string(),
        hops: Vec::new(),
        status: Some(status),
        fetched_at: now,
        expires_at: now,
        result,
        stale: None,
    }
}
