//! Which codings an origin may use, of those that a crawler accepts
//! (`Accept-Encoding`).
//!
//! RFC 9110, section 12.5.3. A page whose coding is not decoded cannot be
//! looked at, so such codings are not asked for. Nothing is added: a crawler
//! gets no coding that it did not name.

use std::borrow::Cow;

/// Codings that are decoded, and none at all.
const DECODED: [&str; 6] = ["gzip", "x-gzip", "deflate", "br", "zstd", "identity"];

/// One member of the field (`br;q=0.8`).
#[derive(Debug, Clone, Copy)]
struct Member<'a> {
    text: &'a [u8],
    coding: &'a [u8],
    /// Whether its weight is 0: not acceptable.
    is_refused: bool,
}

/// The `Accept-Encoding` field lines to send in place of a crawler's, one for
/// one: no line stays none, and a line that needs no change is borrowed.
///
/// Members keep their order, weight and spelling. Those for codings that are
/// not decoded are dropped, malformed ones too, and `*`, which stands for
/// every coding not named; `*;q=0` stays, since it only forbids. If nothing is
/// left the first line becomes `identity`: an absent field would mean any
/// coding at all. An empty value stays; it means the same as `identity`.
///
/// A crawler that accepts nothing that is decoded and refuses `identity` gets
/// what it asks for: the lines stay as they are. What it can do with another
/// answer is nothing, and a page that was not looked at says so.
pub fn narrowed<'a>(lines: &[&'a [u8]]) -> Vec<Cow<'a, [u8]>> {
    let unchanged = || lines.iter().copied().map(Cow::Borrowed);
    let kept = || lines.iter().flat_map(|line| members(line)).filter(is_kept);
    if refuses_all(kept) {
        return unchanged().collect();
    }
    let mut narrowed: Vec<_> = lines.iter().copied().map(narrowed_line).collect();
    let is_emptied = narrowed.iter().any(|line| matches!(line, Cow::Owned(_)));
    if let (true, None, Some(first)) = (is_emptied, kept().next(), narrowed.first_mut()) {
        *first = Cow::Borrowed(b"identity");
    }
    narrowed
}

/// A line without the members that are dropped.
fn narrowed_line(line: &[u8]) -> Cow<'_, [u8]> {
    if members(line).all(|member| is_kept(&member)) {
        return Cow::Borrowed(line);
    }
    let kept = members(line).filter(is_kept);
    let kept: Vec<&[u8]> = kept.map(|member| member.text).collect();
    Cow::Owned(kept.join(&b", "[..]))
}

fn is_kept(member: &Member<'_>) -> bool {
    let is_decoded = |name: &&str| member.is(name);
    member.is("*") && member.is_refused || DECODED.iter().any(is_decoded)
}

/// Whether the members that are kept leave nothing acceptable, not even
/// `identity`, which is acceptable unless it is refused.
fn refuses_all<'a, I: Iterator<Item = Member<'a>>>(kept: impl Fn() -> I) -> bool {
    let is_identity_refused = match kept().find(|member| member.is("identity")) {
        Some(identity) => identity.is_refused,
        None => kept().any(|member| member.is("*")),
    };
    is_identity_refused && kept().all(|member| member.is_refused)
}

/// The members of a line; malformed ones have an empty name.
fn members(line: &[u8]) -> impl Iterator<Item = Member<'_>> {
    let members = line.split(|&octet| octet == b',').map(<[u8]>::trim_ascii);
    members.filter(|text| !text.is_empty()).map(Member::of)
}

impl<'a> Member<'a> {
    fn of(text: &'a [u8]) -> Self {
        let mut parts = text.splitn(2, |&octet| octet == b';');
        let coding = parts.next().unwrap_or_default().trim_ascii_end();
        let is_refused = match parts.next().map(weight) {
            None => Some(false),
            Some(weight) => weight.map(|digits| digits.iter().all(|digit| b"0.".contains(digit))),
        };
        Self {
            text,
            coding: if is_refused.is_some() { coding } else { b"" },
            is_refused: is_refused.unwrap_or_default(),
        }
    }

    fn is(&self, name: &str) -> bool {
        self.coding.eq_ignore_ascii_case(name.as_bytes())
    }
}

/// The number of a weight (`q=0.5`), if it is one (RFC 9110, section 12.4.2).
fn weight(parameter: &[u8]) -> Option<&[u8]> {
    let (name, number) = parameter.trim_ascii().split_at_checked(2)?;
    let (whole, fraction) = match number {
        [whole] => (*whole, &[][..]),
        [whole, b'.', fraction @ ..] => (*whole, fraction),
        _ => return None,
    };
    let highest = match whole {
        b'0' => b'9',
        b'1' => b'0',
        _ => return None,
    };
    let is_fraction = fraction.len() <= 3
        && fraction
            .iter()
            .all(|digit| (b'0'..=highest).contains(digit));
    (name.eq_ignore_ascii_case(b"q=") && is_fraction).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    macro_rules! narrowing {
        ($($name:ident: $($lines:literal),* => $($narrowed:literal),*;)*) => {$(
            #[test]
            fn $name() {
                let lines: &[&str] = &[$($lines),*];
                let lines: Vec<&[u8]> = lines.iter().map(|line| line.as_bytes()).collect();
                let expected: &[&str] = &[$($narrowed),*];
                let narrowed = narrowed(&lines);
                let narrowed = narrowed.iter().map(|line| String::from_utf8_lossy(line));
                assert_eq!(narrowed.collect::<Vec<_>>(), expected);
            }
        )*};
    }

    // RFC 9110, section 12.5.3; directives.md, 4.4.
    narrowing! {
        no_line_stays_none: => ;
        an_empty_value_stays: "" => "";
        what_is_decoded_stays_as_written:
            "GZip,deflate ;q=0.5,\tbr; Q=1.000,, zstd" => "GZip,deflate ;q=0.5,\tbr; Q=1.000,, zstd";
        what_is_not_decoded_is_dropped:
            "gzip, deflate,br , zstd;q=0.9, dcb, dcz" => "gzip, deflate, br, zstd;q=0.9";
        a_line_of_its_own_becomes_empty: "dcb", "x-gzip;q=0." => "", "x-gzip;q=0.";
        nothing_left_becomes_identity: "dcb, *", "compress" => "identity", "";
        anything_but_what_is_named_is_dropped: "gzip;q=0, *" => "gzip;q=0";
        nothing_but_what_is_named_stays: "gzip, dcb, *;q=0" => "gzip, *;q=0";
        malformed_members_are_dropped:
            "gzip;q=2, gzip;level=9, g zip, br;q=0.1234, br;q, zstd;q=1.1, identity" => "identity";
        a_refusal_of_identity_stays: "br, dcb, identity;q=0" => "br, identity;q=0";
        a_crawler_that_takes_only_what_is_not_decoded_gets_it:
            "dcb, gzip;q=0", "identity;q=0.000" => "dcb, gzip;q=0", "identity;q=0.000";
        so_does_one_that_refuses_all_else: "dcb, *;q=0" => "dcb, *;q=0";
        identity_outweighs_all_else: "dcb, identity, *;q=0" => "identity, *;q=0";
    }
}
