//! Code that the fuzz targets share: making a question from bytes, and comparing the
//! engine's answer with that of the naive reference.

#[path = "../../crates/politesse-robots/tests/reference/mod.rs"]
pub mod reference;

#[path = "../../crates/politesse-directives/tests/reference/html.rs"]
pub mod html;

#[path = "../../tests/reference/nginx.rs"]
pub mod nginx;

#[path = "../../crates/politesse-directives/tests/reference/scanned.rs"]
pub mod scanned;

pub mod comparison;
pub mod grammar;
pub mod question;
pub mod stretch;
pub mod time;
pub mod wildcards;
