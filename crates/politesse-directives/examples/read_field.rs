//! Reads the field `Robots-Directives` to learn whether one crawler may index the page.
//!
//! `cargo run -p politesse-directives --example read_field -- foobot 'foobot=(noindex;src=m);state=complete'`

#![expect(clippy::print_stdout, reason = "its output is its result")]

use sfv::{Dictionary, ListEntry, Parser, token_ref};

/// Reports whether the crawler may index the page; `None` if the field does not say.
pub(crate) fn may_index(field: Option<&str>, crawler: &str) -> Option<bool> {
    let said: Dictionary = Parser::new(field?).parse().ok()?;
    let ListEntry::InnerList(listed) = said.get(crawler).or_else(|| said.get("*"))? else {
        return None;
    };
    let mut names = listed.items.iter().map(|item| item.bare_item.as_token());
    if names.any(|name| name == Some(token_ref("noindex"))) {
        return Some(false);
    }
    let state = listed.params.get("state")?.as_token()?;
    (state == token_ref("complete")).then_some(true)
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let crawler = arguments.next().unwrap_or_default();
    println!(
        "{}",
        match may_index(arguments.next().as_deref(), &crawler) {
            Some(true) => "yes",
            Some(false) => "no",
            None => "not known",
        }
    );
}
