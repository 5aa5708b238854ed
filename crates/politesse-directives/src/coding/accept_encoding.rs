//! `Accept-Encoding` of a request, reduced to the codings that we decode.
//!
//! RFC 9110, section 12.5.3. A page in a coding that we do not decode cannot be
//! scanned, so such codings are not requested. None is added: a crawler gets no coding
//! that it did not name. Does not decode anything.

use std::borrow::Cow;

/// Codings that are decoded, and `identity`, which needs no decoding.
const DECODED: [&str; 6] = ["gzip", "x-gzip", "deflate", "br", "zstd", "identity"];

/// Member of the field (`br;q=0.8`).
#[derive(Debug, Clone, Copy)]
struct CodingMember<'a> {
    text: &'a [u8],
    /// Name of the coding; empty if the member is malformed.
    coding: &'a [u8],
    /// Whether its weight is 0: not acceptable.
    is_refused: bool,
}

/// Returns the `Accept-Encoding` lines to send upstream, one for each of the crawler's.
/// A line that needs no change is borrowed.
///
/// Members keep their order, weight and spelling. Dropped are codings that we do not
/// decode, malformed members, and `*`, which stands for every coding not named; `*;q=0`
/// stays, since it only forbids. If no member is left, the first line becomes
/// `identity`, because without the field the origin may use any coding. An empty value
/// stays; it means the same as `identity`.
///
/// If a crawler refuses `identity` and every coding that we decode, the lines stay as
/// they are: it could not read any other response, and the annotation says that the
/// page was not scanned.
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

/// Reports whether a line names only codings that we decode, so that
/// [`narrow_accept_encoding`] would leave it unchanged. Most lines do.
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

/// Reports whether the kept members leave nothing acceptable, not even `identity`,
/// which is acceptable unless a member refuses it.
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

/// Reads the number of a weight (`q=0.5`; RFC 9110, section 12.4.2). Returns `None` if
/// the parameter is not a weight.
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
        no_lines_stay_no_lines: => ;
        an_empty_value_stays: "" => "";
        decoded_codings_stay_as_written:
            "GZip,deflate ;q=0.5,\tbr; Q=1.000,, zstd" => "GZip,deflate ;q=0.5,\tbr; Q=1.000,, zstd";
        other_codings_are_dropped:
            "gzip, deflate,br , zstd;q=0.9, dcb, dcz" => "gzip, deflate, br, zstd;q=0.9";
        a_line_without_decoded_codings_becomes_empty: "dcb", "x-gzip;q=0." => "", "x-gzip;q=0.";
        lines_with_nothing_left_become_identity: "dcb, *", "compress" => "identity", "";
        a_wildcard_is_dropped: "gzip;q=0, *" => "gzip;q=0";
        a_forbidding_wildcard_stays: "gzip, dcb, *;q=0" => "gzip, *;q=0";
        malformed_members_are_dropped:
            "gzip;q=2, gzip;level=9, g zip, br;q=0.1234, br;q, zstd;q=1.1, identity" => "identity";
        a_refusal_of_identity_stays: "br, dcb, identity;q=0" => "br, identity;q=0";
        a_crawler_that_accepts_only_other_codings_keeps_its_lines:
            "dcb, gzip;q=0", "identity;q=0.000" => "dcb, gzip;q=0", "identity;q=0.000";
        a_crawler_that_refuses_all_other_codings_keeps_its_lines: "dcb, *;q=0" => "dcb, *;q=0";
        a_named_identity_outweighs_the_wildcard: "dcb, identity, *;q=0" => "identity, *;q=0";
    }
}
