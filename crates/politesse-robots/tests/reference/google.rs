//! Answers of google/robotstxt, as of its commit 22b355f.
//!
//! Written anew from the behaviour of its `robots.cc`. The doc of each function names the
//! original. google/robotstxt does not exempt /robots.txt, decodes nothing, and does not
//! limit the size of a file. Its lines are C strings, so a NUL ends them.

use std::cmp::Ordering;

use super::Verdict;

/// `kMaxLineLen`, minus the NUL at the end: the maximum length of a line. The rest of a
/// longer line is dropped.
const LINE_BYTES_MAX: usize = 2083 * 8 - 1;

/// `std::string::npos`.
const NOWHERE: usize = usize::MAX;

/// `Match`: priority and line of the best matching rule of a kind.
#[derive(Debug, Clone, Copy)]
struct Match {
    /// Length of the pattern in bytes; -1 if nothing matched.
    priority: i64,
    /// Line of the rule; 0 if nothing matched.
    line: u32,
}

impl Match {
    const NONE: Self = Self {
        priority: -1,
        line: 0,
    };

    /// `Set`, with the condition of its callers: of equal matches, the first stays.
    fn improve(&mut self, priority: i64, line: u32) {
        if self.priority < priority {
            *self = Self { priority, line };
        }
    }
}

/// `MatchHierarchy`: the best match in groups for `*`, and in groups for the crawler.
#[derive(Debug, Clone, Copy)]
struct MatchHierarchy {
    global: Match,
    specific: Match,
}

impl MatchHierarchy {
    const NONE: Self = Self {
        global: Match::NONE,
        specific: Match::NONE,
    };
}

/// `RobotsMatcher`, with one name or none in `user_agents_`.
#[derive(Debug)]
struct Matcher<'a> {
    agent: Option<&'a str>,
    path: &'a [u8],
    allow: MatchHierarchy,
    disallow: MatchHierarchy,
    seen_global_agent: bool,
    seen_specific_agent: bool,
    ever_seen_specific_agent: bool,
    /// Whether there was a group for `*`. Not in the original.
    ever_seen_global_agent: bool,
    seen_separator: bool,
}

/// `OneAgentAllowedByRobots` and `matching_line`. Without an agent,
/// `AllowedByRobots` with no names.
pub(super) fn decide(body: &[u8], agent: &str, url_path: &str) -> Verdict {
    let path = url_path.as_bytes();
    let mut matcher = Matcher {
        agent: (!agent.is_empty()).then_some(agent),
        path: c_string(path),
        allow: MatchHierarchy::NONE,
        disallow: MatchHierarchy::NONE,
        seen_global_agent: false,
        seen_specific_agent: false,
        ever_seen_specific_agent: false,
        ever_seen_global_agent: false,
        seen_separator: false,
    };
    for (number, line) in (1..).zip(lines(body)) {
        if let Some((key, value)) = key_and_value(&line) {
            matcher.emit(number, key, value);
        }
    }
    let line = matcher.matching_line();
    Verdict {
        allow: !matcher.is_disallowed(),
        line: (line != 0).then_some(line),
        bound: matcher.ever_seen_specific_agent || matcher.ever_seen_global_agent,
    }
}

/// Returns the bytes before the first NUL, where a C string ends.
fn c_string(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|&byte| byte == 0);
    &bytes[..end.unwrap_or(bytes.len())]
}

/// `RobotsTxtParser::Parse`: the lines, cut to the maximum length, without a byte order mark.
fn lines(body: &[u8]) -> Vec<Vec<u8>> {
    const BOM: [u8; 3] = [0xEF, 0xBB, 0xBF];
    let mut lines = Vec::new();
    let mut line = Vec::new();
    let mut bom_pos = 0;
    let mut last_was_carriage_return = false;
    for &byte in body {
        if bom_pos < BOM.len() && byte == BOM[bom_pos] {
            bom_pos += 1;
            continue;
        }
        bom_pos = BOM.len();
        if byte != b'\n' && byte != b'\r' {
            if line.len() < LINE_BYTES_MAX {
                line.push(byte);
            }
            continue;
        }
        let is_crlf_continuation = line.is_empty() && last_was_carriage_return && byte == b'\n';
        if !is_crlf_continuation {
            lines.push(line);
        }
        line = Vec::new();
        last_was_carriage_return = byte == b'\r';
    }
    lines.push(line);
    lines
}

/// `GetKeyAndValueFrom`.
fn key_and_value(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let is_white = |byte: &u8| b" \t".contains(byte);
    let line = c_string(line);
    let comment = line.iter().position(|&byte| byte == b'#');
    let line = stripped(&line[..comment.unwrap_or(line.len())]);
    let separator = match line.iter().position(|&byte| byte == b':') {
        Some(colon) => colon,
        None => {
            let white = line.iter().position(is_white)?;
            let mut value = line[white..].iter().skip_while(|byte| is_white(byte));
            if value.any(is_white) {
                return None;
            }
            white
        }
    };
    let key = stripped(&line[..separator]);
    let value = stripped(&line[separator + 1..]);
    (!key.is_empty()).then_some((key, value))
}

/// `StripWhitespaceSlowly`.
fn stripped(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|&byte| !is_space(byte));
    let last = text.iter().rposition(|&byte| !is_space(byte));
    match (start, last) {
        (Some(start), Some(last)) => &text[start..=last],
        _ => &[],
    }
}

/// C's `isspace`.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | 0x09..=0x0D)
}

/// `StartsWithIgnoreCase`: only the beginning of a key is compared.
fn begins_like(key: &[u8], names: &[&str]) -> bool {
    names.iter().any(|name| {
        let start = key.get(..name.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(name.as_bytes()))
    })
}

/// `MaybeEscapePattern`: escapes in upper case, bytes outside ASCII escaped.
fn escaped(value: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::new();
    let mut rest = value;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match after {
            [high, low, behind @ ..]
                if byte == b'%' && high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                escaped.extend([b'%', high.to_ascii_uppercase(), low.to_ascii_uppercase()]);
                rest = behind;
            }
            _ if byte.is_ascii() => escaped.push(byte),
            _ => escaped.extend(format!("%{byte:02X}").into_bytes()),
        }
    }
    escaped
}

/// `ExtractUserAgent`: the longest prefix of letters, `-` and `_`.
fn extracted(user_agent: &[u8]) -> &[u8] {
    let is_allowed = |byte: u8| byte.is_ascii_alphabetic() || b"-_".contains(&byte);
    let end = user_agent.iter().position(|&byte| !is_allowed(byte));
    &user_agent[..end.unwrap_or(user_agent.len())]
}

impl Matcher<'_> {
    /// `ParseAndEmitLine`, from the key on. Sitemap and unknown keys have no effect.
    fn emit(&mut self, line: u32, key: &[u8], value: &[u8]) {
        const DISALLOW: [&str; 6] = [
            "disallow",
            "dissallow",
            "dissalow",
            "disalow",
            "diasllow",
            "disallaw",
        ];
        if begins_like(key, &["user-agent", "useragent", "user agent"]) {
            self.handle_user_agent(value);
        } else if begins_like(key, &["allow"]) {
            self.handle_allow(line, &escaped(value));
        } else if begins_like(key, &DISALLOW) {
            self.handle_disallow(line, &escaped(value));
        }
    }

    /// `HandleUserAgent`.
    fn handle_user_agent(&mut self, value: &[u8]) {
        if self.seen_separator {
            self.seen_specific_agent = false;
            self.seen_global_agent = false;
            self.seen_separator = false;
        }
        if value.starts_with(b"*") && value.get(1).is_none_or(|&next| is_space(next)) {
            self.seen_global_agent = true;
            self.ever_seen_global_agent = true;
            return;
        }
        let is_ours = |agent: &str| extracted(value).eq_ignore_ascii_case(agent.as_bytes());
        if self.agent.is_some_and(is_ours) {
            self.seen_specific_agent = true;
            self.ever_seen_specific_agent = true;
        }
    }

    /// `HandleAllow`.
    fn handle_allow(&mut self, line: u32, pattern: &[u8]) {
        if !self.seen_any_agent() {
            return;
        }
        self.seen_separator = true;
        if let Some(priority) = priority(self.path, pattern) {
            if self.seen_specific_agent {
                self.allow.specific.improve(priority, line);
            } else {
                self.allow.global.improve(priority, line);
            }
            return;
        }
        // An allowed index page also allows its directory, but nothing else in it.
        let slash = pattern.iter().rposition(|&byte| byte == b'/');
        if let Some(slash) = slash
            && pattern[slash..].starts_with(b"/index.htm")
        {
            let directory = [&pattern[..=slash], b"$"].concat();
            self.handle_allow(line, &directory);
        }
    }

    /// `HandleDisallow`.
    fn handle_disallow(&mut self, line: u32, pattern: &[u8]) {
        if !self.seen_any_agent() {
            return;
        }
        self.seen_separator = true;
        if let Some(priority) = priority(self.path, pattern) {
            if self.seen_specific_agent {
                self.disallow.specific.improve(priority, line);
            } else {
                self.disallow.global.improve(priority, line);
            }
        }
    }

    /// `seen_any_agent`.
    fn seen_any_agent(&self) -> bool {
        self.seen_global_agent || self.seen_specific_agent
    }

    /// `disallow`.
    fn is_disallowed(&self) -> bool {
        let (allow, disallow) = (self.allow, self.disallow);
        if 0 < allow.specific.priority || 0 < disallow.specific.priority {
            return allow.specific.priority < disallow.specific.priority;
        }
        if self.ever_seen_specific_agent {
            return false;
        }
        if 0 < disallow.global.priority || 0 < allow.global.priority {
            return allow.global.priority < disallow.global.priority;
        }
        false
    }

    /// `matching_line`.
    fn matching_line(&self) -> u32 {
        let (disallow, allow) = if self.ever_seen_specific_agent {
            (self.disallow.specific, self.allow.specific)
        } else {
            (self.disallow.global, self.allow.global)
        };
        // `HigherPriorityMatch`.
        match disallow.priority.cmp(&allow.priority) {
            Ordering::Greater => disallow.line,
            Ordering::Equal | Ordering::Less => allow.line,
        }
    }
}

/// `MatchAllow` and `MatchDisallow`: the length of a matching pattern.
fn priority(path: &[u8], pattern: &[u8]) -> Option<i64> {
    is_match(path, pattern).then(|| i64::try_from(pattern.len()).unwrap_or(i64::MAX))
}

/// `RobotsMatchStrategy::Matches`, with the same sorted list of positions.
fn is_match(path: &[u8], pattern: &[u8]) -> bool {
    let mut positions = vec![0];
    for (index, &byte) in pattern.iter().enumerate() {
        if byte == b'$' && index + 1 == pattern.len() {
            return positions.last() == Some(&path.len());
        }
        if byte == b'*' {
            positions = (positions[0]..=path.len()).collect();
            continue;
        }
        positions.retain(|&position| path.get(position) == Some(&byte));
        positions.iter_mut().for_each(|position| *position += 1);
        if positions.is_empty() {
            return false;
        }
    }
    true
}

/// `GetPathParamsQuery`: path, parameters and query of a URL, without scheme, authority and
/// fragment; `/` if there are none.
pub fn google_path(url: &str) -> String {
    let find = |from: usize, what: &[&str]| {
        let found = what.iter().filter_map(|text| url[from..].find(text));
        found.min().map_or(NOWHERE, |at| from + at)
    };
    let search_start = if url.starts_with("//") { 2 } else { 0 };
    let early_path = find(search_start, &["/", "?", ";"]);
    let mut protocol_end = find(search_start, &["://"]);
    if early_path < protocol_end {
        protocol_end = NOWHERE;
    }
    let authority = match protocol_end {
        NOWHERE => search_start,
        end => end + 3,
    };
    let path_start = find(authority, &["/", "?", ";"]);
    if path_start == NOWHERE {
        return "/".to_owned();
    }
    let hash = find(search_start, &["#"]);
    if hash < path_start {
        return "/".to_owned();
    }
    let path = &url[path_start..hash.min(url.len())];
    if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("/{path}")
    }
}
