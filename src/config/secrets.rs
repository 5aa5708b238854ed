//! Values for people who may see the configuration but not its secrets: digests of
//! credentials, passwords in URLs, and the commands and URLs that heads are exported
//! with.
//!
//! The dashboard shows values as this module returns them. `politesse config show`
//! prints them in full, because its user can read the file anyway. Files that keys name
//! are not read.

use std::borrow::Cow;

use toml::de::DeValue;

use super::values::{inline_with, without_tokens};

/// Sign that replaces a secret.
const LEFT_OUT: char = '…';

/// Key whose commands and URLs may be secret as a whole: a command may have a password
/// among its arguments, and the path of a webhook may be a secret itself.
const EXPORT_KEY: &str = "audit.seal_to";

/// Writes the value of `key` as TOML on one line, with `…` in place of each secret.
pub(super) fn without_secrets(key: &str, value: &DeValue<'_>) -> String {
    inline_with(value, &|text| match export_target(text) {
        Some(target) if key == EXPORT_KEY => Cow::Owned(text_without_secrets(&target)),
        _ => Cow::Owned(text_without_secrets(text)),
    })
}

/// Writes a message or a string with `…` in place of anything that looks like a secret:
/// a token or its digest, and the user name and password in a URL (RFC 3986, section
/// 3.2.1).
pub(crate) fn text_without_secrets(text: &str) -> String {
    let text = without_tokens(text);
    let mut shown = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(start) = rest.find("://") {
        let (scheme, authority) = rest.split_at(start + "://".len());
        shown.push_str(scheme);
        rest = authority;
        let is_end = |letter: char| "/?#\"'<>".contains(letter) || letter.is_whitespace();
        let end = rest.find(is_end).unwrap_or(rest.len());
        // The last at sign: browsers and curl accept a password that contains `@`.
        if let Some(at) = rest.get(..end).and_then(|authority| authority.rfind('@')) {
            shown.push(LEFT_OUT);
            rest = rest.get(at..).unwrap_or_default();
        }
    }
    shown + rest
}

/// Writes a command-line argument with `…` in place of anything that looks like a
/// secret.
pub(crate) fn argument_without_secrets(text: &str) -> String {
    let setting = text.strip_prefix("--set=").unwrap_or(text);
    match setting.split_once('=') {
        Some((key, _)) if key.trim() == EXPORT_KEY => format!("{EXPORT_KEY}={LEFT_OUT}"),
        _ => text_without_secrets(text),
    }
}

/// Returns an export target without its command, or without its path and query; `None`
/// if it is a file.
fn export_target(text: &str) -> Option<String> {
    if text.starts_with("exec:") {
        return Some(format!("exec:{LEFT_OUT}"));
    }
    let (scheme, rest) = text.split_once("://")?;
    Some(match rest.split_once(['/', '?', '#']) {
        Some((authority, rest)) if !rest.is_empty() => format!("{scheme}://{authority}/{LEFT_OUT}"),
        _ => text.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(key: &str, value: &str) -> String {
        without_secrets(key, DeValue::parse(value).unwrap().get_ref())
    }

    // Ours.
    #[test]
    fn secrets_in_a_value_are_left_out() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        let crawler = format!(r#"[{{ token = "FooBot", credential = "{digest}" }}]"#);
        for (key, value, expected) in [
            (
                "crawler",
                &*crawler,
                r#"[{ credential = "sha256:…", token = "FooBot" }]"#,
            ),
            (
                "audit.seal_to",
                r#"["exec:curl -H 'X: 1' https://a.test", "heads", "https://a.test"]"#,
                r#"["exec:…", "heads", "https://a.test"]"#,
            ),
            (
                "audit.seal_to",
                r#"["https://u:p@a.test:8443/hook/123?key=4", "https://a.test/?k"]"#,
                r#"["https://…@a.test:8443/…", "https://a.test/…"]"#,
            ),
            (
                "proxy.contact",
                r#""https://a.test/contact?crawl""#,
                r#""https://a.test/contact?crawl""#,
            ),
            (
                "proxy.contact",
                r#""http://u:p@q@a.test/ and ftp://v@b.test""#,
                r#""http://…@a.test/ and ftp://…@b.test""#,
            ),
            ("proxy.contact", r#""crawl@a.test""#, r#""crawl@a.test""#),
        ] {
            assert_eq!(shown(key, value), expected);
        }
    }
}
