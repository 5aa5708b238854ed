//! Clients of a shared proxy, and their fair shares of its finite resources.
//!
//! One rule applies to every [`Resource`](client::Resource): a client may use everything
//! that is free, but when other clients come, it gives up shares until it has an equal
//! part (max-min fairness). This way operators need not guess a limit for each client.
//! Limits that they set anyway apply in addition. Some work cannot be stopped, so its shares
//! cannot be given up; a client then takes no more shares than it leaves free.
//!
//! Does not know what a share is used for. Depends on no other modules except `clock` and
//! `metrics`. The modules are listed in reading order; each uses only modules listed
//! below it.

pub mod directory;

pub mod bound;

pub mod shares;

pub mod snapshot;

pub mod client;
