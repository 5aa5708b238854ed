//! Which of several representations of a resource a response is.
//!
//! An origin that negotiates says by which fields of the request (`Vary`; RFC
//! 9110, section 12.5.5). Two representations may have been modified in the
//! same second, so that a date alone does not tell one from the other.

use http::header::{ACCEPT_ENCODING, AUTHORIZATION, COOKIE, VARY};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::decision::digest::Digest;

/// What of a request selected a representation.
#[derive(Debug, Clone)]
pub struct VaryKey {
    /// The fields that the response names; none if nobody can say which.
    by: Option<Box<[HeaderName]>>,
    values: Digest,
}

/// More names are not kept.
const NAMES_MAX: usize = 16;

impl VaryKey {
    /// What the response of these fields says was selected by, in the request
    /// that `asked`.
    pub fn of(got: &HeaderMap, asked: &HeaderMap) -> Self {
        let by = names(got);
        let values = values(by.as_deref().unwrap_or_default(), asked);
        Self { by, values }
    }

    /// Whether a request that `asked` selects the same.
    pub fn is_selected_by(&self, asked: &HeaderMap) -> bool {
        let by = self.by.as_deref();
        by.is_some_and(|by| values(by, asked) == self.values)
    }

    /// About how many bytes it takes beside its own.
    pub fn bytes(&self) -> usize {
        let names = self.by.iter().flatten();
        names
            .map(|name| size_of::<HeaderName>() + name.as_str().len())
            .sum()
    }
}

/// The names in `Vary`. Codings are left out: what a page says is the same in
/// each of them.
fn names(got: &HeaderMap) -> Option<Box<[HeaderName]>> {
    let mut names = Vec::new();
    let lines = got.get_all(VARY).into_iter().map(HeaderValue::as_bytes);
    for name in lines.flat_map(|line| line.split(|&byte| byte == b',')) {
        let name = name.trim_ascii();
        if name.is_empty() {
            continue;
        }
        let name = HeaderName::from_bytes(name).ok();
        let name = name.filter(|name| name != "*" && names.len() < NAMES_MAX)?;
        if name != ACCEPT_ENCODING && !names.contains(&name) {
            names.push(name);
        }
    }
    // Few origins name these, and most pages depend on them that are sent to
    // somebody.
    for name in [COOKIE, AUTHORIZATION] {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Some(names.into())
}

/// The digest of what a request says in these fields.
fn values(names: &[HeaderName], asked: &HeaderMap) -> Digest {
    let mut text = Vec::new();
    for name in names {
        for value in asked.get_all(name) {
            text.extend_from_slice(name.as_str().as_bytes());
            text.push(b':');
            text.extend_from_slice(value.as_bytes());
            text.push(b'\n');
        }
    }
    Digest::of(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let fields = fields.iter().map(|&(name, value)| {
            let name = HeaderName::from_static(name);
            (name, HeaderValue::from_static(value))
        });
        fields.collect()
    }

    macro_rules! same {
        ($($name:ident: $vary:expr; $first:expr, $second:expr => $same:literal;)*) => {$(
            #[test]
            fn $name() {
                let selected = VaryKey::of(&map(&$vary), &map(&$first));
                assert_eq!(selected.is_selected_by(&map(&$second)), $same);
            }
        )*};
    }

    // RFC 9110, section 12.5.5; RFC 9111, section 4.1.
    same! {
        without_vary_there_is_one: []; [("x", "a")], [] => true;
        who_is_known_may_get_another: []; [("cookie", "a")], [("cookie", "b")] => false;
        who_is_let_in_may_get_another: []; [("authorization", "a")], [] => false;
        a_field_that_is_named_selects: [("vary", "a, Cookie")]; [("cookie", "a")], [("cookie", "b")] => false;
        one_that_is_missing_selects_too: [("vary", "cookie")]; [("cookie", "a")], [] => false;
        one_that_is_the_same_selects_the_same: [("vary", "cookie")]; [("cookie", "a")], [("cookie", "a"), ("x", "")] => true;
        every_line_counts: [("vary", "x"), ("vary", "cookie")]; [("cookie", "a")], [] => false;
        codings_say_the_same: [("vary", "Accept-Encoding")]; [("accept-encoding", "br")], [] => true;
        an_asterisk_is_anything: [("vary", "*")]; [], [] => false;
    }
}
