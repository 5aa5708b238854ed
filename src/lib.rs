//! Politesse: a forward proxy that makes any crawler polite.
//!
//! A crawler sends a request; the proxy works out who asks for what, looks up
//! what the origin's robots.txt says, decides, writes the decision down with
//! its evidence, and only then refuses or forwards.
//!
//! The modules by layer; one uses only layers below its own, and all but
//! [`rules`] may use [`clock`], [`descriptors`], [`metrics`],
//! [`tasks`] and [`throttle`]:
//!
//! - 0: [`rules`], pure: what an origin said, and what follows.
//! - 1: [`origins`], everything we say to origins; [`audit`], everything we
//!   write down.
//! - 2: [`proxy`], everything we say to crawlers. Start reading at
//!   [`proxy::exchange`].
//! - 3: [`admin`], everything we show to people; [`config`], everything they
//!   tell us.
//! - [`serve`] builds the parts and ends them; [`cli`] is the command line.

pub mod rules;

pub mod origins;

pub mod audit;

pub mod proxy;

pub mod admin;

pub mod config;

pub mod serve;

pub mod cli;

pub mod clock;

pub mod descriptors;

pub mod metrics;

pub mod tasks;

pub mod throttle;
