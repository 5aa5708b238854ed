//! JSON answers of `directives`.
//!
//! Does not know how the annotation is made.

use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::page::{PageBody, PageReport};
use politesse_directives::{Annotation, FieldFormat};
use politesse_robots::crawler::ProductToken;

/// Members of every answer: those of the batch format, except the id.
#[derive(Serialize)]
pub(super) struct AnnotationJson {
    directives: Vec<String>,
    state: &'static str,
    why: Option<&'static str>,
    header: String,
}

/// Answer of `directives --json`: the members of the batch format, with everything that
/// explains them.
#[derive(Serialize)]
pub(super) struct PageJson<'a> {
    #[serde(flatten)]
    annotation: AnnotationJson,
    /// Name of the annotation field.
    field: &'a str,
    token: Option<&'a str>,
    #[serde(serialize_with = "names")]
    candidates: &'a [ProductToken],
    user_agent: Option<&'a str>,
    /// Places that state each directive, as the letters of the field.
    sources: Value,
    preferences: Vec<String>,
    /// Number of bytes of the body that were read; absent without a body.
    body: Option<u64>,
}

impl AnnotationJson {
    /// Builds the members from an annotation, with the field written in `form`.
    pub(super) fn new(annotation: &Annotation, form: &FieldFormat) -> Self {
        Self {
            directives: annotation.directives(),
            state: annotation.state().as_str(),
            why: annotation.why(),
            header: annotation.header_value(form),
        }
    }
}

impl<'a> PageJson<'a> {
    /// Builds the answer.
    pub(super) fn new(page: &PageReport<'a>) -> Self {
        let directives = page.active_directives().into_iter();
        let preferences = page.annotation.preferences().iter();
        Self {
            annotation: AnnotationJson::new(&page.annotation, &page.form),
            field: page.field.as_str(),
            token: page.crawler.token().map(ProductToken::as_str),
            candidates: page.crawler.candidates(),
            user_agent: page.crawler.user_agent(),
            sources: directives
                .map(|active| json!({ "directive": active.directive, "src": active.sources }))
                .collect(),
            preferences: preferences.map(ToString::to_string).collect(),
            // `null` means that no body was given; 0 that none of it was needed.
            body: match page.body {
                PageBody::Absent => None,
                PageBody::Read(bytes) | PageBody::Other(bytes) => Some(bytes),
            },
        }
    }
}

fn names<S: Serializer>(tokens: &&[ProductToken], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(tokens.iter().map(ProductToken::as_str))
}
