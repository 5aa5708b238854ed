//! Meaning of a response to a request for robots.txt, and the causes for which
//! a file is unreachable.
//!
//! RFC 9309, section 2.3.1. Does not know how requests are made, nor what the
//! rules in a file say.

use std::fmt;
use std::str::FromStr;

use http::{HeaderMap, HeaderValue};
use thiserror::Error;

/// Cause for which a robots.txt is unreachable. Each variant disallows every URL of the
/// origin until the file is asked for again (RFC 9309, section 2.3.1.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// A status that tells nothing about rules: 429, 5xx and all that is not
    /// defined for robots.txt.
    Status,
    /// No whole answer within `robots.timeout`.
    Timeout,
    /// More redirects than `robots.redirects`, or a loop of them.
    Redirects,
    /// A redirect without a usable `Location`.
    RedirectTarget,
    /// A redirect to a page that its own origin disallows, or whose rules
    /// could not be told.
    RedirectDisallowed,
    /// The answer broke off, or was no HTTP.
    Broken,
    /// A content coding that is not understood, though none was asked for.
    Coding,
    /// A body that is no text, such as an archive or an image.
    NotText,
    /// A bot challenge with a status of success.
    Challenge,
    /// No connection or TLS session could be made.
    NoConnection(NoConnection),
    /// The origin was not asked: one client used more product tokens than
    /// `robots.max_names`.
    Names,
    /// The origin was not asked: too many fetches, or look-ups of names, were
    /// before it (`robots.max_fetches`, `robots.max_waiting`,
    /// `upstream.dns_lookups`).
    Busy,
    /// Something failed on our side.
    Internal,
}

/// Cause for which no connection to an origin was made. The crawler could not
/// have had the page either, so the answer is 502 or 504 with the error type of
/// RFC 9209, section 2.3.
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
    /// No connection was tried: the system gives us no socket.
    #[error("there is no socket left on our side")]
    NoSocket,
    /// Its certificate does not hold.
    #[error("{0}")]
    Certificate(CertificateFault),
    /// TLS could not be agreed on.
    #[error(
        "no TLS session could be agreed on: it speaks no version or cipher that is wanted \
         (TLS 1.2 or later, or min_version of its entry in upstream.tls), or no TLS"
    )]
    Tls,
    /// The origin ended the TLS session by an alert.
    #[error("it ended the TLS session by an alert, as where it wants a client certificate")]
    Alert,
    /// Every address it has is denied.
    #[error("its address is denied")]
    Prohibited,
    /// The parent proxy did not connect to it. Its reason is unknown to us, so
    /// the error type is the broad one.
    #[error("the parent proxy does not connect to it")]
    Parent,
    /// The parent proxy refuses our credentials, which the operator has to mend,
    /// not the crawler.
    #[error("the parent proxy does not take our credentials")]
    ParentCredentials,
}

/// Reason why the certificate of an origin does not hold. One error type of RFC 9209
/// stands for all; the record has a word for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CertificateFault {
    /// The end of its validity is past.
    #[error("its certificate has expired, by the clock of this machine")]
    Expired,
    /// The begin of its validity is ahead.
    #[error("its certificate is not valid yet, by the clock of this machine")]
    NotValidYet,
    /// The name of the origin is not among its names.
    #[error("its certificate is for another name")]
    Name,
    /// No trusted root has signed it, nor an intermediate that the origin sent.
    #[error(
        "the issuer of its certificate is unknown: no root of https.upstream_roots, or of its entry \
         in upstream.tls, signed it, or the origin does not send the intermediate certificate"
    )]
    Issuer,
    /// The certificate has signed itself.
    #[error(
        "its certificate is self-signed: it needs one of a CA that https.upstream_roots has, or an \
         entry in upstream.tls"
    )]
    SelfSigned,
    /// Another fault.
    #[error("its certificate does not hold")]
    Other,
}

/// Words of the causes in the audit log, but for [`Cause::NoConnection`].
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

/// Error type of a certificate that does not hold, whatever its fault.
const CERTIFICATE: &str = "tls_certificate_error";

/// Words of the faults of certificates in the audit log, but for
/// [`CertificateFault::Other`].
const CERTIFICATE_FAULTS: [(&str, CertificateFault); 5] = [
    ("certificate_expired", CertificateFault::Expired),
    ("certificate_not_valid_yet", CertificateFault::NotValidYet),
    ("certificate_name", CertificateFault::Name),
    ("certificate_issuer", CertificateFault::Issuer),
    ("certificate_self_signed", CertificateFault::SelfSigned),
];

/// Error types of RFC 9209, section 2.3.
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
    // No socket is our own lack, not a fault of the origin.
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
    /// Reports whether the origin was asked. Where it was not, nothing is known of it that
    /// was not known before.
    pub fn was_asked(self) -> bool {
        !matches!(
            self,
            Self::Busy | Self::NoConnection(NoConnection::NoSocket)
        )
    }

    /// Returns its word in the audit log; for [`Cause::NoConnection`] the error
    /// type of RFC 9209, section 2.3, or the fault of the certificate.
    pub fn as_str(self) -> &'static str {
        causes()
            .find(|(_, cause)| *cause == self)
            // The tables have every cause; a test reads each of them back.
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

    /// Reports whether a time limit ended it: the answer is 504 then, else 502.
    pub fn is_timeout(self) -> bool {
        matches!(self, Self::DnsTimeout | Self::Timeout)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word that no cause has.
#[derive(Debug, Error)]
#[error("no cause is called {0:?}")]
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
    /// Its body is the file.
    Parse,
    /// The file is elsewhere.
    Redirect,
    /// There is no file.
    Unavailable,
    /// The rules remain unknown.
    Unreachable,
}

/// Returns the meaning of a status for robots.txt.
///
/// A file comes with 200 or 203, and with 204 if it is empty. Of the others, 202 says
/// that an answer is still being made, and 206 is a part nobody asked for. 429 says "not
/// now", not "no rules"; a 304 repeats nothing.
pub fn status_meaning(status: u16) -> StatusMeaning {
    match status {
        // Before the range that would take it.
        429 => StatusMeaning::Unreachable,
        200 | 203 | 204 => StatusMeaning::Parse,
        301 | 302 | 303 | 307 | 308 => StatusMeaning::Redirect,
        400..=499 => StatusMeaning::Unavailable,
        _ => StatusMeaning::Unreachable,
    }
}

/// Reports whether a response is a bot challenge, as Cloudflare and AWS WAF mark theirs,
/// in place of what was asked for.
///
/// Of a robots.txt with a status of success, the body is then no file. With 403 it says
/// what its status says: RFC 9309, section 2.3.1.3, makes no exception.
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

    // RFC 9209, section 2.3.16: one type for all; ours: a word for each in the record.
    #[test]
    fn the_fault_of_a_certificate_is_a_cause_and_no_error_type() {
        for (word, fault) in CERTIFICATE_FAULTS {
            let cause = NoConnection::Certificate(fault);
            assert_eq!(cause.as_str(), "tls_certificate_error");
            assert_eq!(Cause::NoConnection(cause).as_str(), word);
        }
    }

    #[test]
    fn every_cause_is_read_back_from_its_word() {
        for (word, cause) in causes() {
            assert_eq!(word.parse::<Cause>().unwrap(), cause);
            assert_eq!(cause.as_str(), word);
        }
    }
}
