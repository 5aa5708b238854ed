//! `directives --json`: what a program gets to know of a page.

use serde::{Serialize, Serializer};

use super::answer::Members;
use super::said::{Said, said};
use super::{Body, Found};
use politesse_robots::crawler::ProductToken;

/// The members of the batch format, and all that explains them.
#[derive(Serialize)]
pub(super) struct Object<'a> {
    #[serde(flatten)]
    members: Members,
    /// The name of the annotation field.
    field: &'a str,
    token: Option<&'a str>,
    #[serde(serialize_with = "names")]
    candidates: &'a [ProductToken],
    user_agent: Option<&'a str>,
    sources: Vec<Sources>,
    preferences: Vec<String>,
    /// How many bytes of the body were looked at, if there is one.
    body: Option<u64>,
}

/// Where a directive was said, in the letters of the field.
#[derive(Serialize)]
struct Sources {
    directive: String,
    src: Vec<String>,
}

impl<'a> Object<'a> {
    pub(super) fn of(found: &Found<'a>) -> Self {
        let listed = said(&found.directives()).into_iter();
        let preferences = found.annotation.preferences().iter();
        Self {
            members: Members::of(&found.annotation, &found.form),
            field: found.field.as_str(),
            token: found.crawler.token().map(ProductToken::as_str),
            candidates: found.crawler.candidates(),
            user_agent: found.crawler.user_agent(),
            sources: listed.map(Sources::of).collect(),
            preferences: preferences.map(ToString::to_string).collect(),
            body: match found.body {
                Body::Absent => None,
                Body::Read(bytes) | Body::Other(bytes) => Some(bytes),
            },
        }
    }
}

impl Sources {
    fn of(said: Said) -> Self {
        Self {
            directive: said.directive,
            src: said.sources,
        }
    }
}

fn names<S: Serializer>(tokens: &&[ProductToken], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(tokens.iter().map(ProductToken::as_str))
}
