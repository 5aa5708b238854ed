//! Origins and URLs in the normal form that is used to compare, store and send them.
//!
//! RFC 9110, section 4.3.1; RFC 9309, section 2.3. Does not know how servers read a path
//! (`reading`), or the addresses of an origin (`egress`).

use std::fmt;
use std::hash::{BuildHasher as _, Hash, Hasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;
use std::str::FromStr;
use std::sync::{Arc, LazyLock};

use memchr::{memchr, memchr3};
use thiserror::Error;

/// Maximum length of a host name in DNS, in bytes (RFC 1035, section 2.3.4).
const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// Scheme of a URL that a crawler may request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// `http`, port 80 unless another is given.
    Http,
    /// `https`, port 443 unless another is given.
    Https,
}

impl Scheme {
    /// Returns the scheme as written in a URL.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// Returns the port of a URL that names none.
    pub fn default_port(self) -> NonZeroU16 {
        const HTTP: NonZeroU16 = NonZeroU16::new(80).unwrap();
        const HTTPS: NonZeroU16 = NonZeroU16::new(443).unwrap();
        match self {
            Self::Http => HTTP,
            Self::Https => HTTPS,
        }
    }
}

impl FromStr for Scheme {
    type Err = InvalidTarget;

    fn from_str(text: &str) -> Result<Self, InvalidTarget> {
        if text.eq_ignore_ascii_case("http") {
            Ok(Self::Http)
        } else if text.eq_ignore_ascii_case("https") {
            Ok(Self::Https)
        } else {
            Err(InvalidTarget::Scheme)
        }
    }
}

/// Reason why a text is not a URL that can be requested.
///
/// The answer is 400 in each case: a guess could apply the rules of one origin to the
/// pages of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum InvalidTarget {
    /// Neither `http` nor `https`.
    #[error("only http and https URLs can be asked for")]
    Scheme,
    /// User information before an `@` (RFC 9110, section 4.2.4).
    #[error("a URL with user information is refused")]
    UserInformation,
    /// The host is neither a name of letters, digits, `-` and `_` nor an address.
    #[error("the host is neither a name nor an IP address")]
    Host,
    /// The port is not a number from 1 to 65535.
    #[error("the port is not a number from 1 to 65535")]
    Port,
    /// The path does not begin with `/`, or contains a control character.
    #[error("the path does not begin with a slash, or holds a control character")]
    Path,
}

/// Host of an origin, in normal form.
///
/// Names are in lower case, without a final dot. An IPv4-mapped IPv6 address becomes the
/// IPv4 address. Numbers in any other form (`0177.1`, `0x7f.1`) are rejected, because
/// resolvers disagree on their meaning.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Host {
    /// A registered name, in A-labels. In an `Arc`, because each request copies it
    /// several times.
    Name(Arc<str>),
    /// An IP address.
    Address(IpAddr),
}

impl Host {
    /// Returns the name in a pattern such as `*.site.example`, which matches every
    /// subdomain of that name; `None` if `text` has no such prefix.
    ///
    /// # Errors
    ///
    /// [`InvalidTarget`] if no name follows the `*.`.
    pub fn below(text: &str) -> Result<Option<Arc<str>>, InvalidTarget> {
        let Some(name) = text.strip_prefix("*.") else {
            return Ok(None);
        };
        match name.parse()? {
            Self::Name(name) => Ok(Some(name)),
            Self::Address(_) => Err(InvalidTarget::Host),
        }
    }

    /// Reports whether this is a subdomain of `name`. A name is not its own subdomain.
    pub fn is_below(&self, name: &str) -> bool {
        match self {
            Self::Name(host) => host
                .strip_suffix(name)
                // The dot keeps `evil-site.example` from being below `site.example`.
                .is_some_and(|rest| rest.ends_with('.')),
            Self::Address(_) => false,
        }
    }
}

impl FromStr for Host {
    type Err = InvalidTarget;

    fn from_str(text: &str) -> Result<Self, InvalidTarget> {
        if let Some(inner) = text.strip_prefix('[') {
            let inner = inner.strip_suffix(']').ok_or(InvalidTarget::Host)?;
            let address: Ipv6Addr = inner.parse().map_err(|_| InvalidTarget::Host)?;
            return Ok(Self::Address(IpAddr::V6(address).to_canonical()));
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        let last = name.rsplit('.').next().unwrap_or_default();
        if is_numeric(last) {
            let address: Ipv4Addr = name.parse().map_err(|_| InvalidTarget::Host)?;
            return Ok(Self::Address(address.into()));
        }
        if name.len() > NAME_BYTES_MAX || !name.split('.').all(is_label) {
            return Err(InvalidTarget::Host);
        }
        let has_capitals = name.bytes().any(|byte| byte.is_ascii_uppercase());
        Ok(Self::Name(if has_capitals {
            name.to_ascii_lowercase().into()
        } else {
            name.into()
        }))
    }
}

/// Reports whether this last label makes resolvers read the whole host as an IPv4 address
/// (URL Standard, "ends in a number").
fn is_numeric(label: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let hexadecimal = label
        .get(..2)
        .filter(|prefix| prefix.eq_ignore_ascii_case("0x"))
        .is_some_and(|_| label[2..].bytes().all(|byte| byte.is_ascii_hexdigit()));
    digits(label) || hexadecimal
}

fn is_label(label: &str) -> bool {
    (1..=LABEL_BYTES_MAX).contains(&label.len())
        && label
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(IpAddr::V4(address)) => address.fmt(f),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

/// Scheme, host and port: the unit that has one robots.txt (RFC 9309, section 2.3).
///
/// Stores its hash, because each request looks it up in several tables.
#[derive(Clone, PartialEq, Eq)]
pub struct Origin {
    hash: u64,
    scheme: Scheme,
    host: Host,
    port: NonZeroU16,
}

impl Hash for Origin {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// Returns a hash for a value to store. The hash keys are random and fixed for the process:
/// names come from untrusted pages, whose authors must not be able to construct names with
/// equal hashes.
pub(crate) fn carried_hash(value: impl Hash) -> u64 {
    static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    KEYS.hash_one(value)
}

impl Origin {
    /// Creates the origin with `scheme` at `authority`, a host with or without a port.
    ///
    /// # Errors
    ///
    /// [`InvalidTarget`] for user information, a bad host or a bad port.
    pub fn new(scheme: Scheme, authority: &str) -> Result<Self, InvalidTarget> {
        if authority.contains('@') {
            return Err(InvalidTarget::UserInformation);
        }
        let (host, port) = split_port(authority);
        let port = match port {
            None | Some("") => scheme.default_port(),
            Some(digits) => parse_port(digits)?,
        };
        let host = host.parse()?;
        Ok(Self {
            hash: carried_hash((scheme, &host, port)),
            scheme,
            host,
            port,
        })
    }

    /// Returns the scheme.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Returns the host, in normal form.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Returns the port, explicit or default.
    pub fn port(&self) -> NonZeroU16 {
        self.port
    }

    /// Returns the value of the `Host` field for this origin, which omits a default port
    /// (RFC 9110, section 7.2).
    pub fn authority(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write_authority(&mut text);
        text
    }

    /// Reports whether `text` equals the result of [`Origin::authority`], without
    /// allocating it.
    pub fn is_authority(&self, text: &[u8]) -> bool {
        let mut rest = Unwritten(text);
        self.write_authority(&mut rest).is_ok() && rest.0.is_empty()
    }

    fn write_authority(&self, out: &mut impl fmt::Write) -> fmt::Result {
        write!(out, "{}", self.host)?;
        if self.port != self.scheme.default_port() {
            write!(out, ":{}", self.port)?;
        }
        Ok(())
    }

    /// Returns the URL of the robots.txt of this origin (RFC 9309, section 2.3).
    pub fn robots_txt(&self) -> Target {
        Target {
            origin: self.clone(),
            path_and_query: ROBOTS_TXT.into(),
        }
    }
}

/// Writer that compares its input with an expected text. Holds the part that has not been
/// written yet.
struct Unwritten<'a>(&'a [u8]);

impl fmt::Write for Unwritten<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 = self.0.strip_prefix(text.as_bytes()).ok_or(fmt::Error)?;
        Ok(())
    }
}

/// Path of robots.txt, "all lowercase" (RFC 9309, section 2.3).
pub const ROBOTS_TXT: &str = "/robots.txt";

/// Splits `host:port`. The colons of an IPv6 literal belong to the host.
fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    }
}

fn parse_port(digits: &str) -> Result<NonZeroU16, InvalidTarget> {
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(InvalidTarget::Port);
    }
    digits.parse().map_err(|_| InvalidTarget::Port)
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Omits the hash, which could reveal something about its keys.
        write!(f, "Origin({self})")
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme.as_str())?;
        self.write_authority(f)
    }
}

/// URL at an origin. Path and query are exactly the bytes received, because the request
/// to the origin sends them unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    /// Origin of the page.
    pub origin: Origin,
    path_and_query: Box<str>,
}

impl Target {
    /// Creates the URL at `path_and_query` of `origin`. An empty path becomes `/`.
    ///
    /// # Errors
    ///
    /// [`InvalidTarget::Path`] if `path_and_query` is not empty and begins with neither `/`
    /// nor `?`, or if it contains a control character or a space.
    pub fn new(origin: Origin, path_and_query: &str) -> Result<Self, InvalidTarget> {
        if path_and_query
            .bytes()
            .any(|byte| byte < 0x21 || byte == 0x7f)
        {
            return Err(InvalidTarget::Path);
        }
        let path_and_query = match path_and_query.as_bytes().first() {
            Some(b'/') => path_and_query.into(),
            None | Some(b'?') => format!("/{path_and_query}").into(),
            Some(_) => return Err(InvalidTarget::Path),
        };
        Ok(Self {
            origin,
            path_and_query,
        })
    }

    /// Returns path and query, as received.
    pub fn path_and_query(&self) -> &str {
        &self.path_and_query
    }
}

impl FromStr for Target {
    type Err = InvalidTarget;

    /// Parses an absolute URL. Drops the fragment, which requests never contain.
    fn from_str(url: &str) -> Result<Self, InvalidTarget> {
        let url = url.split('#').next().unwrap_or_default();
        let (scheme, rest) = url.split_once("://").ok_or(InvalidTarget::Scheme)?;
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let origin = Origin::new(scheme.parse()?, &rest[..end])?;
        Self::new(origin, &rest[end..])
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin, self.path_and_query)
    }
}

/// Returns the path and query of a URL, byte for byte: the part that rules are compared
/// with (RFC 9309, section 2.2.2). A text without an authority counts as the path itself.
///
/// Does not validate the URL. To send a request, use [`Target`], which does.
#[must_use]
pub fn path_of(url: &str) -> &str {
    let rest = match authority(url) {
        Some(authority) => {
            let path = memchr3(b'/', b'?', b'#', authority.as_bytes());
            path.and_then(|path| authority.get(path..))
                .unwrap_or_default()
        }
        None => url,
    };
    let fragment = memchr(b'#', rest.as_bytes());
    fragment.and_then(|end| rest.get(..end)).unwrap_or(rest)
}

/// Returns the text after the scheme and its two slashes, if there is a scheme.
fn authority(url: &str) -> Option<&str> {
    // Fast path: nearly all URLs have one of these two schemes.
    let rest = url.strip_prefix("http").and_then(|rest| {
        let rest = rest.strip_prefix('s').unwrap_or(rest);
        rest.strip_prefix("://")
    });
    rest.or_else(|| {
        let (scheme, rest) = url.split_once("://")?;
        let is_scheme = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
        scheme.bytes().all(is_scheme).then_some(rest)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Result<String, InvalidTarget> {
        text.parse::<Target>().map(|target| target.to_string())
    }

    // RFC 9110, section 4.2.3: all of these denote one origin.
    #[test]
    fn spellings_of_one_origin_are_equal() {
        for text in [
            "http://h.test/a",
            "HTTP://H.TEST/a",
            "http://h.test./a",
            "http://h.test:80/a",
            "http://h.test:/a",
            "http://h.test/a#f",
        ] {
            assert_eq!(url(text).unwrap(), "http://h.test/a", "{text}");
        }
    }

    // Ours: a lookup in a table does not hash the name again.
    #[test]
    fn an_origin_hashes_by_its_stored_hash() {
        struct HashedBytes(Vec<u8>);
        impl Hasher for HashedBytes {
            fn write(&mut self, bytes: &[u8]) {
                self.0.extend(bytes);
            }
            fn finish(&self) -> u64 {
                0
            }
        }
        let hashed = |authority: &str| {
            let mut bytes = HashedBytes(Vec::new());
            let origin = Origin::new(Scheme::Https, authority).unwrap();
            origin.hash(&mut bytes);
            bytes.0
        };
        assert_eq!(hashed("h.test").len(), 8);
        assert_eq!(hashed("h.test"), hashed("H.test.:443"));
        assert_ne!(hashed("h.test"), hashed("h.test:444"));
    }

    // RFC 9309, section 2.3: another port or scheme has another robots.txt.
    #[test]
    fn port_and_scheme_are_part_of_an_origin() {
        assert_eq!(url("https://h.test:80/").unwrap(), "https://h.test:80/");
        assert_eq!(url("http://h.test:8080").unwrap(), "http://h.test:8080/");
    }

    // RFC 9110, section 4.2.3: an empty path is `/`.
    #[test]
    fn an_empty_path_is_a_slash() {
        assert_eq!(url("http://h.test?q").unwrap(), "http://h.test/?q");
    }

    // RFC 9110, section 4.2.4; ours for the rest.
    #[test]
    fn an_ambiguous_or_invalid_url_is_refused() {
        for text in [
            "http://u:p@h.test/",
            "http://h@evil.test/",
            "http://h.test\\@evil.test/",
            "http://0177.1/",
            "http://0x7f.1/",
            "http://2130706433/",
            "http://1.2.3/",
            "http://h%6f.test/",
            "http://é.test/",
            "http://a..test/",
            "http://.test/",
            "http:///a",
            "http://[::1%25lo]/",
            "http://h.test:0/",
            "http://h.test:65536/",
            "http://h.test:+1/",
            "ftp://h.test/",
            "h.test/a",
            "http://h.test/a b",
        ] {
            assert!(url(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_ipv4_mapped_address_becomes_the_ipv4_address() {
        assert_eq!(url("http://[::ffff:1.2.3.4]/").unwrap(), "http://1.2.3.4/");
        assert_eq!(url("http://[::1]:81/").unwrap(), "http://[::1]:81/");
    }

    // RFC 1035, section 2.3.4.
    #[test]
    fn labels_and_names_have_a_maximum_length() {
        let label = "a".repeat(63);
        assert!(url(&format!("http://{label}.test/")).is_ok());
        assert!(url(&format!("http://{label}a.test/")).is_err());
        assert!(url(&format!("http://{label}.{label}.{label}.{label}/")).is_err());
    }

    // Ours.
    #[test]
    fn only_the_exact_text_of_an_authority_is_recognised() {
        for (origin, text, expected) in [
            ("http://a.test/", "a.test", true),
            ("http://a.test/", "A.test", false),
            ("http://a.test/", "a.test:80", false),
            ("http://a.test/", "a.tes", false),
            ("http://a.test:8080/", "a.test:8080", true),
            ("http://a.test:8080/", "a.test", false),
            ("https://[::1]/", "[::1]", true),
        ] {
            let origin = origin.parse::<Target>().unwrap().origin;
            assert_eq!(origin.is_authority(text.as_bytes()), expected, "{text}");
        }
    }

    // RFC 3986, section 3.
    #[test]
    fn the_path_follows_the_authority() {
        for (url, path) in [
            ("https://h.test/a/b?c=d#e", "/a/b?c=d"),
            ("https://h.test:8443/", "/"),
            ("https://h.test", ""),
            ("https://h.test?q", "?q"),
            ("https://h.test#f", ""),
            ("ftp+x://h.test/a", "/a"),
            ("/a?u=http://x/#y", "/a?u=http://x/"),
            ("", ""),
            ("https://[::1]/a", "/a"),
        ] {
            assert_eq!(path_of(url), path, "{url}");
        }
    }
}
