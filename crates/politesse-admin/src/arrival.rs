//! Arrival of a request: the client, the scheme and the host that it was sent to, as
//! seen by the listener or as stated by a trusted proxy in front.
//!
//! RFC 9112 (section 3.2) defines the host of a request. `X-Forwarded-For`, `-Host` and
//! `-Proto` have no standard. Each proxy appends to them, so the last value comes from
//! the nearest proxy. Does not know which pages exist.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use ipnet::IpNet;
use politesse_robots::origin::{Host, Origin, Scheme};

/// Rules for the hosts that requests may be sent to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArrivalRules {
    /// Names of this listener, in lower case, besides `localhost` and every address.
    pub hosts: Vec<String>,
    /// Addresses of proxies whose `X-Forwarded-` fields are trusted.
    pub trusted_proxies: Vec<IpNet>,
}

/// Connection of a request; `serve` adds it to the request.
#[derive(Debug, Clone, Copy)]
pub(super) struct AdminConnection {
    /// Address of the client, or of the proxy in front.
    pub(super) peer: SocketAddr,
    /// Address of the listener that the client connected to.
    pub(super) own: SocketAddr,
    /// Scheme: whether the connection is encrypted.
    pub(super) scheme: Scheme,
}

/// Client of a request, and the host and scheme that it was sent to.
#[derive(Debug, Clone)]
pub(super) struct AdminArrival {
    /// Address of the client.
    pub(super) client: IpAddr,
    /// Scheme that the client used.
    pub(super) scheme: Scheme,
    /// Host, with its port if the request named one.
    pub(super) host: String,
}

impl AdminArrival {
    /// Returns the origin that pages of this listener have in a browser (RFC 6454,
    /// section 6.2).
    pub(super) fn origin(&self) -> String {
        // Without the default port of the scheme, which some proxies in front add.
        let origin = Origin::new(self.scheme, &self.host);
        origin.map_or_else(|_| String::new(), |origin| origin.to_string())
    }
}

/// Reason why the host of a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HostError {
    /// The host is missing, malformed, or stated twice (RFC 9112, section 3.2).
    Malformed,
    /// The host is a name that does not belong to this listener.
    Foreign,
}

/// Middleware: passes a request on, with its [`AdminArrival`], if its host is an
/// address, `localhost` or a name of this listener.
///
/// A page elsewhere can make a browser send requests here under its own host name (DNS
/// rebinding), with any credentials that the browser has stored.
pub(super) async fn require_own_host(
    State(rules): State<Arc<ArrivalRules>>,
    mut request: Request,
    next: Next,
) -> Response {
    let connection = request.extensions().get::<AdminConnection>().copied();
    let arrival = match connection {
        Some(connection) => rules.arrival(&connection, request.uri(), request.headers()),
        // Cannot happen: `serve` adds the connection to every request.
        None => Err(HostError::Malformed),
    };
    match arrival {
        Ok(arrival) => {
            request.extensions_mut().insert(arrival);
            next.run(request).await
        }
        Err(error) => error.into_response(),
    }
}

impl ArrivalRules {
    fn arrival(
        &self,
        connection: &AdminConnection,
        target: &Uri,
        fields: &HeaderMap,
    ) -> Result<AdminArrival, HostError> {
        let peer = connection.peer.ip().to_canonical();
        if !self.trusts(peer) {
            return Ok(AdminArrival {
                client: peer,
                scheme: connection.scheme,
                host: self.sent_host(target, fields)?,
            });
        }
        let host = match forwarded(fields, "x-forwarded-host").next_back() {
            Some(host) => self.own_host(host)?,
            None => self.sent_host(target, fields)?,
        };
        let scheme = forwarded(fields, "x-forwarded-proto").next_back();
        // Searching from the nearest proxy, the first address that is not one of our
        // proxies. Values before it may be forged.
        let clients = forwarded(fields, "x-forwarded-for").rev();
        let client = clients
            .map_while(|text| text.parse::<IpAddr>().ok())
            .map(|client| client.to_canonical())
            .find(|client| !self.trusts(*client));
        Ok(AdminArrival {
            client: client.unwrap_or(peer),
            scheme: scheme
                .and_then(|text| text.parse().ok())
                .unwrap_or(connection.scheme),
            host,
        })
    }

    fn trusts(&self, address: IpAddr) -> bool {
        let networks = self.trusted_proxies.iter();
        networks
            .into_iter()
            .any(|network| network.contains(&address))
    }

    /// Reads the host that a request was sent to.
    fn sent_host(&self, target: &Uri, fields: &HeaderMap) -> Result<String, HostError> {
        let mut hosts = fields.get_all(header::HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else {
            return Err(HostError::Malformed);
        };
        let host = host.to_str().map_err(|_| HostError::Malformed)?;
        // A target in absolute form counts in place of `Host` (RFC 9112, section
        // 3.2.2), but not every proxy in front knows that, so both must be valid.
        if let Some(authority) = target.authority() {
            self.own_host(authority.as_str())?;
        }
        self.own_host(host)
    }

    fn own_host(&self, authority: &str) -> Result<String, HostError> {
        let origin = Origin::new(Scheme::Http, authority).map_err(|_| HostError::Malformed)?;
        let is_own = match origin.host() {
            Host::Address(_) => true,
            Host::Name(name) => {
                **name == *"localhost" || self.hosts.iter().any(|own| **own == **name)
            }
        };
        match is_own {
            true => Ok(authority.to_owned()),
            false => Err(HostError::Foreign),
        }
    }
}

/// Returns the values of a field to which each proxy appends one.
fn forwarded<'a>(
    fields: &'a HeaderMap,
    name: &'static str,
) -> impl DoubleEndedIterator<Item = &'a str> {
    let lines = fields.get_all(name).iter();
    lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','))
        .map(str::trim)
}

impl IntoResponse for HostError {
    fn into_response(self) -> Response {
        match self {
            Self::Malformed => (StatusCode::BAD_REQUEST, "one valid Host is wanted\n"),
            Self::Foreign => (
                StatusCode::MISDIRECTED_REQUEST,
                "the admin listener answers to addresses, to localhost and to the names of \
                 admin.hosts, and to no other name: add this one there, as in admin.hosts = \
                 [\"node1\"]\n",
            ),
        }
        .into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut fields = HeaderMap::new();
        for (name, value) in lines {
            fields.append(*name, value.parse().unwrap());
        }
        fields
    }

    fn from(peer: &str, lines: &[(&'static str, &str)]) -> Result<AdminArrival, HostError> {
        let rules = ArrivalRules {
            hosts: vec!["dash.test".to_owned()],
            trusted_proxies: vec!["10.0.0.0/8".parse().unwrap()],
        };
        let connection = AdminConnection {
            peer: SocketAddr::new(peer.parse().unwrap(), 1),
            own: "127.0.0.1:3129".parse().unwrap(),
            scheme: Scheme::Http,
        };
        rules.arrival(&connection, &"/".parse().unwrap(), &fields(lines))
    }

    fn named(target: &str, hosts: &[&str]) -> Result<(), HostError> {
        let lines: Vec<_> = hosts.iter().map(|host| ("host", *host)).collect();
        let rules = ArrivalRules::default();
        let sent = rules.sent_host(&target.parse().unwrap(), &fields(&lines));
        sent.map(drop)
    }

    // Ours: any client can send these fields.
    #[test]
    fn forwarded_fields_count_only_from_trusted_proxies() {
        let lines = [
            ("host", "localhost"),
            ("x-forwarded-host", "evil.test"),
            ("x-forwarded-host", "dash.test:8443"),
            ("x-forwarded-proto", "http, https"),
            ("x-forwarded-for", "1.1.1.1, 192.0.2.7, 10.0.0.9"),
        ];
        let trusted = from("10.0.0.2", &lines).unwrap();
        assert_eq!(trusted.origin(), "https://dash.test:8443");
        assert_eq!(trusted.client.to_string(), "192.0.2.7");
        let other = from("192.0.2.1", &lines).unwrap();
        assert_eq!(other.origin(), "http://localhost");
        assert_eq!(other.client.to_string(), "192.0.2.1");
        let foreign = [("host", "localhost"), ("x-forwarded-host", "evil.test")];
        assert_eq!(from("10.0.0.2", &foreign).unwrap_err(), HostError::Foreign);
        // A value that is not an address ends the list: the values before it cannot be
        // trusted.
        let odd = [
            ("host", "a.test"),
            ("x-forwarded-host", "10.0.0.1"),
            ("x-forwarded-for", "192.0.2.7, x"),
        ];
        assert_eq!(
            from("10.0.0.2", &odd).unwrap().client.to_string(),
            "10.0.0.2"
        );
        assert_eq!(
            from("10.0.0.2", &[("host", "DASH.test.")]).unwrap().host,
            "DASH.test."
        );
    }

    /// One test per row: the result for these `Host` fields.
    macro_rules! hosts {
        ($($name:ident: $hosts:expr => $judged:expr;)*) => {$(
            #[test]
            fn $name() {
                for hosts in $hosts {
                    assert_eq!(named("/metrics", &hosts), $judged, "{hosts:?}");
                }
            }
        )*};
    }

    // Ours, against DNS rebinding; RFC 9110, section 7.2; RFC 9112, section 3.2.
    hosts! {
        addresses_are_ours: [["127.0.0.1:3129"], ["10.0.0.1"], ["[::1]:3129"], ["[::1]"], ["[::ffff:10.0.0.1]:1"]] => Ok(());
        localhost_is_ours: [["localhost"], ["localhost:3129"], ["LOCALHOST:3129"], ["localhost."]] => Ok(());
        other_names_are_foreign: [["evil.test"], ["evil.test:3129"], ["localhost.evil.test"], ["1.evil.test"]] => Err(HostError::Foreign);
        text_that_only_begins_like_an_address_is_malformed: [["[evil.test"], ["[evil.test]"], ["[::1"], ["[::1]evil.test"], ["[::1]:80.evil.test"], ["[]"]] => Err(HostError::Malformed);
        ambiguous_address_notations_are_malformed: [["127.1"], ["0x7f.1"], ["2130706433"], ["127.0.0.01"]] => Err(HostError::Malformed);
        invalid_hosts_are_malformed: [[""], [":80"], ["::1"], ["localhost:x"], ["localhost:0"], ["a@localhost"], ["localhost, localhost"], ["localhost/"]] => Err(HostError::Malformed);
        two_hosts_are_malformed: [["localhost", "localhost"], ["localhost", "evil.test"]] => Err(HostError::Malformed);
        a_missing_host_is_malformed: [[""; 0]] => Err(HostError::Malformed);
    }

    // RFC 9112, section 3.2.2.
    #[test]
    fn an_absolute_target_counts_as_well() {
        let of = |target: &str| named(target, &["localhost"]);
        assert_eq!(of("http://127.0.0.1:3129/metrics"), Ok(()));
        assert_eq!(of("http://evil.test/metrics"), Err(HostError::Foreign));
        assert_eq!(
            of("http://admin:x@localhost/metrics"),
            Err(HostError::Malformed)
        );
        assert_eq!(
            named("http://localhost/metrics", &["evil.test"]),
            Err(HostError::Foreign)
        );
    }
}
