//! Repair of damaged lines: our own extension, only for RFC 9309. Repaired lines apply in
//! addition to the file as written, so they never allow anything.

use super::Dialect;
use super::groups::{equals, text};
use super::lines::{Kind, Line, Rule, content, is_blank, key, numbered, parsed, trimmed};

/// Invisible characters.
const MARKS: &str = "\u{a0}\u{202f}\u{2007}\u{3000}\u{200b}\u{200c}\u{200d}\u{2060}\u{feff}\
    \u{200e}\u{200f}\u{61c}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2066}\u{2067}\u{2068}\u{2069}";

/// Characters around a `*` that are ignored, in addition to ASCII punctuation.
const AROUND: &str = " \t\u{ab}\u{b4}\u{b7}\u{bb}\u{3001}\u{3002}\u{300c}\u{300d}\u{300e}\u{300f}\
    \u{ff02}\u{ff07}\u{ff0c}\u{ff0e}\u{ff1b}";

/// Returns the lines of a file after repairs, each with a flag: whether it was damaged.
pub(super) fn read(dialect: Dialect, body: &[u8]) -> Vec<(Line, bool)> {
    let mut lines = Vec::new();
    for (number, line) in numbered(dialect, body) {
        let mut read = parsed(number, &line);
        let mut is_damaged = false;
        if read == Line::Other {
            read = by_visible_name(number, content(&line));
            is_damaged = read != Line::Other;
        }
        let both = match &read {
            Line::Agent(value) => two_in_one(number, value),
            Line::Blank | Line::Rule(_) | Line::Other => None,
        };
        match both {
            Some((agent, rule)) => lines.extend([(agent, true), (rule, true)]),
            None => lines.push((read, is_damaged)),
        }
    }
    lines
}

/// Returns the start and the end of each colon in a text.
fn colons(text: &[u8]) -> Vec<(usize, usize)> {
    let wide = "\u{ff1a}".as_bytes();
    let length = |at: usize| match &text[at..] {
        [b':', ..] => 1,
        rest if rest.starts_with(wide) => wide.len(),
        _ => 0,
    };
    let places = (0..text.len()).map(|at| (at, at + length(at)));
    places.filter(|(start, end)| start < end).collect()
}

fn by_visible_name(number: u32, content: &[u8]) -> Line {
    // Only the beginning is searched, because names are short.
    let first = &content[..content.len().min(128)];
    let Some(&(start, end)) = colons(first).first() else {
        return Line::Other;
    };
    if first.is_ascii() {
        return Line::Other;
    }
    let mut name = plain(&content[..start]);
    while let Some(rest) = name.strip_prefix("\u{ef}\u{bb}\u{bf}") {
        name = rest.to_owned();
    }
    let name = name.trim_start_matches([' ', '\t']).to_ascii_lowercase();
    match key(number, name.as_bytes(), trimmed(&content[end..])) {
        Line::Rule(rule) if rule.kind == Kind::Allow => Line::Other,
        line @ (Line::Blank | Line::Agent(_) | Line::Rule(_) | Line::Other) => line,
    }
}

/// Returns the two lines in the value of an agent line that also contains a Disallow.
fn two_in_one(number: u32, value: &[u8]) -> Option<(Line, Line)> {
    for (start, end) in colons(value) {
        let before = trimmed(&value[..start]);
        let mut word = before.len();
        while 0 < word && before[word - 1].is_ascii_alphabetic() {
            word -= 1;
        }
        let name = before[word..].to_ascii_lowercase();
        let is_apart = 0 < word && (is_blank(before[word - 1]) || !before[word - 1].is_ascii());
        let agent = trimmed(&before[..word]);
        let rule = key(number, &name, trimmed(&value[end..]));
        let disallows = matches!(&rule, Line::Rule(rule) if rule.kind == Kind::Disallow);
        if is_apart && disallows && !agent.is_empty() {
            return Some((Line::Agent(agent.to_vec()), rule));
        }
    }
    None
}

/// Returns a name as a person sees it.
fn plain(name: &[u8]) -> String {
    let mut seen = String::new();
    for letter in text(name).chars() {
        match letter {
            '‐' | '‑' | '‒' | '–' | '—' | '―' | '−' => seen.push('-'),
            '：' => seen.push(':'),
            _ if MARKS.contains(letter) => {}
            _ => seen.push(letter),
        }
    }
    seen.trim_matches([' ', '\t']).to_owned()
}

/// Reports whether an agent line was meant for all crawlers.
pub(super) fn is_everyone(value: &[u8]) -> bool {
    let seen = plain(value);
    let is_around = |letter: char| {
        letter.is_ascii_punctuation()
            || AROUND.contains(letter)
            || ('\u{2010}'..'\u{2028}').contains(&letter)
            || ('\u{2032}'..'\u{203b}').contains(&letter)
    };
    let only = seen.contains('*') && seen.chars().all(is_around);
    only || seen.starts_with("* ") || seen.starts_with("*\t")
}

/// Reports whether an agent line was meant for the crawler `token`.
pub(super) fn names(value: &[u8], token: &str) -> bool {
    !token.is_empty() && equals(&plain(value), token)
}

/// Returns the forms of a Disallow's value that its author may have meant.
pub(super) fn forms(rule: &Rule) -> Vec<Vec<u8>> {
    let mut seen = Vec::new();
    let mut rest = &rule.value[..];
    while let Some(&byte) = rest.first() {
        let letter = (1..=4).find_map(|length| str::from_utf8(rest.get(..length)?).ok());
        match letter {
            Some(letter) if MARKS.contains(letter) => {}
            Some(letter) => seen.extend(letter.as_bytes()),
            None if byte == 0xA0 => {}
            None => seen.push(byte),
        }
        rest = &rest[letter.map_or(1, str::len)..];
    }
    let seen = trimmed(&seen).to_vec();
    let text = text(&seen).into_bytes();
    vec![seen, text]
}

/// Returns the path of a URL at `site`, which has the form `https://host` or
/// `https://host:port`. The scheme of the URL does not matter; its port must be the default
/// of its scheme or that of the site.
pub(super) fn path_at(site: &str, rule: &Rule) -> Option<Vec<u8>> {
    let url = String::from_utf8(forms(rule).pop()?).ok()?;
    let (host, port, _) = parts(site)?;
    let (named, other_port, path) = parts(&url)?;
    let (scheme, _) = url.split_once(':')?;
    let is_usual = other_port == usual_port(scheme)?;
    let is_here = named.eq_ignore_ascii_case(host) && (is_usual || other_port == port);
    (is_here && path.starts_with('/')).then(|| path.into())
}

/// Returns the host, the port and the path of a URL.
fn parts(url: &str) -> Option<(&str, u16, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let usual = usual_port(scheme)?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    match authority.split_once(':') {
        Some((host, port)) => Some((host, port.parse().ok()?, path)),
        None => Some((authority, usual, path)),
    }
}

fn usual_port(scheme: &str) -> Option<u16> {
    match scheme.to_ascii_lowercase().as_str() {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    }
}
