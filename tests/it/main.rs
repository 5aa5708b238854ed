//! The black-box tests: one binary, so one link. Each module is a subject; each
//! test is named as the sentence that would be false without the code.
#![expect(clippy::unwrap_used, reason = "a test that meets an error has failed")]

#[path = "../../crates/politesse-robots/tests/engine/cases.rs"]
mod cases;
mod kit;
#[path = "../reference/nginx.rs"]
mod nginx;
#[path = "../../crates/politesse-robots/tests/reference/mod.rs"]
mod reference;

mod admin;
mod annotate;
mod annotate_again;
mod annotate_bounds;
mod annotate_codings;
mod annotate_record;
mod audit;
mod audit_list;
mod audit_show;
mod book;
mod capacity;
mod case_files;
mod check;
mod checklist;
mod cli;
mod clients;
mod demo;
mod dialect_table;
mod directives;
mod egress;
mod egress_namespace;
mod foreign_cases;
mod forward;
mod frames;
mod framing_cases;
mod identity;
mod intercept;
mod layering;
mod limits;
mod log_flood;
mod many_origins;
mod methods;
mod operator;
mod pace;
mod pace_again;
mod pace_back_off;
mod pace_change;
mod pace_clients;
mod pace_gone;
mod pace_held;
mod pace_later;
mod pace_long;
mod pace_operator;
mod pace_records;
mod pace_report;
mod pace_robots;
mod pace_seen;
mod pace_shown;
mod pace_stop;
mod pace_streams;
mod pace_turns;
mod pace_unread;
mod parent;
mod path_bench;
mod places;
mod properties;
mod reading_the_field;
mod readings_reference;
mod real_servers;
mod record_faults;
mod refuse;
mod reload;
mod report_mode;
mod restart;
mod robots;
mod robots_hops;
mod run_environment;
mod run_joins;
mod run_sealed;
mod scripts;
mod shutdown;
mod soak;
mod strict;
mod unreachable;
mod url_cases;
mod verify;
