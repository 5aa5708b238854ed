//! Politesse: a forward proxy that makes any crawler polite.
//!
//! A crawler sends a request; the proxy works out who asks for what, looks up
//! what the origin's robots.txt says, decides, writes the decision down with
//! its evidence, and only then refuses or forwards.
//!
//! What needs no IO stands in crates of its own: `politesse_robots` reads
//! robots.txt, `politesse_directives` what a response says of its own use.
//!
//! The modules by layer; one uses only layers below its own, and all but
//! [`decision`] may use [`clients`], [`clock`], [`descriptors`], [`metrics`],
//! [`tasks`] and [`throttle`]:
//!
//! - 0: [`decision`], pure: who asks for what, and what follows.
//! - 1: [`upstream`], every exchange with an origin.
//! - 2: [`pace`], when a request may be sent.
//! - 3: [`robots_cache`], robots.txt files fetched and kept; [`audit`], the
//!   record of every decision.
//! - 4: [`proxy`], every exchange with a crawler: start reading at
//!   [`proxy::exchange`]; [`fleet`], many proxies that keep one pace;
//!   [`archive`], the records of all nodes in one database.
//! - 5: [`admin`], the listener for operators; [`config`], the configuration.
//! - 6: [`serve`] builds the parts and ends them; [`cli`] is the command line.
//!
//! `command_line` knows how commands of this installation are typed,
//! `inert` makes text from outside harmless wherever it is shown, `page` lays pages
//! for people out, and `explain` tells of a decision in words. Layers 5 and 6 use them.

pub mod pace;

pub mod robots_cache;

pub mod fleet;

pub mod audit;

pub mod archive;

pub mod proxy;

pub mod admin;

pub mod config;

pub mod serve;

pub mod cli;

mod explain;

mod page;
