//! The scheduler in virtual time.

mod chance;

mod chaos;

mod estimates;

mod fair;

pub(crate) mod gate;

mod kit;

mod learned;

mod lease_steps;

mod leased;

mod limits;

mod waits;
