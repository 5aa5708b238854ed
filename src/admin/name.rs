//! The name that we are asked under.
//!
//! A page elsewhere could make a browser ask here under a name of its own (DNS
//! rebinding), so only addresses and `localhost` are answered. Who asks is not
//! known here.

use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use politesse_robots::origin::{Host, Origin, Scheme};

/// Why a request is not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Misnamed {
    /// It has no host, two, or one that is none (RFC 9112, section 3.2).
    Malformed,
    /// It asks for somebody else.
    Foreign,
}

/// Answers who asks under a name of ours, and turns the others away.
pub(super) async fn guard(request: Request, next: Next) -> Response {
    match judge(request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(misnamed) => misnamed.into_response(),
    }
}

/// A target in absolute form counts in place of `Host` (RFC 9112, section
/// 3.2.2), but not everything in front of us knows that: both are judged.
fn judge(target: &Uri, fields: &HeaderMap) -> Result<(), Misnamed> {
    let mut hosts = fields.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return Err(Misnamed::Malformed);
    };
    let host = host.to_str().map_err(|_| Misnamed::Malformed)?;
    let authority = target.authority().map(|authority| authority.as_str());
    for name in authority.into_iter().chain([host]) {
        let origin = Origin::new(Scheme::Http, name).map_err(|_| Misnamed::Malformed)?;
        let is_ours = match origin.host() {
            Host::Address(_) => true,
            Host::Name(name) => **name == *"localhost",
        };
        if !is_ours {
            return Err(Misnamed::Foreign);
        }
    }
    Ok(())
}

impl IntoResponse for Misnamed {
    fn into_response(self) -> Response {
        match self {
            Self::Malformed => (StatusCode::BAD_REQUEST, "one valid Host is wanted\n"),
            Self::Foreign => (
                StatusCode::MISDIRECTED_REQUEST,
                "ask by address, or as localhost\n",
            ),
        }
        .into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(target: &str, hosts: &[&str]) -> Result<(), Misnamed> {
        let mut fields = HeaderMap::new();
        for host in hosts {
            fields.append(header::HOST, host.parse().unwrap());
        }
        judge(&target.parse().unwrap(), &fields)
    }

    /// One test a row: what comes of these `Host` fields.
    macro_rules! hosts {
        ($($name:ident: $hosts:expr => $judged:expr;)*) => {$(
            #[test]
            fn $name() {
                for hosts in $hosts {
                    assert_eq!(asked("/metrics", &hosts), $judged, "{hosts:?}");
                }
            }
        )*};
    }

    // Ours, against DNS rebinding; RFC 9110, section 7.2; RFC 9112, section 3.2.
    hosts! {
        addresses_are_ours: [["127.0.0.1:3129"], ["10.0.0.1"], ["[::1]:3129"], ["[::1]"], ["[::ffff:10.0.0.1]:1"]] => Ok(());
        localhost_is_ours: [["localhost"], ["localhost:3129"], ["LOCALHOST:3129"], ["localhost."]] => Ok(());
        names_are_not_ours: [["evil.test"], ["evil.test:3129"], ["localhost.evil.test"], ["1.evil.test"]] => Err(Misnamed::Foreign);
        what_only_begins_like_an_address_is_none: [["[evil.test"], ["[evil.test]"], ["[::1"], ["[::1]evil.test"], ["[::1]:80.evil.test"], ["[]"]] => Err(Misnamed::Malformed);
        what_resolvers_disagree_on_is_no_address: [["127.1"], ["0x7f.1"], ["2130706433"], ["127.0.0.01"]] => Err(Misnamed::Malformed);
        what_is_no_host_is_malformed: [[""], [":80"], ["::1"], ["localhost:x"], ["localhost:0"], ["a@localhost"], ["localhost, localhost"], ["localhost/"]] => Err(Misnamed::Malformed);
        two_hosts_are_malformed: [["localhost", "localhost"], ["localhost", "evil.test"]] => Err(Misnamed::Malformed);
        a_host_is_wanted: [[""; 0]] => Err(Misnamed::Malformed);
    }

    // RFC 9112, section 3.2.2.
    #[test]
    fn an_absolute_target_counts_as_well() {
        let of = |target: &str| asked(target, &["localhost"]);
        assert_eq!(of("http://127.0.0.1:3129/metrics"), Ok(()));
        assert_eq!(of("http://evil.test/metrics"), Err(Misnamed::Foreign));
        assert_eq!(
            of("http://admin:x@localhost/metrics"),
            Err(Misnamed::Malformed)
        );
        assert_eq!(
            asked("http://localhost/metrics", &["evil.test"]),
            Err(Misnamed::Foreign)
        );
    }
}
