//! Wording and numbers for readers of a report. All external text passes through
//! [`shown`].

use jiff::Timestamp;
use maud::{Markup, html};

use politesse_base::inert::inert;

/// Maximum number of characters of an external text on a page.
const TEXT_MAX: usize = 160;

/// Bytes of a run without spaces that fits on a line of a phone.
const RUN_MAX: usize = 30;

/// Letters without punctuation that stay together: the length of a SHA-256, so that it
/// can be searched for.
const LETTERS_MAX: usize = 64;

/// Returns an external text with at most `max` characters, and with control characters
/// escaped.
pub fn shown(text: &str, max: usize) -> String {
    let text = inert(text);
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

/// Shows an external text. Its writing direction does not affect the text around it.
pub fn foreign(text: &str) -> Markup {
    html! { bdi { (breakable(&shown(text, TEXT_MAX))) } }
}

/// Shows an external text as code: a line of a robots.txt, a User-Agent, a command.
pub fn code(text: &str) -> Markup {
    html! { code { bdi { (breakable(&shown(text, TEXT_MAX))) } } }
}

/// Shows a text made by [`shown`] or `inert`, with places where a long run without
/// spaces may wrap: after the punctuation of a URL or a digest, and inside a run
/// without punctuation.
pub fn breakable(text: &str) -> Markup {
    html! {
        @for run in text.split_inclusive(' ') {
            @if run.len() <= RUN_MAX { (run) } @else {
                @for (at, part) in parts(run).into_iter().enumerate() {
                    @if 0 < at { wbr; }
                    (part)
                }
            }
        }
    }
}

/// Splits a long run after the punctuation of URLs and digests, and after
/// [`LETTERS_MAX`] letters without any.
fn parts(run: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = run;
    let mut letters = 0;
    for (at, letter) in run.char_indices() {
        letters = if letter.is_alphanumeric() {
            letters + 1
        } else {
            0
        };
        let end = at + letter.len_utf8() + rest.len() - run.len();
        let Some((part, behind)) = rest.split_at_checked(end) else {
            continue;
        };
        // Not between a scheme and its slashes.
        let is_mark = "/.&?=_:".contains(letter) && !behind.starts_with('/');
        if (is_mark || letters == LETTERS_MAX) && !behind.is_empty() {
            parts.push(part);
            rest = behind;
            letters = 0;
        }
    }
    parts.push(rest);
    parts
}

/// Writes a number with commas between thousands.
pub fn number(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at != 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Writes a number with its noun, in the plural unless the number is one.
pub fn counted(count: u64, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        _ => format!("{} {}", number(count), plural(noun)),
    }
}

fn plural(noun: &str) -> String {
    let is_hissed = ["s", "x", "ch", "sh"].iter().any(|end| noun.ends_with(end));
    match noun.strip_suffix('y') {
        // key, keys; entry, entries
        Some(begin) if !begin.ends_with(['a', 'e', 'o', 'u']) => format!("{begin}ies"),
        None if is_hissed => format!("{noun}es"),
        _ => format!("{noun}s"),
    }
}

/// Writes `part` as a percentage of `whole`, rounded to a tenth; 0 % if both are 0.
/// Only zero gives 0 %, and only the whole gives 100 %.
pub fn percent(part: u64, whole: u64) -> String {
    if part == 0 || whole == 0 {
        return "0 %".to_owned();
    }
    let (part, whole) = (u128::from(part), u128::from(whole));
    // Adds half of the whole to round the quotient.
    match (part * 1000 + whole / 2) / whole {
        0 => "less than 0.1 %".to_owned(),
        _ if part == whole => "100 %".to_owned(),
        1000 if part < whole => "more than 99.9 %".to_owned(),
        tenths => format!("{}.{} %", tenths / 10, tenths % 10),
    }
}

/// Writes a number of bytes in decimal units: 1 kB is 1000 bytes.
pub fn bytes(count: u64) -> String {
    let units = [
        ("TB", 1_000_000_000_000),
        ("GB", 1_000_000_000),
        ("MB", 1_000_000),
        ("kB", 1_000_u64),
    ];
    let unit = units.into_iter().find(|(_, size)| *size <= count);
    match unit {
        Some((name, size)) if count / size < 10 => {
            format!("{}.{} {name}", count / size, count % size * 10 / size)
        }
        Some((name, size)) => format!("{} {name}", number(count / size)),
        None => counted(count, "byte"),
    }
}

/// Describes a site's response to the request for its robots.txt, from the word in the
/// record and the status.
pub fn robots_words(result: &str, status: Option<u16>) -> String {
    let status = status.map_or_else(|| "no answer".to_owned(), |status| status.to_string());
    match result {
        "successful" => format!("read, {status}"),
        "unavailable" => format!("none ({status})"),
        other => format!("{other} ({status})"),
    }
}

/// Writes a duration, given in microseconds, in the largest fitting unit.
pub fn duration(micros: u64) -> String {
    let tenths = micros / 100_000;
    match tenths {
        0 => format!("{} ms", micros / 1000),
        1..100 => format!("{}.{} s", tenths / 10, tenths % 10),
        100..1200 => format!("{} s", tenths / 10),
        1200..72_000 => format!("{} min", tenths / 600),
        72_000..1_728_000 => format!("{} h", tenths / 36_000),
        _ => format!("{} days", tenths / 864_000),
    }
}

/// Writes the distance of a time from `now`, before or after; `None` from one day on,
/// where a date is more useful.
pub fn distance(at: Timestamp, now: Timestamp) -> Option<String> {
    let seconds = now.duration_since(at).as_secs();
    let text = match seconds.unsigned_abs() {
        span @ 0..60 => format!("{span} s"),
        span @ 60..3600 => format!("{} min", span / 60),
        span @ 3600..86_400 => format!("{} h", span / 3600),
        _ => return None,
    };
    Some(match seconds {
        ..0 => format!("in {text}"),
        _ => format!("{text} ago"),
    })
}

/// Writes a time in UTC, to the minute.
pub fn minute(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours.
    #[test]
    fn numbers_are_written_for_people() {
        for (count, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(number(count), text);
        }
        for (part, whole, text) in [
            (0, 0, "0 %"),
            (1, 1_000_000, "less than 0.1 %"),
            (1, 30, "3.3 %"),
            (29, 72, "40.3 %"),
            (2, 3, "66.7 %"),
            (9_995, 10_000, "more than 99.9 %"),
            (7, 7, "100 %"),
            (u64::MAX - 1, u64::MAX, "more than 99.9 %"),
        ] {
            assert_eq!(percent(part, whole), text);
        }
        for (count, text) in [
            (1, "1 byte"),
            (999, "999 bytes"),
            (1_540, "1.5 kB"),
            (12_000_000, "12 MB"),
        ] {
            assert_eq!(bytes(count), text);
        }
        for (micros, text) in [
            (7_000, "7 ms"),
            (5_040_000, "5.0 s"),
            (60_000_000, "60 s"),
            (300_000_000, "5 min"),
            (10_800_000_000, "3 h"),
            (864_000_000_000, "10 days"),
        ] {
            assert_eq!(duration(micros), text);
        }
        assert_eq!(
            ["1 host", "2 hosts", "0 entries"].map(str::to_owned),
            [counted(1, "host"), counted(2, "host"), counted(0, "entry")],
        );
    }

    // Ours.
    #[test]
    fn a_distance_is_in_the_largest_unit_below_a_day() {
        let now: Timestamp = "2026-11-22T12:00:00Z".parse().unwrap();
        for (at, text) in [
            ("2026-11-22T12:00:00Z", Some("0 s ago")),
            ("2026-11-22T11:59:00.5Z", Some("59 s ago")),
            ("2026-11-22T11:59:00Z", Some("1 min ago")),
            ("2026-11-22T11:00:01Z", Some("59 min ago")),
            ("2026-11-21T12:00:01Z", Some("23 h ago")),
            ("2026-11-21T12:00:00Z", None),
            ("2026-11-22T12:04:10Z", Some("in 4 min")),
            ("2026-12-22T12:00:00Z", None),
        ] {
            assert_eq!(distance(at.parse().unwrap(), now).as_deref(), text, "{at}");
        }
    }

    // Ours.
    #[test]
    fn text_from_outside_is_inert() {
        let hostile = "<script>alert(1)</script>\u{1b}[2J\u{202e}&\"'";
        let markup = foreign(hostile).0 + &code(hostile).0;
        assert!(!markup.contains("<script"), "{markup}");
        assert!(!markup.contains(['\u{1b}', '\u{202e}']), "{markup}");
        assert_eq!(shown(&"a".repeat(500), 10), "aaaaaaaaaa…");
    }

    // Ours: a URL wraps after its punctuation.
    #[test]
    fn long_urls_wrap_between_their_parts() {
        assert_eq!(breakable("GET http://o.test/a").0, "GET http://o.test/a");
        let letters = "a".repeat(LETTERS_MAX);
        for (text, html) in [
            (
                "GET http://o.test/a-long-folder/page?a=1",
                "GET http://<wbr>o.<wbr>test/<wbr>a-long-folder/<wbr>page?<wbr>a=<wbr>1",
            ),
            (&format!("{letters}bc"), &format!("{letters}<wbr>bc")),
            (&format!("{letters}-b"), &format!("{letters}<wbr>-b")),
        ] {
            assert_eq!(breakable(text).0, html);
        }
    }
}
