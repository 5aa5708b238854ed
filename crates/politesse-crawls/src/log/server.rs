//! Common and Combined Log Format.
//!
//! `client ident user [time] "request line" status bytes "referer" "agent"`, with a
//! virtual host before the client in Apache's `vhost_combined`. Does not know the site of
//! a line without a host.

use jiff::Timestamp;

use super::entry::{CrawlLogEntry, LoggedAgent, LoggedRequest, LoggedUrl, status};
use crate::text_of;

/// Format of Apache's times: `10/Oct/2000:13:55:36 -0700`.
const TIME_FORMAT: &str = "%d/%b/%Y:%H:%M:%S %z";

/// Parses a line.
pub(super) fn entry(line: &str) -> CrawlLogEntry {
    match request(line) {
        None => CrawlLogEntry::Malformed,
        // The request line of a client that does not speak HTTP may contain anything.
        Some(None) => CrawlLogEntry::Other,
        Some(Some(request)) => CrawlLogEntry::Request(request),
    }
}

/// Parses the request of a line. `None` if the line has another format, `Some(None)` if
/// it contains no request.
fn request(line: &str) -> Option<Option<LoggedRequest>> {
    // The names before the time contain no bracket: a bracket in a user name is escaped.
    let (names, rest) = line.split_once(" [")?;
    let (time, rest) = rest.split_once("] \"")?;
    let at = Timestamp::strptime(TIME_FORMAT, time).ok()?;
    let request_line = Quoted::read(rest)?;
    let mut words = request_line.rest.split(' ').filter(|word| !word.is_empty());
    let status = words.next().and_then(status)?;
    let mut quoted = request_line.rest.split_once(" \"").map(|(_, rest)| rest);
    // The first quoted text is the referrer.
    let agent = quoted
        .take()
        .and_then(Quoted::read)
        .and_then(|referer| Quoted::read(referer.rest.trim_start().strip_prefix('"')?));
    let Some(url) = url(&request_line.text, virtual_host(names)) else {
        return Some(None);
    };
    Some(Some(LoggedRequest {
        url,
        at: Some(at),
        status: Some(status),
        user_agent: match agent {
            None => LoggedAgent::Untold,
            Some(agent) if matches!(agent.text.as_str(), "" | "-") => LoggedAgent::Silent,
            Some(agent) => LoggedAgent::Named(agent.text),
        },
    }))
}

/// Returns the virtual host, such as `site.example:443`, if the line begins with one.
fn virtual_host(names: &str) -> Option<&str> {
    let mut words = names.split(' ');
    let (host, after) = (words.next()?, words.count());
    // Client, identity and user are three words; a fourth one before them is the host.
    (after == 3 && host.rsplit_once(':').is_some()).then_some(host)
}

/// Returns the URL of a request line; `None` if the line is not HTTP.
fn url(request_line: &str, host: Option<&str>) -> Option<LoggedUrl> {
    let (method, rest) = request_line.split_once(' ')?;
    if method.is_empty() || !method.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return None;
    }
    // HTTP/0.9 has no version. Some clients send spaces in a path; they are part of it.
    let target = match rest.rsplit_once(' ') {
        Some((target, version)) if version.starts_with("HTTP/") => target,
        _ => rest,
    };
    if method == "CONNECT" {
        return Some(LoggedUrl::Tunnel(target.to_owned()));
    }
    if target.contains("://") && !target.starts_with('/') {
        return Some(LoggedUrl::Whole(target.to_owned()));
    }
    if !target.starts_with('/') {
        return None;
    }
    Some(match host.and_then(|host| host.rsplit_once(':')) {
        None => LoggedUrl::Path(target.to_owned()),
        Some((name, "443")) => LoggedUrl::Whole(format!("https://{name}{target}")),
        Some((name, port)) => LoggedUrl::Whole(format!("http://{name}:{port}{target}")),
    })
}

/// Text in quotation marks, and the rest of the line.
struct Quoted<'a> {
    text: String,
    rest: &'a str,
}

impl<'a> Quoted<'a> {
    /// Reads up to the closing quotation mark; `line` begins after the opening one.
    /// Apache escapes bytes as `\"`, `\\` and `\xhh`, nginx as `\xHH`.
    fn read(line: &'a str) -> Option<Self> {
        let mut bytes = Vec::new();
        let mut at = 0;
        let all = line.as_bytes();
        loop {
            match *all.get(at)? {
                b'"' => break,
                b'\\' => {
                    let escape = Escape::read(all.get(at + 1..)?)?;
                    bytes.push(escape.byte);
                    at += 1 + escape.length;
                }
                byte => {
                    bytes.push(byte);
                    at += 1;
                }
            }
        }
        Some(Self {
            text: text_of(&bytes).into_owned(),
            rest: line.get(at + 1..)?,
        })
    }
}

/// Escape sequence without its backslash.
struct Escape {
    /// Byte that the sequence represents.
    byte: u8,
    /// Length of the sequence.
    length: usize,
}

impl Escape {
    fn read(bytes: &[u8]) -> Option<Self> {
        let one = |byte| Some(Self { byte, length: 1 });
        match *bytes.first()? {
            b'x' => {
                let digits = str::from_utf8(bytes.get(1..3)?).ok()?;
                let byte = u8::from_str_radix(digits, 16).ok()?;
                Some(Self { byte, length: 3 })
            }
            b'n' => one(b'\n'),
            b'r' => one(b'\r'),
            b't' => one(b'\t'),
            byte => one(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMBINED: &str = r#"10.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /a?b=%20c HTTP/1.1" 200 2326 "http://r.test/\"x" "FooBot/1.0 (+http://f.test)""#;

    fn read(line: &str) -> LoggedRequest {
        match entry(line) {
            CrawlLogEntry::Request(request) => request,
            other @ (CrawlLogEntry::Crawler(_)
            | CrawlLogEntry::Other
            | CrawlLogEntry::Malformed) => {
                panic!("{line}: {other:?}")
            }
        }
    }

    // Source: Apache, mod_log_config: Combined Log Format.
    #[test]
    fn a_combined_line_has_path_time_status_and_crawler() {
        let request = read(COMBINED);
        assert_eq!(request.url, LoggedUrl::Path("/a?b=%20c".to_owned()));
        assert_eq!(request.at, Some("2000-10-10T20:55:36Z".parse().unwrap()));
        assert_eq!(request.status, Some(200));
        let agent = "FooBot/1.0 (+http://f.test)".to_owned();
        assert_eq!(request.user_agent, LoggedAgent::Named(agent));
    }

    // Ours: Apache and nginx escape the bytes of non-ASCII text.
    #[test]
    fn bytes_that_are_not_text_become_url_escapes() {
        for (written, path) in [("/b\\xe4r", "/b%E4r"), ("/b\\xC3\\xA4r", "/b\u{e4}r")] {
            let line = COMBINED.replace("/a?b=%20c", written);
            assert_eq!(read(&line).url, LoggedUrl::Path(path.to_owned()));
        }
    }

    // Source: Apache. The Common Log Format has no field for the crawler; `-` means that
    // none was sent.
    #[test]
    fn a_missing_agent_field_differs_from_an_empty_one() {
        let common = COMBINED.split(" \"http").next().unwrap();
        assert_eq!(read(common).user_agent, LoggedAgent::Untold);
        let silent = format!("{common} \"-\" \"-\"");
        assert_eq!(read(&silent).user_agent, LoggedAgent::Silent);
    }

    fn whole(url: &str) -> LoggedUrl {
        LoggedUrl::Whole(url.to_owned())
    }

    // Ours; RFC 9112, section 3.2, for the forms of the target.
    #[test]
    fn hosts_come_from_the_request_line_or_the_virtual_host() {
        for (names, request_line, url) in [
            (
                "c - -",
                "GET http://h.test/a HTTP/1.1",
                whole("http://h.test/a"),
            ),
            (
                "h.test:443 c - -",
                "GET /a HTTP/1.1",
                whole("https://h.test/a"),
            ),
            (
                "h.test:8080 c - -",
                "GET /a HTTP/1.1",
                whole("http://h.test:8080/a"),
            ),
            (
                "c - -",
                "CONNECT h.test:443 HTTP/1.1",
                LoggedUrl::Tunnel("h.test:443".to_owned()),
            ),
            (
                "c - -",
                "GET /a b HTTP/1.1",
                LoggedUrl::Path("/a b".to_owned()),
            ),
            ("c - -", "GET /a", LoggedUrl::Path("/a".to_owned())),
            (
                "c - -",
                r"GET /\x22\\ HTTP/1.1",
                LoggedUrl::Path("/\"\\".to_owned()),
            ),
            (
                "::1 - -",
                "GET /://x HTTP/1.1",
                LoggedUrl::Path("/://x".to_owned()),
            ),
        ] {
            let line = format!("{names} [10/Oct/2000:13:55:36 +0000] \"{request_line}\" 200 1");
            assert_eq!(read(&line).url, url, "{line}");
        }
    }

    // Ours: a line without a request must not make the whole log unreadable.
    #[test]
    fn lines_without_a_request_differ_from_malformed_lines() {
        for (line, wanted) in [
            (
                r#"c - - [10/Oct/2000:13:55:36 +0000] "\x16\x03\x01" 400 1"#,
                CrawlLogEntry::Other,
            ),
            (
                r#"c - - [10/Oct/2000:13:55:36 +0000] "-" 408 0"#,
                CrawlLogEntry::Other,
            ),
            (
                r#"c - - [10/Oct/2000] "GET / HTTP/1.1" 200 0"#,
                CrawlLogEntry::Malformed,
            ),
            (
                r#"c - - [10/Oct/2000:13:55:36 +0000] "GET / HTTP"#,
                CrawlLogEntry::Malformed,
            ),
            (
                r#"c - - [10/Oct/2000:13:55:36 +0000] "GET /\x"#,
                CrawlLogEntry::Malformed,
            ),
            ("2024-01-01 spider opened", CrawlLogEntry::Malformed),
        ] {
            assert_eq!(entry(line), wanted, "{line}");
        }
    }
}
