//! Text of single values: durations, sizes, and TOML on one line.
//!
//! Knows neither keys nor bounds.

use std::borrow::Cow;
use std::time::Duration;

use toml::de::DeValue;

/// Milliseconds in a day, the largest unit of a duration.
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// Units of a duration in milliseconds, largest first.
const DURATION_UNITS: [(&str, u64); 5] = [
    ("d", DAY_MS),
    ("h", 60 * 60 * 1000),
    ("m", 60 * 1000),
    ("s", 1000),
    ("ms", 1),
];

/// Units of a size in bytes, largest first.
const SIZE_UNITS: [(&str, u64); 4] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
];

/// Reads a duration: a whole number and one unit (`250ms`, `10s`, `5m`, `2h`, `30d`).
pub(crate) fn duration(text: &str) -> Option<Duration> {
    quantity(text, &DURATION_UNITS).map(Duration::from_millis)
}

/// Reads a size in bytes: a whole number and one unit (`512B`, `64KiB`, `1MiB`).
pub(super) fn size(text: &str) -> Option<usize> {
    quantity(text, &SIZE_UNITS).and_then(|bytes| bytes.try_into().ok())
}

/// Writes a duration in the form that [`duration`] reads.
pub(super) fn duration_text(duration: Duration) -> String {
    // More than `u64::MAX` milliseconds is beyond every bound we have.
    let ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if ms == 0 {
        return "0s".to_owned();
    }
    // One day is written as 24h, as in the documentation.
    let units = if ms == DAY_MS {
        &DURATION_UNITS[1..]
    } else {
        &DURATION_UNITS[..]
    };
    quantity_text(ms, units)
}

/// Writes a size in the form that [`size`] reads.
pub(super) fn size_text(bytes: usize) -> String {
    if bytes == 0 {
        return "0B".to_owned();
    }
    quantity_text(bytes as u64, &SIZE_UNITS)
}

/// Reads a whole number and a unit as a multiple of the smallest unit.
fn quantity(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits_end = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits_end);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    // An overflowing product would turn a long duration into a short one.
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

/// Writes `amount` in the largest of `units` that divides it. The last unit must be 1.
fn quantity_text(amount: u64, units: &[(&str, u64)]) -> String {
    units
        .iter()
        .find(|(_, factor)| amount.is_multiple_of(*factor))
        .map(|(name, factor)| format!("{}{name}", amount / factor))
        .unwrap_or_default()
}

/// Writes a value as TOML on one line, even if it was written on several.
pub(super) fn inline(value: &DeValue<'_>) -> String {
    inline_with(value, &|text| Cow::Borrowed(text))
}

/// Writes a value as [`inline`] does, with each string replaced by the result of
/// `shown`.
pub(super) fn inline_with(value: &DeValue<'_>, shown: &dyn Fn(&str) -> Cow<'_, str>) -> String {
    match value {
        DeValue::String(text) => quoted(&shown(text)),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(values) => {
            let values = values
                .iter()
                .map(|value| inline_with(value.get_ref(), shown));
            format!("[{}]", values.collect::<Vec<_>>().join(", "))
        }
        DeValue::Table(table) if table.is_empty() => "{}".to_owned(),
        DeValue::Table(table) => {
            let entries = table.iter().map(|(name, value)| {
                let name = name_text(name.get_ref());
                format!("{name} = {}", inline_with(value.get_ref(), shown))
            });
            format!("{{ {} }}", entries.collect::<Vec<_>>().join(", "))
        }
    }
}

/// Returns the value as a message shows it: long values are cut, and possible tokens
/// and passwords are left out.
pub(super) fn excerpt(value: &DeValue<'_>) -> String {
    // About one terminal line; the file and the line number lead to the rest.
    const CHARS: usize = 80;
    let text = without_passwords(&without_tokens(&inline(value)));
    match text.char_indices().nth(CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Replaces with `…` the user name and the password of each URL in `text`, and the
/// query of HTTP URLs, which may contain a token. Such secrets belong in a file, and
/// messages about the mistake go into the log.
fn without_passwords(text: &str) -> String {
    const START: &str = "://";
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(START) {
        let (before, url) = rest.split_at(start + START.len());
        shown.push_str(before);
        let ends = |letter: char| letter.is_whitespace() || matches!(letter, '"' | '\'');
        let (url, after) = url.split_at(url.find(ends).unwrap_or(url.len()));
        rest = after;
        // A slash or an at sign in a password is not always escaped.
        let host = url.rfind('@').unwrap_or_default();
        shown.push_str(if 0 < host { "…" } else { "" });
        // The query of a store's address has no secret, and may be the mistake itself.
        let is_http = before.ends_with("http://") || before.ends_with("https://");
        let query = url[host..].find('?').filter(|_| is_http);
        shown.push_str(&url[host..query.map_or(url.len(), |query| host + query)]);
        shown.push_str(if query.is_some() { "?…" } else { "" });
    }
    shown + rest
}

/// Replaces with `…` each run of at least as many hexadecimal digits as a proxy token
/// has. A token in a configuration is a mistake, because its digest belongs there, and
/// messages about the mistake go into the log.
pub(super) fn without_tokens(text: &str) -> String {
    const DIGITS: usize = 64;
    let is_digit = |byte: char| byte.is_ascii_hexdigit();
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(is_digit) {
        let run = &rest[start..];
        let end = run.find(|letter| !is_digit(letter)).unwrap_or(run.len());
        // Longer runs too: people often paste one digit too many.
        let is_token = DIGITS <= end;
        shown.push_str(&rest[..start]);
        shown.push_str(if is_token { "…" } else { &run[..end] });
        rest = &run[end..];
    }
    shown + rest
}

/// Writes a name for the left side of `=`, quoted if TOML requires it.
pub(super) fn name_text(name: &str) -> String {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if !name.is_empty() && name.bytes().all(bare) {
        name.to_owned()
    } else {
        quoted(name)
    }
}

/// Writes a TOML basic string.
fn quoted(text: &str) -> String {
    let letters = text.chars().map(|c| match c {
        '"' | '\\' => format!("\\{c}"),
        // TOML forbids control characters in a basic string, and in a terminal they
        // could hide the rest of a message.
        c if c.is_control() => format!("\\u{:04X}", u32::from(c)),
        c => c.to_string(),
    });
    format!("\"{}\"", letters.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    macro_rules! durations {
        ($($name:ident: $text:literal is $ms:expr;)+) => {$(
            #[test]
            fn $name() {
                let ms: Option<u64> = $ms;
                assert_eq!(duration($text), ms.map(Duration::from_millis));
                if ms.is_some() {
                    assert_eq!(duration(&duration_text(duration($text).unwrap())), duration($text));
                }
            }
        )+};
    }

    // Ours.
    durations! {
        milliseconds_are_a_unit: "250ms" is Some(250);
        seconds_are_a_unit: "10s" is Some(10_000);
        minutes_are_a_unit: "5m" is Some(300_000);
        hours_are_a_unit: "2h" is Some(7_200_000);
        days_are_a_unit: "30d" is Some(2_592_000_000);
        zero_has_a_unit_too: "0s" is Some(0);
        a_number_without_a_unit_is_no_duration: "10" is None;
        a_unit_without_a_number_is_no_duration: "s" is None;
        a_negative_number_is_no_duration: "-5s" is None;
        a_fraction_is_no_duration: "0.5s" is None;
        a_blank_within_is_no_duration: "5 s" is None;
        units_are_lower_case: "5S" is None;
        a_number_past_its_type_is_no_duration: "99999999999999999999s" is None;
        a_product_past_its_type_is_no_duration: "18446744073709551615d" is None;
        an_empty_text_is_no_duration: "" is None;
    }

    #[test]
    fn sizes_are_read_in_binary_units() {
        assert_eq!(size("512B"), Some(512));
        assert_eq!(size("64KiB"), Some(65_536));
        assert_eq!(size("1MiB"), Some(1_048_576));
        assert_eq!(size("64KB"), None);
        assert_eq!(size("64"), None);
    }

    #[test]
    fn texts_use_the_largest_unit_that_divides_the_amount() {
        assert_eq!(duration_text(Duration::from_secs(90)), "90s");
        assert_eq!(duration_text(Duration::from_secs(86_400)), "24h");
        assert_eq!(duration_text(Duration::from_secs(2 * 86_400)), "2d");
        assert_eq!(duration_text(Duration::ZERO), "0s");
        assert_eq!(size_text(500 << 10), "500KiB");
        assert_eq!(size_text(0), "0B");
    }

    #[test]
    fn values_are_written_as_toml_that_reads_back_the_same() {
        let text = r#"{ "a.b" = [1, 0x1F, 2.5, true], c = "q\"\\\u0007ü", d = 2026-01-01 }"#;
        let once = inline(DeValue::parse(text).unwrap().get_ref());
        let twice = inline(DeValue::parse(&once).unwrap().get_ref());
        assert_eq!(once, twice);
        assert!(once.contains(r#"c = "q\"\\\u0007ü""#), "{once}");
    }

    // Ours: messages about a configuration go into the log.
    #[test]
    fn an_excerpt_has_no_password() {
        let shown = |text: &str| excerpt(&DeValue::String(text.into()));
        for (text, expected) in [
            ("redis://user:secret@store:1/2", "\"redis://…@store:1/2\""),
            (
                "postgres://u:a/b@c@db/x?sslmode=y",
                "\"postgres://…@db/x?sslmode=y\"",
            ),
            ("redis://store/@", "\"redis://…@\""),
            ("https://u:p@a/heads?token=s", "\"https://…@a/heads?…\""),
            ("user@host http://a.test/", "\"user@host http://a.test/\""),
        ] {
            assert_eq!(shown(text), expected);
        }
        let list: DeValue<'_> = DeValue::parse("[\"redis://a:b@c\", \"http://d\"]")
            .unwrap()
            .into_inner();
        assert_eq!(excerpt(&list), "[\"redis://…@c\", \"http://d\"]");
    }

    #[test]
    fn an_excerpt_is_cut_at_80_characters() {
        let long = DeValue::String("ü".repeat(1000).into());
        assert_eq!(excerpt(&long).chars().count(), 81);
    }
}
