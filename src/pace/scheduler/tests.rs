//! The scheduler in virtual time. Operations, section 1.5 (what the prototype
//! `gate.rs` passes), and the "must hold"; what has no source is ours.

mod chance;

mod chaos;

mod fair;

mod kit;

mod learned;

mod limits;

mod waits;
