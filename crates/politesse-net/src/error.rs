//! Errors of requests to origins, with their words of RFC 9209.

use std::error::Error as _;

use h2::Reason;
use thiserror::Error;

use super::egress::{Denial, DialError};
use politesse_decision::access::{Cause, NoConnection};

/// Error by which a permitted request brought no response. The answer is 502 or
/// 504, with the error type of [`UpstreamError::as_str`].
#[derive(Debug, Error)]
pub enum UpstreamError {
    /// The turn at the host was lost to another node of the fleet before anything was
    /// sent, since this process stood still, and no other came in time.
    #[error("the host was handed to another node of the fleet")]
    TurnLost,
    /// The origin may not be dialled.
    #[error("the destination is prohibited: {0}")]
    Prohibited(Denial),
    /// No connection or TLS session could be made.
    #[error("no connection: {0}")]
    NoConnection(NoConnection),
    /// Nothing came within `upstream.first_byte_timeout`.
    #[error("no response in time")]
    FirstByteTimeout,
    /// The connection ended before a whole response head.
    #[error("the connection ended before the response")]
    Incomplete(#[source] hyper::Error),
    /// The answer is no HTTP response.
    #[error("the response is no HTTP")]
    Protocol(#[source] hyper::Error),
    /// The length of the response can be read in two ways (RFC 9112, 6.3).
    #[error("the response has two lengths")]
    AmbiguousFraming,
    /// The fields of the response are more than 256, or over 256 KiB.
    #[error("the response has too many or too large fields")]
    ResponseHeaderSize,
    /// A transfer coding other than `chunked`.
    #[error("the response has a transfer coding other than chunked")]
    ResponseCoding,
    /// More interim responses than a server has reason to send.
    #[error("the origin sends one interim response after the other")]
    InterimResponses,
    /// A 101 that no forwarded request can have asked for.
    #[error("the origin changed to a protocol nobody asked for")]
    UnaskedUpgrade,
    /// The client's upload broke off or was malformed: 400, not 502.
    #[error("the upload broke off")]
    RequestBody,
    /// The URL cannot be written in a request line: 400, not 502.
    #[error("the URL cannot be sent")]
    Target,
}

impl UpstreamError {
    /// Returns the error type of RFC 9209, section 2.3.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::TurnLost => "proxy_internal_error",
            Self::Prohibited(_) => NoConnection::Prohibited.as_str(),
            Self::NoConnection(cause) => cause.as_str(),
            Self::FirstByteTimeout => "http_response_timeout",
            Self::Incomplete(_) => "http_response_incomplete",
            Self::Protocol(_) | Self::AmbiguousFraming | Self::InterimResponses => {
                "http_protocol_error"
            }
            Self::ResponseHeaderSize => "http_response_header_section_size",
            Self::ResponseCoding => "http_response_transfer_coding",
            Self::UnaskedUpgrade => "http_upgrade_failed",
            Self::RequestBody | Self::Target => "http_request_error",
        }
    }

    /// Returns the reason for which the origin reset the HTTP/2 stream of the request
    /// (RFC 9113, section 7).
    pub(super) fn reset_reason(&self) -> Option<Reason> {
        let (Self::Incomplete(error) | Self::Protocol(error)) = self else {
            return None;
        };
        let http2 = error.source()?.downcast_ref::<h2::Error>()?;
        http2.is_reset().then(|| http2.reason()).flatten()
    }

    /// Reports whether a time limit ended it: 504, else 502.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::FirstByteTimeout)
            || matches!(self, Self::NoConnection(cause) if cause.is_timeout())
    }
}

impl From<DialError> for UpstreamError {
    fn from(error: DialError) -> Self {
        match error {
            DialError::Denied(denial) => Self::Prohibited(denial),
            DialError::NoConnection(cause) => Self::NoConnection(cause),
            // The name was resolved when the request was decided, and has expired
            // since. The decision is on record by now, so this is a name that
            // could not be resolved in time.
            DialError::Busy => Self::NoConnection(NoConnection::DnsTimeout),
        }
    }
}

impl From<hyper::Error> for UpstreamError {
    fn from(error: hyper::Error) -> Self {
        if error.is_parse_too_large() {
            Self::ResponseHeaderSize
        } else if error.is_parse() {
            Self::Protocol(error)
        } else {
            Self::Incomplete(error)
        }
    }
}

// A robots.txt that cannot be fetched is unreachable for one of these causes.
impl From<UpstreamError> for Cause {
    fn from(error: UpstreamError) -> Self {
        match error {
            UpstreamError::NoConnection(cause) => Self::NoConnection(cause),
            UpstreamError::Prohibited(_) => Self::NoConnection(NoConnection::Prohibited),
            UpstreamError::Target => Self::RedirectTarget,
            UpstreamError::FirstByteTimeout | UpstreamError::TurnLost => Self::Timeout,
            UpstreamError::Incomplete(_)
            | UpstreamError::Protocol(_)
            | UpstreamError::AmbiguousFraming
            | UpstreamError::ResponseHeaderSize
            | UpstreamError::ResponseCoding
            | UpstreamError::InterimResponses
            | UpstreamError::UnaskedUpgrade
            | UpstreamError::RequestBody => Self::Broken,
        }
    }
}
