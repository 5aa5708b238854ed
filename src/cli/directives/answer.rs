//! What programs are told of a page: the members that every answer has.

use serde::Serialize;

use politesse_directives::{Annotation, Form};

/// The members of the batch format, less the id.
#[derive(Serialize)]
pub(super) struct Members {
    directives: Vec<String>,
    state: &'static str,
    why: Option<&'static str>,
    header: String,
}

impl Members {
    pub(super) fn of(annotation: &Annotation, form: &Form<'_>) -> Self {
        Self {
            directives: annotation.directives(),
            state: annotation.state().as_str(),
            why: annotation.why(),
            header: annotation.header_value(form),
        }
    }
}
