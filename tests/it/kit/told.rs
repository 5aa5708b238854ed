//! Parser for annotation fields, whose grammar is in docs/annotation.md. Uses a parser of
//! structured fields (RFC 9651).

use sfv::{BareItem, Dictionary, Item, ListEntry, Parser};

/// One member of an annotation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    /// Key of the member: the crawler's token, or `*`.
    pub(crate) key: String,
    /// Directives such as `max-snippet:20`, in the order of the field.
    pub(crate) directives: Vec<String>,
    pub(crate) state: String,
    pub(crate) why: String,
    /// Time at which the proxy learned directives that it repeats for a 304, in seconds
    /// since 1970.
    pub(crate) from: Option<i64>,
}

/// Returns the members of a well-formed annotation, in order.
pub(crate) fn told(value: &str) -> Vec<Told> {
    let members: Dictionary = Parser::new(value)
        .parse()
        .unwrap_or_else(|error| panic!("{error}: {value}"));
    let members = members.into_iter();
    members
        .map(|(key, entry)| member(key.as_str(), entry))
        .collect()
}

fn member(key: &str, entry: ListEntry) -> Told {
    let ListEntry::InnerList(list) = entry else {
        panic!("{key} is not a list");
    };
    let parameter = |name: &str| list.params.get(name);
    let text = |name: &str| parameter(name).map(written).unwrap_or_default();
    Told {
        key: key.to_owned(),
        directives: list.items.iter().map(directive).collect(),
        state: text("state"),
        why: text("why"),
        from: parameter("from").map(|from| {
            let date = from.as_date().unwrap();
            date.unix_seconds().into()
        }),
    }
}

fn directive(item: &Item) -> String {
    let name = written(&item.bare_item);
    match item.params.get("value") {
        Some(value) => format!("{name}:{}", written(value)),
        None => name,
    }
}

fn written(item: &BareItem) -> String {
    if let Some(token) = item.as_token() {
        token.as_str().to_owned()
    } else if let Some(text) = item.as_string() {
        text.as_str().to_owned()
    } else if let Some(number) = item.as_integer() {
        number.to_string()
    } else {
        let seconds = item.as_date().unwrap().unix_seconds().into();
        jiff::Timestamp::from_second(seconds).unwrap().to_string()
    }
}
