//! Generator of questions from parts that have a meaning in robots.txt.
//!
//! Random bytes hardly ever make a rule, let alone one that matches. Here the bytes
//! choose among parts instead, and half of the paths are made from a rule of the file.

use arbitrary::{Result, Unstructured};

use crate::question::Question;

/// Most lines of a file that has every kind of line.
const LINES_MAX: usize = 40;

/// Most rules of a file that has rules only.
const RULES_MAX: usize = 60;

/// Parts of paths.
#[rustfmt::skip]
const PARTS: &[&str] = &[
    "/", "/", "a", "b", "ab", "A", "*", "*", "$", "?", "=", "&", ".", "%", "%2F",
    "%2f", "%61", "%3D", "%3d", "%26", "%3F", "%2A", "%24", "%25", "%7E", "~", "%41",
    "%zz", "%4", "\u{e9}", "%C3%A9", "%c3%a9", "[ab]", "[!a]", "[a-c]", "[", "]", "-",
    "\\", "%5B", "%5D", "%5C", "%2D", "%21", "!", "^", ":", "%3A", "+", ";", " ", "%20", "index.html", "robots.txt", "/index.htm",
    "\u{a0}", "\u{200b}", "\u{200e}",
];

#[rustfmt::skip]
const NAMES: &[&str] = &[
    "a", "A-b", "ab", "a2", "a.b", "Foo", "foo-bar", "x_y", "a b", "MJ12bot",
    "008", "J", "J\u{e4}-a", "J\u{e4}-b",
];

const AGENT_KEYS: &[&str] = &[
    "User-agent: ",
    "useragent:",
    "User-agent ",
    "User agent: ",
    "\u{feff}User-agent: ",
    "User\u{2011}agent\u{ff1a}",
    "User-agent: a Disallow: /",
    "User-agent: \"*\" # ",
];

#[rustfmt::skip]
const RULE_KEYS: &[&str] = &[
    "Disallow: ", "Allow: ", "Disallow: ", "Allow: ", "Disallow:", "disallow : ",
    "\u{200b}Disallow: ", "Disallow\u{ff1a}", "Disallow: \u{a0}", "\u{200b}Allow: ",
    "DISALOW: ", "Disallow ", "Disallow-x: ", "Allow-x:", "allowed: ", "disallowed:",
];

#[rustfmt::skip]
const OTHER_LINES: &[&str] = &[
    "", "", " ", "# x", " # x", "Sitemap: /x", "Crawl-delay: 3", "Crawl-delay: x", "x",
    "x y z", "Foo: bar", "Disallow", ":", ": /", "\u{0}", "Disallow: /a\u{0}b", "\u{b}",
    "Request-rate: 1/5s", "Visit-time: 0100-0230", "noindex: /a", "<html>",
];

const LINE_ENDS: &[&str] = &["\n", "\n", "\r\n", "\r", " # c\n", " \n", "\n\n"];

#[rustfmt::skip]
const MARKS: &[&[u8]] = &[
    b"", b"", b"", b"\xEF\xBB\xBF", b"\xEF\xBB", b"\xEF", b"\xFF\xFE", b"\xFE\xFF",
];

/// Returns a question about a file with every kind of line, or about one with many
/// wildcards.
///
/// # Errors
///
/// If no more values can be drawn from `bytes`.
pub fn question(bytes: &mut Unstructured<'_>) -> Result<Question> {
    let mut values = Vec::new();
    let body = if bytes.ratio(1, 4)? {
        rules_alone(bytes, &mut values)?
    } else {
        lines(bytes, &mut values)?
    };
    let agent = (*bytes.choose(NAMES)?).to_owned();
    let path = match values.is_empty() || bytes.arbitrary()? {
        true => format!("/{}", path_like(bytes, 12)?),
        false => fitting(bytes.choose(&values)?, bytes)?,
    };
    Ok(Question { body, agent, path })
}

/// Returns a file with every kind of line, and adds the paths of its rules to `values`.
fn lines(bytes: &mut Unstructured<'_>, values: &mut Vec<String>) -> Result<Vec<u8>> {
    let mut body = bytes.choose(MARKS)?.to_vec();
    for _ in 0..bytes.int_in_range(1..=LINES_MAX)? {
        if bytes.is_empty() {
            break;
        }
        body.extend(line(bytes, values)?.into_bytes());
        body.extend_from_slice(bytes.choose(LINE_ENDS)?.as_bytes());
    }
    Ok(body)
}

fn line(bytes: &mut Unstructured<'_>, values: &mut Vec<String>) -> Result<String> {
    Ok(match bytes.int_in_range(0..=10)? {
        0..=5 => {
            let value = value(bytes)?;
            values.push(value.clone());
            format!("{}{value}", bytes.choose(RULE_KEYS)?)
        }
        6..=8 => format!("{}{}", bytes.choose(AGENT_KEYS)?, name(bytes)?),
        _ => (*bytes.choose(OTHER_LINES)?).to_owned(),
    })
}

/// Returns the value of an agent line.
fn name(bytes: &mut Unstructured<'_>) -> Result<String> {
    let name = bytes.choose(NAMES)?;
    Ok(match bytes.int_in_range(0..=11)? {
        0..=2 => "*".to_owned(),
        3 => format!("{name}/1.0"),
        4 => format!("{name}*"),
        5 => String::new(),
        6 => "* x".to_owned(),
        7 => format!("{name} /1"),
        _ => (*name).to_owned(),
    })
}

/// Returns the path of a rule.
fn value(bytes: &mut Unstructured<'_>) -> Result<String> {
    let first = bytes.choose(&["/", "/", "/", "*", ""])?;
    Ok(format!("{first}{}", path_like(bytes, 8)?))
}

fn path_like(bytes: &mut Unstructured<'_>, parts_max: usize) -> Result<String> {
    let mut path = String::new();
    for _ in 0..bytes.int_in_range(0..=parts_max)? {
        path.push_str(bytes.choose(PARTS)?);
    }
    Ok(path)
}

/// Returns a file with one group. Most of its rules have wildcards and begin alike, so
/// that the engine does not try them one by one.
fn rules_alone(bytes: &mut Unstructured<'_>, values: &mut Vec<String>) -> Result<Vec<u8>> {
    let mut body = b"User-agent: *\n".to_vec();
    for _ in 0..bytes.int_in_range(1..=RULES_MAX)? {
        if bytes.is_empty() {
            break;
        }
        let key = bytes.choose(&RULE_KEYS[..4])?;
        let head = bytes.choose(&["/", "/", "/a", "*", "/ab"])?;
        let value = format!("{head}*{}", path_like(bytes, 6)?);
        body.extend(format!("{key}{value}\n").into_bytes());
        values.push(value);
    }
    Ok(body)
}

/// Returns a path that the rule with this value matches, or nearly matches.
///
/// # Errors
///
/// If no more values can be drawn from `bytes`.
pub fn fitting(value: &str, bytes: &mut Unstructured<'_>) -> Result<String> {
    let mut path = String::new();
    for letter in value.chars() {
        match letter {
            '*' => path.push_str(&path_like(bytes, 2)?),
            '$' => {}
            _ if bytes.int_in_range(0..=15)? == 15 => {
                let mut bytes = [0; 4];
                let written = letter.encode_utf8(&mut bytes).bytes();
                path.extend(written.map(|byte| format!("%{byte:02X}")));
            }
            _ => path.push(letter),
        }
    }
    if bytes.arbitrary()? {
        path.push_str(&path_like(bytes, 4)?);
    }
    Ok(path)
}
