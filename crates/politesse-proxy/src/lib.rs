//! Exchanges of [politesse](https://crates.io/crates/politesse) with clients: listeners,
//! connections, requests and responses.
//!
//! Invariant 6 (ARCHITECTURE.md): intercept, never tunnel. Invariant 7 (ARCHITECTURE.md):
//! bodies are not changed. Modules are listed in reading order, and each uses only
//! modules below it. Begin with [`exchange`].

pub mod listener;

pub mod overload;

pub mod connection;

pub mod head_timer;

pub mod listener_tls;

pub mod server;

pub mod proxy_protocol;

pub mod connect;

pub mod first_bytes;

pub mod ca;

mod certificate;

pub mod ca_files;
pub mod ca_node;
pub mod ca_rotation;

pub mod plan;

mod tdm_fetch;

pub mod exchange;

pub mod turns;

pub mod purpose_policies;

pub mod decider;

pub mod annotate;

pub mod annotation_cache;

pub mod own_name;

pub mod client_pages;

pub mod request;

pub mod embedding;

pub mod latest_origin;

pub mod upload;

pub mod max_forwards;

pub mod answer;

mod error_page;

pub mod body;

mod broken_end;

pub mod completion;

pub mod places;

pub mod socket;

pub mod progress;

pub mod hold;

pub mod fields;

pub mod problem;

pub mod refusal;

pub mod withheld;

pub mod problem_details;

pub mod names;

pub mod crawler_table;

pub mod credentials;

pub mod crawler_names;

pub mod tally;
