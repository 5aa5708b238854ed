//! How fast origins are asked, as far as it is pure.
//!
//! In reading order, and a module uses only those below it:

pub mod host_pace;

pub mod event;
