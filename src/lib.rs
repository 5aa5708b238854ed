//! Politesse: a forward proxy that makes any crawler polite.
//!
//! A crawler sends a request; the proxy works out who asks for what, looks up
//! what the origin's robots.txt says, decides, writes the decision down with
//! its evidence, and only then refuses or forwards.
//!
//! Each layer is a crate of its own, from `politesse_robots`, which reads robots.txt, to
//! `politesse_proxy`, where every exchange with a crawler is: start reading at
//! [`exchange`](politesse_proxy::exchange). ARCHITECTURE.md has the map. Here they are put
//! together, by layer; one uses only layers below its own:
//!
//! - 1: [`config`], the configuration.
//! - 2: [`serve`] builds the parts and ends them; [`cli`] is the command line.

pub mod config;

pub mod serve;

pub mod cli;
