//! Logs of two crawlers: Scrapy's log, and Heritrix's `crawl.log`.
//!
//! Both contain whole URLs and no `User-Agent`, except in the settings that Scrapy prints
//! at its start. Does not know which requests a crawler should have sent.

use jiff::Timestamp;

use super::entry::{CrawlLogEntry, LoggedAgent, LoggedRequest, LoggedUrl, status};

/// Parses a line of Scrapy's log: from `scrapy.core.engine`, or from the middlewares that
/// report redirected and retried requests.
///
/// Times in this log have no zone, so they are ignored.
pub(super) fn scrapy(line: &str) -> CrawlLogEntry {
    if let Some(agent) = scrapy_agent(line) {
        return CrawlLogEntry::Crawler(agent.to_owned());
    }
    let request = crawled(line)
        .or_else(|| redirected(line))
        .or_else(|| retried(line))
        .or_else(|| given_up(line));
    match request {
        Some(request) => CrawlLogEntry::Request(request),
        // Spiders log any text, over several lines.
        None => CrawlLogEntry::Other,
    }
}

/// Returns the `User-Agent` in a line of Scrapy's settings, which are printed as a Python
/// dictionary.
fn scrapy_agent(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("'USER_AGENT': ")?;
    // A log line that quotes a page could contain the same text further on.
    let is_setting =
        before.trim_matches([' ', '{']).is_empty() || before.contains("verridden settings");
    let quote = rest.chars().next().filter(|quote| "'\"".contains(*quote))?;
    let agent = rest[1..].split(quote).next()?;
    (is_setting && !agent.is_empty()).then_some(agent)
}

/// Parses `DEBUG: Crawled (200) <GET https://h/> (referer: None)`.
fn crawled(line: &str) -> Option<LoggedRequest> {
    let (_, rest) = line.split_once("DEBUG: Crawled (")?;
    let (code, rest) = rest.split_once(") ")?;
    // Scrapy's cache answered, so nothing was sent. The flag is at the end of the line.
    if rest.ends_with("['cached']") {
        return None;
    }
    request(rest, status(code))
}

/// Parses `DEBUG: Redirecting (301) to <GET https://h/b> from <GET https://h/a>`, and
/// returns the request to `/a`. The engine reports the request to `/b` once that is
/// answered.
fn redirected(line: &str) -> Option<LoggedRequest> {
    let (_, rest) = line.split_once("DEBUG: Redirecting (")?;
    let (code, rest) = rest.split_once(')')?;
    let (_, from) = rest.rsplit_once(" from ")?;
    request(from, status(code))
}

/// Parses `DEBUG: Retrying <GET https://h/> (failed 1 times): 503 Service Unavailable`.
fn retried(line: &str) -> Option<LoggedRequest> {
    let (_, rest) = line.split_once("DEBUG: Retrying ")?;
    let (_, reason) = rest.rsplit_once(" times): ")?;
    request(rest, reason.split(' ').next().and_then(status))
}

/// Parses `ERROR: Gave up retrying <GET https://h/> (failed 3 times): User timeout …`,
/// which reports the last attempt. If that attempt was answered, the engine reports it
/// with its status.
fn given_up(line: &str) -> Option<LoggedRequest> {
    let (_, rest) = line.split_once("ERROR: Gave up retrying ")?;
    let (_, reason) = rest.rsplit_once(" times): ")?;
    let has_status = reason.starts_with(|first: char| first.is_ascii_digit());
    request(rest, None).filter(|_| !has_status)
}

/// Parses `<GET https://h/>`.
fn request(text: &str, status: Option<u16>) -> Option<LoggedRequest> {
    let (method, url) = text.strip_prefix('<')?.split_once(' ')?;
    if method.is_empty() || !method.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return None;
    }
    // Scrapy escapes `>` in URLs.
    let url = url.split('>').next()?;
    Some(LoggedRequest {
        url: LoggedUrl::Whole(url.to_owned()),
        at: None,
        status,
        user_agent: LoggedAgent::Untold,
    })
}

/// Heritrix's codes for requests that reached a server but got no complete response: -3
/// means a broken connection, -4 a timeout, -404 an empty response.
const SENT_CODES: [i32; 3] = [-3, -4, -404];

/// Parses a line of Heritrix's `crawl.log`: time, status, size, URL, path of discovery,
/// referrer, type, thread, start and duration, digest, source, annotations.
pub(super) fn heritrix(line: &str) -> CrawlLogEntry {
    let mut words = line.split_ascii_whitespace();
    let ended = words.next().and_then(|time| time.parse::<Timestamp>().ok());
    let code = words.next().and_then(|code| code.parse::<i32>().ok());
    let size = words.next();
    let url = words.next().filter(|url| url.contains(':'));
    let (Some(ended), Some(code), Some(_), Some(url)) = (ended, code, size, url) else {
        return CrawlLogEntry::Malformed;
    };
    // DNS lookups, and URLs that Heritrix did not fetch: -9998 means disallowed by
    // robots.txt.
    let was_sent = 0 < code || SENT_CODES.contains(&code);
    if !was_sent || !url.starts_with("http") {
        return CrawlLogEntry::Other;
    }
    // The first time in the line is that of the end. A request is judged by the
    // robots.txt in force when it was sent.
    let started = words.nth(4).and_then(heritrix_start);
    CrawlLogEntry::Request(LoggedRequest {
        url: LoggedUrl::Whole(url.to_owned()),
        at: Some(started.unwrap_or(ended)),
        status: u16::try_from(code).ok(),
        user_agent: LoggedAgent::Untold,
    })
}

/// Parses `20240102030405678+12`: the time to the millisecond, and a duration.
fn heritrix_start(text: &str) -> Option<Timestamp> {
    let (digits, _) = text.split_once('+')?;
    if digits.len() != 17 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let [year, month, day, hour, minute, second, millisecond] =
        [0..4, 4..6, 6..8, 8..10, 10..12, 12..14, 14..17].map(|part| &digits[part]);
    format!("{year}-{month}-{day}T{hour}:{minute}:{second}.{millisecond}Z")
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(entry: CrawlLogEntry) -> Option<LoggedRequest> {
        match entry {
            CrawlLogEntry::Request(request) => Some(request),
            CrawlLogEntry::Crawler(_) | CrawlLogEntry::Other | CrawlLogEntry::Malformed => None,
        }
    }

    // Source: Scrapy 2.13: core/engine.py, downloadermiddlewares/redirect.py and
    // retry.py.
    #[test]
    fn scrapy_lines_report_the_requests_sent() {
        let engine = "2024-01-02 03:04:05 [scrapy.core.engine] ";
        for (line, wanted) in [
            (
                "DEBUG: Crawled (200) <GET https://h.test/a> (referer: None)",
                Some(("https://h.test/a", Some(200))),
            ),
            (
                "DEBUG: Crawled (200) <GET https://h.test/a> (referer: None) ['cached']",
                None,
            ),
            (
                "DEBUG: Crawled (404) <POST https://h.test/b?c=d> (referer: https://h.test/)",
                Some(("https://h.test/b?c=d", Some(404))),
            ),
            (
                "DEBUG: Redirecting (301) to <GET https://h.test/b> from <GET http://h.test/a>",
                Some(("http://h.test/a", Some(301))),
            ),
            (
                "DEBUG: Retrying <GET https://h.test/a> (failed 1 times): 503 Service Unavailable",
                Some(("https://h.test/a", Some(503))),
            ),
            (
                "DEBUG: Retrying <GET https://h.test/a> (failed 1 times): User timeout",
                Some(("https://h.test/a", None)),
            ),
            (
                "ERROR: Gave up retrying <GET https://h.test/a> (failed 3 times): User timeout",
                Some(("https://h.test/a", None)),
            ),
            (
                "ERROR: Gave up retrying <GET https://h.test/a> (failed 3 times): 503 Service Unavailable",
                None,
            ),
            (
                "DEBUG: Forbidden by robots.txt: <GET https://h.test/a>",
                None,
            ),
            ("DEBUG: Scraped from <200 https://h.test/a>", None),
        ] {
            let found = url(scrapy(&format!("{engine}{line}")));
            let found = found.as_ref().map(|request| (&request.url, request.status));
            let wanted = wanted.map(|(url, status)| (LoggedUrl::Whole(url.to_owned()), status));
            assert_eq!(
                found,
                wanted.as_ref().map(|(url, status)| (url, *status)),
                "{line}"
            );
        }
    }

    // Source: Scrapy 2.13, utils/log.py: the settings that differ from its defaults.
    #[test]
    fn scrapy_settings_name_the_crawler() {
        for line in [
            " 'USER_AGENT': 'FooBot (+https://foo.test)'}",
            "2024-01-02 [scrapy.crawler] INFO: Overridden settings: {'USER_AGENT': \"FooBot (+https://foo.test)\", 'X': 1}",
        ] {
            let crawler = CrawlLogEntry::Crawler("FooBot (+https://foo.test)".to_owned());
            assert_eq!(scrapy(line), crawler, "{line}");
        }
        assert_eq!(
            scrapy("ERROR: page has 'USER_AGENT': 'x'"),
            CrawlLogEntry::Other
        );
    }

    // Source: Heritrix 3, crawl.log and its status codes.
    #[test]
    fn heritrix_requests_have_the_time_they_were_sent() {
        let line = "2024-01-02T03:04:06.000Z   200  1234 https://h.test/a LLE https://h.test/ text/html #042 20240102030405678+321 sha1:AB - -";
        let request = url(heritrix(line)).unwrap();
        assert_eq!(
            request.at,
            Some("2024-01-02T03:04:05.678Z".parse().unwrap())
        );
        assert_eq!(request.status, Some(200));
        let short = "2024-01-02T03:04:06.000Z   404  - https://h.test/a L - text/html #042 - - - -";
        let ended = Some("2024-01-02T03:04:06Z".parse().unwrap());
        assert_eq!(url(heritrix(short)).unwrap().at, ended);
    }

    #[test]
    fn heritrix_lines_without_a_request_are_skipped() {
        for (code, address, is_request) in [
            ("-9998", "https://h.test/a", false),
            ("-3", "https://h.test/a", true),
            ("-404", "https://h.test/a", true),
            ("-2", "https://h.test/a", false),
            ("1", "dns:h.test", false),
            ("200", "https://h.test/a", true),
        ] {
            let line = format!("2024-01-02T03:04:06.000Z {code} 0 {address} L - - #1 - - - -");
            assert_eq!(url(heritrix(&line)).is_some(), is_request, "{line}");
        }
        assert_eq!(heritrix("no line of a log"), CrawlLogEntry::Malformed);
    }
}
