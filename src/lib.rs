//! Politesse: a forward proxy that makes any crawler polite.
//!
//! For each request of a crawler, the proxy works out which crawler wants which URL,
//! looks up the rules in the origin's robots.txt, decides, and writes the decision to
//! the record with its evidence. Only then does it refuse or forward the request.
//!
//! Each layer is a crate of its own, from `politesse_robots`, which reads robots.txt,
//! to `politesse_proxy`, which handles every exchange with a crawler: start reading at
//! [`exchange`](politesse_proxy::exchange). ARCHITECTURE.md has the map. This crate
//! puts them together in two layers; a layer uses only the layers below it:
//!
//! - 1: [`config`], the configuration.
//! - 2: [`serve`] starts, reloads and stops the proxy; [`cli`] is the command line.

pub mod config;

pub mod serve;

pub mod cli;
