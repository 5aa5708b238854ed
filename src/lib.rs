//! Politesse: a forward proxy that makes any crawler polite.
//!
//! A crawler sends a request; the proxy works out who asks for what, looks up
//! what the origin's robots.txt says, decides, writes the decision down with
//! its evidence, and only then refuses or forwards.
//!
//! What is ready stands in crates of its own: `politesse_robots` reads robots.txt,
//! `politesse_directives` what a response says of its own use, `politesse_decision`
//! decides, `politesse_net` sends to origins, `politesse_pace` says when,
//! `politesse_robots_cache` fetches and keeps robots.txt files, `politesse_fleet` shares
//! pace and files among nodes, `politesse_record` writes every decision down,
//! `politesse_archive` copies those of all nodes into one database; `politesse_base` has
//! what every layer uses.
//!
//! The modules by layer; one uses only layers below its own:
//!
//! - 3: [`proxy`], every exchange with a crawler: start reading at [`proxy::exchange`].
//! - 4: [`admin`], the listener for operators; [`config`], the configuration.
//! - 5: [`serve`] builds the parts and ends them; [`cli`] is the command line.
//!
//! `page` lays pages for people out, and `explain` tells of a decision in words. Layers 4
//! and 5 use them.

pub mod proxy;

pub mod admin;

pub mod config;

pub mod serve;

pub mod cli;

mod explain;

mod page;
