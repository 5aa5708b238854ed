//! Requests that are sent a second time, because the connection that they went
//! over was dead.
//!
//! What the host is asked for twice it sees twice: the second time is a start
//! of its own. When that may be is not known here.

use std::future::Future;
use std::time::Duration;

use http::Request;
use hyper::client::conn::TrySendError;

use super::upload::{Progress, Upload};
use crate::upstream::error::UpstreamError;

/// The starts that one request makes at its host. The first one is made.
pub trait Starts: Send {
    /// How far the next start there lies off, at least.
    fn pause(&self) -> Duration;

    /// Ends this start and waits for another; whether there is one. Without it
    /// nothing is sent again.
    fn again(&mut self) -> impl Future<Output = bool> + Send;
}

/// An exchange that brought no response.
pub(super) struct Lost {
    pub(super) error: UpstreamError,
    pub(super) again: Again,
}

/// Whether a lost request may be sent again (RFC 9110, section 9.2.2).
pub(super) enum Again {
    /// Nothing of it was written.
    Unsent(Upload),
    /// It is idempotent, has no body, and not a byte came back.
    Harmless,
    Never,
}

impl Lost {
    pub(super) fn of(mut error: TrySendError<Request<Upload>>, upload: &Progress) -> Self {
        let unsent = error.take_message().map(Request::into_body);
        let error = if upload.broke() {
            UpstreamError::RequestBody
        } else {
            error.into_error().into()
        };
        let again = unsent.map_or(Again::Never, Again::Unsent);
        Self { error, again }
    }

    /// The same, lost because interim responses flooded in: it is not sent
    /// again, unless nothing of it was written.
    pub(super) fn by_flood(mut self) -> Self {
        if matches!(self.again, Again::Never) {
            self.error = UpstreamError::InterimResponses;
        }
        self
    }

    /// The same, harmless to repeat if `condition` holds and it is a broken
    /// connection that it was lost by.
    pub(super) fn repeatable_if(mut self, condition: bool) -> Self {
        let broken = matches!(self.error, UpstreamError::Incomplete(_));
        if condition && broken && matches!(self.again, Again::Never) {
            self.again = Again::Harmless;
        }
        self
    }
}

impl From<UpstreamError> for Lost {
    fn from(error: UpstreamError) -> Self {
        Self {
            error,
            again: Again::Never,
        }
    }
}
