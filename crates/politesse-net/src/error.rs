//! Errors of requests to origins, and their RFC 9209 error types.

use std::error::Error as _;

use h2::Reason;
use thiserror::Error;

use super::egress::{Denial, DialError};
use politesse_decision::access::{Cause, NoConnection};

/// Reason why a permitted request got no response. The client gets a 502 or 504 with the
/// error type of [`UpstreamError::as_str`].
#[derive(Debug, Error)]
pub enum UpstreamError {
    /// The process was suspended, another node of the fleet got the turn at the host
    /// before anything was sent, and no new turn came in time.
    #[error("the host was handed to another node of the fleet")]
    TurnLost,
    /// The origin may not be dialled.
    #[error("the destination is prohibited: {0}")]
    Prohibited(Denial),
    /// No connection or TLS session could be established.
    #[error("no connection: {0}")]
    NoConnection(NoConnection),
    /// No response arrived within `upstream.first_byte_timeout`.
    #[error("no response in time")]
    FirstByteTimeout,
    /// The connection ended before a complete response head.
    #[error("the connection ended before the response")]
    Incomplete(#[source] hyper::Error),
    /// The answer is not an HTTP response.
    #[error("the response is no HTTP")]
    Protocol(#[source] hyper::Error),
    /// The length of the response is ambiguous (RFC 9112, section 6.3).
    #[error("the response has two lengths")]
    AmbiguousFraming,
    /// The response has more than 256 fields, or more than 256 KiB of them.
    #[error("the response has too many or too large fields")]
    ResponseHeaderSize,
    /// The response has a transfer coding other than `chunked`.
    #[error("the response has a transfer coding other than chunked")]
    ResponseCoding,
    /// The origin sent more interim responses than a server has reason to send.
    #[error("the origin sends one interim response after the other")]
    InterimResponses,
    /// The origin sent a 101, which no forwarded request asks for.
    #[error("the origin changed to a protocol nobody asked for")]
    UnaskedUpgrade,
    /// The client's upload broke off or was malformed. The answer is 400, not 502.
    #[error("the upload broke off")]
    RequestBody,
    /// The URL cannot be written in a request line. The answer is 400, not 502.
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

    /// Returns the reason with which the origin reset the HTTP/2 stream of the request
    /// (RFC 9113, section 7).
    pub(super) fn reset_reason(&self) -> Option<Reason> {
        let (Self::Incomplete(error) | Self::Protocol(error)) = self else {
            return None;
        };
        let http2 = error.source()?.downcast_ref::<h2::Error>()?;
        http2.is_reset().then(|| http2.reason()).flatten()
    }

    /// Reports whether the cause is a timeout, so that the answer is 504 rather than 502.
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
            // The name was resolved when the request was decided, but the entry has
            // expired since. The decision is on record already, so this counts as a name
            // that could not be resolved in time.
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

// Cause for which a robots.txt counts as unreachable if fetching it failed with this
// error.
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
