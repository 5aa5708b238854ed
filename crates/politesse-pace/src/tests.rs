//! The scheduler in virtual time.

mod chance;

mod chaos;

mod estimates;

mod fair;

mod kit;

mod learned;

mod lease_steps;

mod leased;

mod limits;

mod requisites;

mod waits;
