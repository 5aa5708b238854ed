//! Kinds of keys that name addresses, networks, hosts, ports, fields and files.
//!
//! Does not know which of them are dialled or opened.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr as _;

use http::HeaderName;
use ipnet::IpNet;
use toml::Spanned;
use toml::de::DeValue;

use super::kinds::{Kind, List, OneOrMore, Text, all_or_faults};
use super::problem::{Fault, ValuePart};
use super::values::name_text;
use politesse_archive::address::{ArchiveAddress, InvalidArchiveAddress};
use politesse_base::tls::Roots;
use politesse_fleet::options::{StoreAddress, is_name};
use politesse_net::egress::{Allow, Deny, EgressPorts, Resolve};
use politesse_net::parent::Parent;
use politesse_proxy::server::ListenAddress;
use politesse_record::SealTarget;
use politesse_robots::origin::Host;
use politesse_robots_cache::options::UserAgent;

/// An address to listen on.
pub(super) const LISTEN: Text<SocketAddr> = Text {
    wanted: "an address with a port, such as \"127.0.0.1:3128\" or \"[::1]:3128\"",
    parse: |text| text.parse().ok(),
};

/// An address that clients connect to, and its scheme.
const LISTENER: Text<ListenAddress> = Text {
    wanted: "an address with a port, such as \"127.0.0.1:3128\" or \"[::1]:3128\", with \
             https:// before it for TLS",
    parse: |text| {
        let (scheme, address) = text.split_once("://").unwrap_or(("http", text));
        Some(ListenAddress {
            scheme: scheme.parse().ok()?,
            address: address.parse().ok()?,
        })
    },
};

/// Addresses that clients connect to.
pub(super) const LISTENERS: OneOrMore<Text<ListenAddress>> = OneOrMore(List {
    of: LISTENER,
    len: 1..=64,
});

/// Networks that may connect. One word can mean several networks.
pub(super) const CLIENTS: Text<Vec<IpNet>> = Text {
    wanted: "an address, a network such as \"10.0.0.0/8\", \"loopback\" or \"private\"",
    parse: |text| match text {
        "loopback" => LOOPBACK.into_iter().map(network).collect(),
        "private" => PRIVATE.into_iter().map(network).collect(),
        _ => network(text).map(|network| vec![network]),
    },
};

/// Contact for people who ask about a refusal, or `none`.
pub(super) const CONTACT: Text<Option<String>> = Text {
    wanted: "\"none\", or a line of 1 to 200 characters, such as \"crawl@site.example\"",
    parse: |text| {
        let right = (1..=200).contains(&text.chars().count()) && !text.contains(char::is_control);
        right.then(|| (text != "none").then(|| text.to_owned()))
    },
};

/// Person or organisation that runs the proxy.
pub(super) const OPERATOR: Text<Option<String>> = Text {
    wanted: "\"none\", or a line of 1 to 200 characters, such as \"Example Library, Berlin\"",
    parse: CONTACT.parse,
};

/// Host name under which the proxy serves its own pages; empty for none.
pub(super) const INTERNAL_NAME: Text<Option<Host>> = Text {
    wanted: "\"\", or a host name such as \"politesse.internal\"",
    parse: |text| match text {
        "" => Some(None),
        // `localhost` also reaches other programs on this machine.
        _ => host_name(text)
            .filter(|name| name != "localhost")
            .and_then(|name| name.parse().ok())
            .map(Some),
    },
};

/// Address range that must not be dialled.
pub(super) const DENY: Text<Deny> = Text {
    wanted: "\"default\", an address, or a network such as \"203.0.113.0/24\"",
    parse: |text| match text {
        "default" => Some(Deny::Default),
        _ => network(text).map(Deny::Net),
    },
};

/// Address range or host that may be dialled although it is denied.
pub(super) const ALLOW: Text<Allow> = Text {
    wanted: "an address, a network such as \"10.1.0.0/16\", or a host name",
    parse: |text| {
        network(text)
            .map(Allow::Net)
            .or_else(|| host_name(text).map(Allow::Name))
    },
};

/// Ports that may be dialled: one port as a number, or a string with a port, a range or
/// `default`.
pub(super) struct PortRange;

impl Kind for PortRange {
    type Value = EgressPorts;

    fn wanted(&self) -> String {
        "\"default\", a port such as 8080, or a range such as \"9000-9100\"".to_owned()
    }

    fn parse(&self, value: &DeValue<'_>) -> Option<EgressPorts> {
        let number = value
            .as_integer()
            .and_then(|number| u16::from_str_radix(number.as_str(), number.radix()).ok())
            // Port 0 is reserved (RFC 6335, section 6) and cannot be dialled.
            .filter(|&port| 0 < port)
            .map(|port| EgressPorts::Range(port..=port));
        number.or_else(|| port_range(value.as_str()?))
    }
}

/// Reads `default`, `8080` or `9000-9100`.
fn port_range(text: &str) -> Option<EgressPorts> {
    if text == "default" {
        return Some(EgressPorts::Default);
    }
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (port(first)?, port(last)?);
    (first <= last).then_some(EgressPorts::Range(first..=last))
}

/// A name that is valid in `Via` (RFC 9110, sections 5.6.2 and 7.6.3).
pub(super) const TOKEN: Text<String> = Text {
    wanted: "a token: letters, digits and !#$%&'*+-.^_`|~, at most 64",
    parse: |text| {
        let in_token =
            |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        // The name is added to each request and response, so it must be short.
        let right = (1..=64).contains(&text.len()) && text.bytes().all(in_token);
        right.then(|| text.to_owned())
    },
};

/// Name of the response field in which the proxy states the directives in force (RFC
/// 9110, section 5.1).
pub(super) const FIELD_NAME: Text<HeaderName> = Text {
    wanted: "a field name that no origin uses, such as \"Robots-Directives\"",
    parse: |text| {
        let name = HeaderName::from_bytes(text.as_bytes()).ok();
        // The proxy removes this field from origins' responses, because a crawler could
        // mistake it for the proxy's own. Fields that crawlers need must not be lost
        // that way.
        name.filter(|name| !is_in_use(name.as_str()))
    },
};

/// Reports whether a field already has a meaning, for this proxy or for crawlers.
fn is_in_use(name: &str) -> bool {
    const BEGINNINGS: [&str; 4] = ["content-", "proxy-", "access-control-", "sec-"];
    const NAMES: [&str; 31] = [
        "accept-ranges",
        "age",
        "allow",
        "alt-svc",
        "cache-control",
        "connection",
        "date",
        "etag",
        "expires",
        "host",
        "keep-alive",
        "last-modified",
        "link",
        "location",
        "pragma",
        "refresh",
        "retry-after",
        "robots-tag",
        "server",
        "set-cookie",
        "strict-transport-security",
        "tdm-policy",
        "tdm-reservation",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "vary",
        "via",
        "www-authenticate",
        "x-robots-tag",
    ];
    NAMES.contains(&name) || BEGINNINGS.iter().any(|start| name.starts_with(start))
}

/// `User-Agent` of the proxy's own fetches of robots.txt (RFC 9110, section
/// 10.1.5).
pub(super) const USER_AGENT: Text<UserAgent> = Text {
    wanted: "\"crawler\", or a User-Agent of printable ASCII, at most 512 bytes",
    parse: |text| {
        let printable = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
        let right =
            (1..=512).contains(&text.len()) && text.trim() == text && text.bytes().all(printable);
        right.then(|| match text {
            "crawler" => UserAgent::Crawler,
            _ => UserAgent::Fixed(text.to_owned()),
        })
    },
};

/// Source of the root certificates that the proxy verifies origins with.
pub(super) const ROOTS: Text<Roots> = Text {
    wanted: "\"system\", \"webpki\", or the path of a PEM file, without ~",
    parse: |text| match text {
        "system" => Some(Roots::System),
        "webpki" => Some(Roots::Webpki),
        _ => path(text).map(Roots::File),
    },
};

/// Parent proxy to send requests through, or `none`.
pub(super) const PARENT: Text<Option<Parent>> = Text {
    wanted: "\"none\", or a proxy spoken to in the clear, such as \"http://proxy.example:3128\"",
    parse: |text| match text {
        "none" => Some(None),
        _ => text.parse().ok().map(Some),
    },
};

/// Path of a file, or `none`.
pub(super) const PATH_OR_NONE: Text<Option<PathBuf>> = Text {
    wanted: "\"none\" or a path without ~",
    parse: |text| match text {
        "none" => Some(None),
        _ => path(text).map(Some),
    },
};

/// First path segments that the admin listener uses itself.
const OWN_SEGMENTS: [&str; 21] = [
    "api",
    "assets",
    "ca.pem",
    "client",
    "client.css",
    "configuration",
    "crawlers",
    "decisions",
    "fleet",
    "healthz",
    "hosts",
    "login",
    "logout",
    "metrics",
    "proxy.pac",
    "queues",
    "readyz",
    "reports",
    "test",
    "theme",
    "zone",
];

/// Path of the pages when served through a reverse proxy; stored without its last
/// slash.
pub(super) const BASE_PATH: Text<String> = Text {
    wanted: "\"/\", or a path of letters, digits and -._~ such as \"/politesse\", but not one \
             of the pages' own such as \"/api\"",
    parse: |text| {
        let is_plain =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
        let path = text.strip_suffix('/').unwrap_or(text);
        // Browsers remove segments that consist of dots.
        let is_segment =
            |segment: &str| !matches!(segment, "" | "." | "..") && segment.bytes().all(is_plain);
        let is_path = text.starts_with('/') && path.split('/').skip(1).all(is_segment);
        // Some proxies strip the base path. If it were one of these, the start of a page's
        // own path could be mistaken for it.
        let first = path.split('/').nth(1).unwrap_or_default();
        let is_own = OWN_SEGMENTS.contains(&first);
        (is_path && !is_own).then(|| path.to_owned())
    },
};

/// Name of the admin listener, in lower case.
pub(super) const ADMIN_HOST: Text<String> = Text {
    wanted: "the name of a host, such as \"politesse.site.example\"",
    parse: |text| match text.parse().ok()? {
        Host::Name(name) => Some(name.to_string()),
        Host::Address(_) => None,
    },
};

/// Target for the export of heads.
pub(super) const SEAL_TARGET: Text<SealTarget> = Text {
    wanted: "a path without ~, \"exec:\" and a command, or a URL",
    parse: |text| {
        if let Some(command) = text.strip_prefix("exec:") {
            let is_command = !command.trim().is_empty() && !command.contains('\0');
            return is_command.then(|| SealTarget::Command(command.to_owned()));
        }
        match text.contains("://") {
            true => text.parse().ok().map(SealTarget::Url),
            false => path(text).map(SealTarget::File),
        }
    },
};

/// Path of a file.
pub(super) const PATH: Text<PathBuf> = Text {
    wanted: "a path without ~",
    parse: path,
};

/// Store of the record. The value is the path of its file.
pub(super) const STORE: Text<PathBuf> = Text {
    wanted: "\"sqlite:\" and a path without ~",
    parse: |text| text.strip_prefix("sqlite:").and_then(path),
};

/// Address of the store of a fleet.
pub(super) const FLEET_STORE: Text<StoreAddress> = Text {
    wanted: "an address such as \"redis://store.example:6379\", or rediss:// for TLS, without a password (that is for fleet.store_auth)",
    parse: |text| text.parse().ok(),
};

/// Address of the archive, or `none`.
pub(super) struct ArchiveOrNone;

impl Kind for ArchiveOrNone {
    type Value = Option<ArchiveAddress>;

    fn wanted(&self) -> String {
        format!("\"none\", or {}", InvalidArchiveAddress::Malformed.wanted())
    }

    fn read(&self, written: &Spanned<DeValue<'_>>) -> Result<Self::Value, Vec<Fault>> {
        let wanted = match written.get_ref().as_str().map(ArchiveAddress::from_str) {
            _ if written.get_ref().as_str() == Some("none") => return Ok(None),
            Some(Ok(address)) => return Ok(Some(address)),
            Some(Err(InvalidArchiveAddress::Malformed)) | None => self.wanted(),
            Some(Err(error)) => error.wanted(),
        };
        Err(vec![Fault::whole(written, wanted)])
    }
}

/// Name of a fleet, or of a node in it.
pub(super) const FLEET_NAME: Text<String> = Text {
    wanted: "1 to 64 letters, digits and -._",
    parse: |text| is_name(text).then(|| text.to_owned()),
};

/// Reads a path that can name a file.
///
/// Only a shell expands `~` to the user's folder. Here it would name a folder called
/// `~` and hide the record in it; `./~` still names such a folder.
fn path(text: &str) -> Option<PathBuf> {
    let needs_a_shell = text.starts_with('~');
    (!text.is_empty() && !text.contains('\0') && !needs_a_shell).then(|| text.into())
}

/// This machine's own addresses (RFC 1122, section 3.2.1.3; RFC 4291, section 2.5.3).
const LOOPBACK: [&str; 2] = ["127.0.0.0/8", "::1/128"];

/// Addresses of private networks (RFC 1918, section 3; RFC 4193, section 3.1).
const PRIVATE: [&str; 4] = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"];

/// Reads a network in CIDR form, or one address.
///
/// Rejects `10.1.2.3/8`: it may mean one address or sixteen million, and access must
/// not depend on a guess.
pub(super) fn network(text: &str) -> Option<IpNet> {
    let single = || text.parse::<IpAddr>().ok().map(IpNet::from);
    let network = text.parse::<IpNet>().ok().or_else(single)?;
    (network == network.trunc()).then_some(network)
}

/// Reads a port from 1 to 65535.
fn port(text: &str) -> Option<u16> {
    // The standard library also accepts `+80` as a number.
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|&port| digits && 0 < port)
}

/// Reads a host name; returns it in lower case and without the final dot (RFC 1123,
/// section 2.1, plus the underscore, which is in common use).
///
/// Rejects a last label of digits alone, because that would be an address.
fn host_name(text: &str) -> Option<String> {
    let name = text.strip_suffix('.').unwrap_or(text);
    let in_label = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(in_label)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let last = name.rsplit('.').next().unwrap_or(name);
    let numeric = last.bytes().all(|byte| byte.is_ascii_digit());
    let right = name.len() <= 253 && name.split('.').all(is_label) && !numeric;
    right.then(|| name.to_ascii_lowercase())
}

/// A table of names, each with the address to dial instead.
pub(super) struct ResolveTable;

impl ResolveTable {
    /// Maximum number of entries. It is high because programs may write the table, and
    /// lookups do not slow down as it grows.
    const LEN: usize = 1_000_000;
}

impl Kind for ResolveTable {
    type Value = Vec<Resolve>;

    fn wanted(&self) -> String {
        format!(
            "a table of 0 to {} names, \"name\" or \"name:port\" = \"address\" or \"address:port\"",
            Self::LEN
        )
    }

    fn read(&self, written: &Spanned<DeValue<'_>>) -> Result<Self::Value, Vec<Fault>> {
        let table = written.get_ref().as_table();
        let Some(table) = table.filter(|table| table.len() <= Self::LEN) else {
            return Err(vec![Fault::whole(written, self.wanted())]);
        };
        let mut seen = BTreeSet::new();
        let entries = table.iter().map(|(name, target)| {
            let entry = resolve(name.get_ref(), target.get_ref()).and_then(|entry| {
                // Of two entries for the same name, one would never be used.
                let is_new = seen.insert((entry.name.clone(), entry.port));
                is_new
                    .then_some(entry)
                    .ok_or("each name once, in any case,")
            });
            entry.map_err(|wanted| {
                let part = ValuePart::Name(name_text(name.get_ref()));
                vec![Fault::whole(target, wanted.to_owned()).within(part)]
            })
        });
        all_or_faults(entries)
    }
}

/// Reads an entry of the table: `name` on the left of `=`, `target` on the right.
///
/// # Errors
///
/// A description of the valid values.
fn resolve(name: &str, target: &DeValue<'_>) -> Result<Resolve, &'static str> {
    let (host, port) = name_and_port(name).ok_or("\"name\" or \"name:port\" on the left of it")?;
    let address = target.as_str().and_then(address_and_port);
    let (address, to_port) = address.ok_or("an address, with or without a port,")?;
    Ok(Resolve {
        name: host,
        port,
        address,
        to_port,
    })
}

/// Reads `site.example` or `site.example:443`.
fn name_and_port(text: &str) -> Option<(String, Option<u16>)> {
    match text.rsplit_once(':') {
        Some((name, after)) => Some((host_name(name)?, Some(port(after)?))),
        None => Some((host_name(text)?, None)),
    }
}

/// Reads `127.0.0.1`, `127.0.0.1:8443`, `::1`, `[::1]` or `[::1]:8443`.
fn address_and_port(text: &str) -> Option<(IpAddr, Option<u16>)> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return (address.port() != 0).then_some((address.ip(), Some(address.port())));
    }
    let in_brackets = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let address = match in_brackets {
        Some(inner) => inner.parse().ok().map(IpAddr::V6)?,
        None => text.parse().ok()?,
    };
    Some((address, None))
}
