//! How long a crawler says that it waits.
//!
//! RFC 7240, section 4.3: `Prefer: wait=10`. It only shortens what the operator
//! allows.

use std::time::Duration;

use http::{HeaderMap, HeaderName};

const PREFER: HeaderName = HeaderName::from_static("prefer");

/// The wait that is preferred; the first counts where there are several (RFC
/// 7240, section 2).
pub(super) fn preferred(fields: &HeaderMap) -> Option<Duration> {
    let values = fields.get_all(PREFER).iter();
    let preferences = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| parts(value, ','));
    let waits = preferences.filter_map(|preference| {
        let stated = parts(preference, ';').next()?;
        let (name, value) = stated.split_once('=')?;
        let is_wait = name.trim().eq_ignore_ascii_case("wait");
        is_wait.then(|| value.trim().trim_matches('"').to_owned())
    });
    let first = waits.into_iter().next()?;
    let is_number = !first.is_empty() && first.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| Duration::from_secs(first.parse().unwrap_or(u64::MAX)))
}

/// What stands between separators, which a quoted string may hold too (RFC
/// 9110, section 5.6.4).
fn parts(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    text.split(move |letter: char| {
        let was_escaped = std::mem::take(&mut is_escaped);
        is_quoted ^= letter == '"' && !was_escaped;
        is_escaped = is_quoted && letter == '\\' && !was_escaped;
        letter == separator && !is_quoted
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[&str]) -> Option<u64> {
        let mut fields = HeaderMap::new();
        for value in values {
            fields.append(PREFER, value.parse().unwrap());
        }
        preferred(&fields).map(|wait| wait.as_secs())
    }

    // RFC 7240, sections 2 and 4.3.
    #[test]
    fn the_first_wait_counts() {
        assert_eq!(of(&["wait=10"]), Some(10));
        assert_eq!(of(&["respond-async, Wait = \"5\"; x=y", "wait=7"]), Some(5));
        assert_eq!(of(&["return=minimal", "wait=0"]), Some(0));
        assert_eq!(of(&[r#"a="b, wait=0", wait=5"#]), Some(5));
        assert_eq!(of(&[r#"a="\", wait=0"; b="c, wait=1", wait=6"#]), Some(6));
        assert_eq!(of(&[r#"a="b, wait=0"#]), None);
        assert_eq!(of(&["wait=99999999999999999999"]), Some(u64::MAX));
        for value in ["", "wait", "wait=", "wait=-1", "wait=1.5", "waiting=3"] {
            assert_eq!(of(&[value]), None, "{value}");
        }
    }
}
