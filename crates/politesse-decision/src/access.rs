//! Meaning of the response to a request for robots.txt, and the causes that make a file
//! unreachable.
//!
//! RFC 9309, section 2.3.1. Does not know how requests are made, or the rules in a file.

use std::fmt;
use std::str::FromStr;

use http::{HeaderMap, HeaderValue};
use thiserror::Error;

/// Cause that makes a robots.txt unreachable. Each variant disallows every URL of the
/// origin until the file is fetched again (RFC 9309, section 2.3.1.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// A status that says nothing about the rules: 429, 5xx and any status without a
    /// defined meaning for robots.txt.
    Status,
    /// The response was not complete within `robots.timeout`.
    Timeout,
    /// More redirects than `robots.redirects`, or a loop of them.
    Redirects,
    /// A redirect without a usable `Location`.
    RedirectTarget,
    /// A redirect to a page that its own origin disallows, or whose rules could not be
    /// determined.
    RedirectDisallowed,
    /// The response broke off, or was not HTTP.
    Broken,
    /// A content coding that is not supported; the request asked for none.
    Coding,
    /// A body that is not text, such as an archive or an image.
    NotText,
    /// A bot challenge with a status of success.
    Challenge,
    /// No connection or TLS session could be made.
    NoConnection(NoConnection),
    /// The origin was not asked: one client used more product tokens than
    /// `robots.max_names`.
    Names,
    /// The origin was not asked: too many other fetches or DNS lookups were running or
    /// waiting (`robots.max_fetches`, `robots.max_waiting`, `upstream.dns_lookups`).
    Busy,
    /// An internal error in the proxy.
    Internal,
}

/// Cause that prevented a connection to an origin. The page is just as unreachable as
/// its robots.txt, so the crawler gets 502 or 504 with the error type of RFC 9209,
/// section 2.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NoConnection {
    /// The name has no address.
    #[error("its name has no address")]
    Dns,
    /// The resolver did not answer in time.
    #[error("its name could not be resolved in time")]
    DnsTimeout,
    /// The origin refused the connection.
    #[error("it refuses connections")]
    Refused,
    /// No connection within `upstream.connect_timeout`.
    #[error("it did not answer in time")]
    Timeout,
    /// No route, or another failure below TCP.
    #[error("it cannot be routed to")]
    Unroutable,
    /// No connection was attempted: the system has no socket left for us.
    #[error("there is no socket left on our side")]
    NoSocket,
    /// The certificate of the origin is invalid.
    #[error("{0}")]
    Certificate(CertificateFault),
    /// TLS negotiation failed: no common version or cipher, or no TLS at all.
    #[error(
        "no TLS session could be agreed on: it speaks no version or cipher that is wanted \
         (TLS 1.2 or later, or min_version of its entry in upstream.tls), or no TLS"
    )]
    Tls,
    /// The origin ended the TLS session with an alert.
    #[error("it ended the TLS session by an alert, as where it wants a client certificate")]
    Alert,
    /// All addresses of the origin are denied by `egress`.
    #[error("its address is denied")]
    Prohibited,
    /// The parent proxy did not connect to the origin. Its reason is unknown, so the
    /// error type is the most general one.
    #[error("the parent proxy does not connect to it")]
    Parent,
    /// The parent proxy rejects our credentials, which the operator has to fix, not
    /// the crawler.
    #[error("the parent proxy does not take our credentials")]
    ParentCredentials,
}

/// Reason why the certificate of an origin is invalid. RFC 9209 has one error type for
/// all of these; the record has a word for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CertificateFault {
    /// The certificate has expired.
    #[error("its certificate has expired, by the clock of this machine")]
    Expired,
    /// The validity period has not begun yet.
    #[error("its certificate is not valid yet, by the clock of this machine")]
    NotValidYet,
    /// The certificate does not cover the name of the origin.
    #[error("its certificate is for another name")]
    Name,
    /// No chain of intermediates that the origin sent leads to a trusted root.
    #[error(
        "the issuer of its certificate is unknown: no root of https.upstream_roots, or of its entry \
         in upstream.tls, signed it, or the origin does not send the intermediate certificate"
    )]
    Issuer,
    /// The certificate is self-signed.
    #[error(
        "its certificate is self-signed: it needs one of a CA that https.upstream_roots has, or an \
         entry in upstream.tls"
    )]
    SelfSigned,
    /// Any other fault.
    #[error("its certificate does not hold")]
    Other,
}

/// Words of the causes in the audit log, except [`Cause::NoConnection`].
const CAUSES: [(&str, Cause); 12] = [
    ("status", Cause::Status),
    ("timeout", Cause::Timeout),
    ("redirects", Cause::Redirects),
    ("redirect_target", Cause::RedirectTarget),
    ("redirect_disallowed", Cause::RedirectDisallowed),
    ("broken", Cause::Broken),
    ("coding", Cause::Coding),
    ("not_text", Cause::NotText),
    ("challenge", Cause::Challenge),
    ("names", Cause::Names),
    ("busy", Cause::Busy),
    ("internal", Cause::Internal),
];

/// Error type of any invalid certificate (RFC 9209, section 2.3.16).
const CERTIFICATE: &str = "tls_certificate_error";

/// Words of certificate faults in the audit log, except [`CertificateFault::Other`].
const CERTIFICATE_FAULTS: [(&str, CertificateFault); 5] = [
    ("certificate_expired", CertificateFault::Expired),
    ("certificate_not_valid_yet", CertificateFault::NotValidYet),
    ("certificate_name", CertificateFault::Name),
    ("certificate_issuer", CertificateFault::Issuer),
    ("certificate_self_signed", CertificateFault::SelfSigned),
];

/// Error types of RFC 9209, section 2.3, for failed connections.
const NO_CONNECTIONS: [(&str, NoConnection); 12] = [
    ("dns_error", NoConnection::Dns),
    ("dns_timeout", NoConnection::DnsTimeout),
    ("connection_refused", NoConnection::Refused),
    ("connection_timeout", NoConnection::Timeout),
    ("destination_ip_unroutable", NoConnection::Unroutable),
    (
        CERTIFICATE,
        NoConnection::Certificate(CertificateFault::Other),
    ),
    // A missing socket is a failure on our side, not of the origin.
    ("proxy_internal_error", NoConnection::NoSocket),
    ("tls_protocol_error", NoConnection::Tls),
    ("tls_alert_received", NoConnection::Alert),
    ("destination_ip_prohibited", NoConnection::Prohibited),
    ("destination_unavailable", NoConnection::Parent),
    ("proxy_configuration_error", NoConnection::ParentCredentials),
];

/// Iterates over every cause with its word.
fn causes() -> impl Iterator<Item = (&'static str, Cause)> {
    let no_connections = NO_CONNECTIONS.map(|(word, cause)| (word, Cause::NoConnection(cause)));
    let certificates = CERTIFICATE_FAULTS.map(|(word, fault)| {
        let cause = NoConnection::Certificate(fault);
        (word, Cause::NoConnection(cause))
    });
    CAUSES.into_iter().chain(no_connections).chain(certificates)
}

impl Cause {
    /// Reports whether the fetch got as far as trying the origin. If not, its failure says
    /// nothing new about the origin.
    pub fn was_asked(self) -> bool {
        !matches!(
            self,
            Self::Busy | Self::NoConnection(NoConnection::NoSocket)
        )
    }

    /// Returns the word used in the audit log. For [`Cause::NoConnection`] that is the
    /// error type of RFC 9209, section 2.3, or the word of the certificate fault.
    pub fn as_str(self) -> &'static str {
        causes()
            .find(|(_, cause)| *cause == self)
            // The fallback is never used: the tables contain every cause.
            .map_or("internal", |(word, _)| word)
    }
}

impl NoConnection {
    /// Returns the error type of RFC 9209, section 2.3.
    pub fn as_str(self) -> &'static str {
        if matches!(self, Self::Certificate(_)) {
            CERTIFICATE
        } else {
            Cause::NoConnection(self).as_str()
        }
    }

    /// Reports whether a timeout ended the attempt. The answer is 504 then, otherwise 502.
    pub fn is_timeout(self) -> bool {
        matches!(self, Self::DnsTimeout | Self::Timeout)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Error: no cause has this word.
#[derive(Debug, Error)]
#[error("unknown cause {0:?}")]
pub struct UnknownCause(String);

impl FromStr for Cause {
    type Err = UnknownCause;

    fn from_str(word: &str) -> Result<Self, UnknownCause> {
        causes()
            .find(|(name, _)| *name == word)
            .map(|(_, cause)| cause)
            .ok_or_else(|| UnknownCause(word.to_owned()))
    }
}

/// Meaning of a status for robots.txt (RFC 9309, section 2.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusMeaning {
    /// The body of the response is the file.
    Parse,
    /// The response redirects to the file.
    Redirect,
    /// There is no file.
    Unavailable,
    /// The rules are unknown.
    Unreachable,
}

/// Returns the meaning of a status for robots.txt.
///
/// A file comes with 200 or 203, or with 204 if it is empty. No other 2xx carries one:
/// 202 means that the answer is not ready, and 206 that it is only a part. 429 means
/// "not now", not "no rules". A 304 carries no file.
pub fn status_meaning(status: u16) -> StatusMeaning {
    match status {
        // Must precede the range 400..=499.
        429 => StatusMeaning::Unreachable,
        200 | 203 | 204 => StatusMeaning::Parse,
        301 | 302 | 303 | 307 | 308 => StatusMeaning::Redirect,
        400..=499 => StatusMeaning::Unavailable,
        _ => StatusMeaning::Unreachable,
    }
}

/// Reports whether a response is a bot challenge in place of the requested content.
/// Detects the headers of Cloudflare and AWS WAF.
///
/// A challenge sent for robots.txt with a status of success is not the file. With 403,
/// the status decides: RFC 9309, section 2.3.1.3, makes no exception for challenges.
pub fn is_challenge(fields: &HeaderMap) -> bool {
    let marks: [(&str, &[&str]); 2] = [
        ("cf-mitigated", &["challenge"]),
        ("x-amzn-waf-action", &["challenge", "captcha"]),
    ];
    marks.iter().any(|(name, actions)| {
        let mut values = fields.get_all(*name).iter().map(HeaderValue::as_bytes);
        values.any(|value| {
            let mut actions = actions.iter();
            actions.any(|action| value.eq_ignore_ascii_case(action.as_bytes()))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 9309, sections 2.3.1.1 to 2.3.1.4; ours for 202 to 206, 304 and 429.
    #[test]
    fn a_status_means_what_the_standard_says() {
        for (status, meaning) in [
            (200, StatusMeaning::Parse),
            (201, StatusMeaning::Unreachable),
            (202, StatusMeaning::Unreachable),
            (203, StatusMeaning::Parse),
            (204, StatusMeaning::Parse),
            (205, StatusMeaning::Unreachable),
            (206, StatusMeaning::Unreachable),
            (301, StatusMeaning::Redirect),
            (300, StatusMeaning::Unreachable),
            (304, StatusMeaning::Unreachable),
            (308, StatusMeaning::Redirect),
            (400, StatusMeaning::Unavailable),
            (401, StatusMeaning::Unavailable),
            (404, StatusMeaning::Unavailable),
            (429, StatusMeaning::Unreachable),
            (499, StatusMeaning::Unavailable),
            (500, StatusMeaning::Unreachable),
            (600, StatusMeaning::Unreachable),
            (101, StatusMeaning::Unreachable),
        ] {
            assert_eq!(status_meaning(status), meaning, "{status}");
        }
    }

    // RFC 9209, section 2.3.16: one error type for all. Ours: a word for each in the record.
    #[test]
    fn certificate_faults_share_an_error_type_and_differ_in_the_record() {
        for (word, fault) in CERTIFICATE_FAULTS {
            let cause = NoConnection::Certificate(fault);
            assert_eq!(cause.as_str(), "tls_certificate_error");
            assert_eq!(Cause::NoConnection(cause).as_str(), word);
        }
    }

    #[test]
    fn every_cause_is_parsed_from_its_word() {
        for (word, cause) in causes() {
            assert_eq!(word.parse::<Cause>().unwrap(), cause);
            assert_eq!(cause.as_str(), word);
        }
    }
}
