//! Parser of case files: JSON Lines, each case with its own keys.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

pub(crate) fn cases(file: &str) -> Vec<Value> {
    let lines = file.lines().map(serde_json::from_str);
    lines.collect::<Result<_, _>>().unwrap()
}

pub(crate) fn text<'a>(case: &'a Value, key: &str) -> &'a str {
    case[key]
        .as_str()
        .unwrap_or_else(|| panic!("{key} in {case}"))
}

/// Returns the robots.txt of a case, which is in base64 if it is not valid text.
pub(crate) fn body(case: &Value) -> Vec<u8> {
    match case["robots_b64"].as_str() {
        Some(encoded) => BASE64_STANDARD.decode(encoded).unwrap(),
        None => text(case, "robots").into(),
    }
}
