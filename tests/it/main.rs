//! The black-box tests: one binary, so one link. Each module is a subject; each
//! test is named as the sentence that would be false without the code.

mod kit;

mod clients;
mod directive_cases;
mod forward;
mod intercept;
mod layering;
mod properties;
mod refuse;
mod robots;
mod robots_cases;
mod unreachable;
