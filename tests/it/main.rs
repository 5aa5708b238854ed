//! The black-box tests: one binary, so one link. Each module is a subject; each
//! test is named as the sentence that would be false without the code.

mod kit;

mod admin;
mod annotate;
mod audit;
mod cli;
mod egress;
mod forward;
mod intercept;
mod limits;
mod refuse;
mod robots;
mod shutdown;
mod unreachable;
mod verify;
