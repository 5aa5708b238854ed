//! What the fuzz targets share: how a question is made of bytes, and how the
//! engine's answer is held against the naive reference.

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
