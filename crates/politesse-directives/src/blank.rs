//! Whether text is blank once its references are decoded (`&#32;`, `&Tab;`).
//!
//! Blank text leaves a head open, anything else ends it (HTML standard,
//! 13.2.6.4.4). Text comes in pieces, and a reference may lie across two.

/// Reads text that may be blank.
#[derive(Debug, Default)]
pub(super) struct Blank {
    reference: Option<Reference>,
}

/// The beginning of a character reference (HTML standard, 13.2.5.72).
#[derive(Debug, Clone, Copy)]
enum Reference {
    /// `&` alone.
    Start,
    /// `&Ta`: as far as it fits, and how long it is.
    Named([u8; NAME_BYTES], usize),
    /// `&#3`: its number, once there is a digit.
    Number(u32, Option<u32>),
}

/// The longest name of a blank.
const NAME_BYTES: usize = 7;

impl Blank {
    /// Takes in more text. False once it is not blank.
    pub(super) fn take(&mut self, text: &[u8]) -> bool {
        text.iter().all(|&octet| self.take_octet(octet))
    }

    /// Notes that the text has ended. False if what was left is not blank.
    pub(super) fn end(&mut self) -> bool {
        match self.reference.take() {
            None => true,
            Some(Reference::Number(_, Some(number))) => is_blank(number),
            Some(Reference::Start | Reference::Named(..) | Reference::Number(_, None)) => false,
        }
    }

    fn take_octet(&mut self, octet: u8) -> bool {
        match self.reference {
            None => self.take_plain(octet),
            Some(Reference::Start) => self.begin(octet),
            // It goes on as long as it could be a name, so that the answer
            // comes no sooner than a parser has one.
            Some(Reference::Named(name, length)) if octet.is_ascii_alphanumeric() => {
                self.reference = Some(longer(name, length, octet));
                true
            }
            Some(Reference::Named(name, length)) => {
                self.reference = None;
                let name = name.get(..length).unwrap_or_default();
                octet == b';' && (name == b"Tab" || name == b"NewLine")
            }
            Some(Reference::Number(radix, number)) => self.take_digit(octet, (radix, number)),
        }
    }

    fn take_plain(&mut self, octet: u8) -> bool {
        if octet == b'&' {
            self.reference = Some(Reference::Start);
        }
        octet == b'&' || octet.is_ascii_whitespace()
    }

    fn begin(&mut self, octet: u8) -> bool {
        self.reference = match octet {
            b'#' => Some(Reference::Number(10, None)),
            _ if octet.is_ascii_alphanumeric() => Some(longer([0; NAME_BYTES], 0, octet)),
            _ => None,
        };
        self.reference.is_some()
    }

    fn take_digit(&mut self, octet: u8, (radix, number): (u32, Option<u32>)) -> bool {
        if let Some(digit) = char::from(octet).to_digit(radix) {
            let longer = number.unwrap_or(0).saturating_mul(radix);
            let number = longer.saturating_add(digit);
            self.reference = Some(Reference::Number(radix, Some(number)));
            return true;
        }
        if matches!(octet, b'x' | b'X') && radix == 10 && number.is_none() {
            self.reference = Some(Reference::Number(16, None));
            return true;
        }
        self.end() && (octet == b';' || self.take_plain(octet))
    }
}

fn longer(mut name: [u8; NAME_BYTES], length: usize, octet: u8) -> Reference {
    if let Some(place) = name.get_mut(length) {
        *place = octet;
    }
    Reference::Named(name, length + 1)
}

/// Whether the character of this number is blank (HTML standard, 13.2.6.4.4).
fn is_blank(number: u32) -> bool {
    u8::try_from(number).is_ok_and(|octet| octet.is_ascii_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;

    macro_rules! texts {
        ($($name:ident: $text:literal is $blank:literal;)*) => {$(
            #[test]
            fn $name() {
                let text: &[u8] = $text.as_ref();
                let mut whole = Blank::default();
                assert_eq!(whole.take(text) && whole.end(), $blank);
                let mut cut = Blank::default();
                let mut octets = text.chunks(1);
                assert_eq!(octets.all(|octet| cut.take(octet)) && cut.end(), $blank);
            }
        )*};
    }

    // HTML standard, 13.2.6.4.4 and 13.2.5.72 to 13.2.5.80.
    texts! {
        nothing_is_blank: "" is true;
        five_octets_are_blank: " \t\n\r\x0C" is true;
        a_vertical_tab_is_not: "\x0B" is false;
        a_nul_is_not: "\0" is false;
        a_no_break_space_is_not: "\u{A0}" is false;
        numbers_of_blanks_are: "&#32;&#x9;&#X0a;&#0012;&#13;" is true;
        a_number_needs_no_semicolon: "&#32 &#x20" is true;
        two_names_are: "&Tab;&NewLine;" is true;
        names_need_their_semicolon_and_case: "&Tab" is false;
        a_name_in_another_case_is_not: "&tab;" is false;
        a_longer_name_is_not: "&NewLines;" is false;
        an_ampersand_is_not: " & " is false;
        an_ampersand_at_the_end_is_not: "&" is false;
        a_number_without_digits_is_not: "&#;" is false;
        a_number_without_hexadecimal_digits_is_not: "&#x" is false;
        another_number_is_not: "&#160;" is false;
        a_great_number_is_not: "&#4294967328;" is false;
    }
}
