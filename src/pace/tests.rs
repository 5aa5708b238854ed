//! The scheduler in virtual time.

mod chance;

mod chaos;

mod estimates;

mod fair;

mod kit;

mod learned;

mod limits;

mod waits;
