//! `Accept-Encoding` of a request, without the codings that are not decoded.
//!
//! RFC 9110, section 12.5.3. A page under a coding that is not decoded cannot be
//! scanned, so such codings are not asked for. None is added: a crawler gets no
//! coding that it did not name. Does not decode anything.

use std::borrow::Cow;

/// Codings that are decoded, and `identity`, which needs no decoding.
const DECODED: [&str; 6] = ["gzip", "x-gzip", "deflate", "br", "zstd", "identity"];

/// CodingMember of the field (`br;q=0.8`).
#[derive(Debug, Clone, Copy)]
struct CodingMember<'a> {
    text: &'a [u8],
    /// Name of the coding; empty if the member is malformed.
    coding: &'a [u8],
    /// Whether its weight is 0: not acceptable.
    is_refused: bool,
}

/// Returns the `Accept-Encoding` lines to send in place of a crawler's, one for
/// each. A line that needs no change is borrowed.
///
/// Members keep their order, weight and spelling. Those for codings that are
/// not decoded are dropped, malformed ones too, and `*`, which stands for every
/// coding not named; `*;q=0` stays, since it only forbids. If nothing is left,
/// the first line becomes `identity`: without a field any coding may be used. An
/// empty value stays; it means the same as `identity`.
///
/// If a crawler accepts nothing that is decoded and refuses `identity`, the
/// lines stay as they are: it could not read any other answer, and the
/// annotation says that the page was not scanned.
pub fn narrow_accept_encoding<'a>(lines: &[&'a [u8]]) -> Vec<Cow<'a, [u8]>> {
    let unchanged = || lines.iter().copied().map(Cow::Borrowed);
    let kept = || lines.iter().flat_map(|line| members(line)).filter(is_kept);
    if refuses_all(kept) {
        return unchanged().collect();
    }
    let mut narrow: Vec<_> = lines.iter().copied().map(narrow_line).collect();
    let is_changed = narrow.iter().any(|line| matches!(line, Cow::Owned(_)));
    if let (true, None, Some(first)) = (is_changed, kept().next(), narrow.first_mut()) {
        *first = Cow::Borrowed(b"identity");
    }
    narrow
}

/// Reports whether a line names only codings that are decoded, so that
/// [`narrow_accept_encoding`] would leave it as it is. Most lines do.
pub fn accepts_only_decoded(line: &[u8]) -> bool {
    members(line).all(|member| is_kept(&member))
}

/// Returns a line without the members that are dropped.
fn narrow_line(line: &[u8]) -> Cow<'_, [u8]> {
    if accepts_only_decoded(line) {
        return Cow::Borrowed(line);
    }
    let kept = members(line).filter(is_kept);
    let kept: Vec<&[u8]> = kept.map(|member| member.text).collect();
    Cow::Owned(kept.join(&b", "[..]))
}

fn is_kept(member: &CodingMember<'_>) -> bool {
    let is_decoded = |name: &&str| member.is(name);
    member.is("*") && member.is_refused || DECODED.iter().any(is_decoded)
}

/// Whether the members that are kept leave nothing acceptable, not even
/// `identity`, which is acceptable unless a member refuses it.
fn refuses_all<'a, I: Iterator<Item = CodingMember<'a>>>(kept: impl Fn() -> I) -> bool {
    let is_identity_refused = match kept().find(|member| member.is("identity")) {
        Some(identity) => identity.is_refused,
        None => kept().any(|member| member.is("*")),
    };
    is_identity_refused && kept().all(|member| member.is_refused)
}

/// Reads the members of a line.
fn members(line: &[u8]) -> impl Iterator<Item = CodingMember<'_>> {
    let members = line.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
    members
        .filter(|text| !text.is_empty())
        .map(CodingMember::of)
}

impl<'a> CodingMember<'a> {
    fn of(text: &'a [u8]) -> Self {
        let mut parts = text.splitn(2, |&byte| byte == b';');
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

/// Reads the number of a weight (`q=0.5`; RFC 9110, section 12.4.2). `None` if
/// the parameter is no weight.
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
                let narrow = narrow_accept_encoding(&lines);
                let narrow = narrow.iter().map(|line| String::from_utf8_lossy(line));
                assert_eq!(narrow.collect::<Vec<_>>(), expected);
            }
        )*};
    }

    // RFC 9110, section 12.5.3.
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
