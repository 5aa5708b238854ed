//! `dashboard`: prints, or opens, a link that signs a browser in to the dashboard of
//! the running proxy.
//!
//! Uses the proxy that holds the record of this configuration, on any port of its admin
//! listener. Does not know how the link is redeemed.

use std::process::{Command, Stdio};

use anyhow::Context as _;
use clap::Args;
use http::Method;
use serde::Deserialize;

use super::admin_api::{ApiError, ApiRequest, ask, with_holder_address};
use super::output::{Exit, print};
use super::process::admin_url;
use crate::config::Settings;

/// Program that opens a link in the user's browser.
const OPENER: &str = if cfg!(target_os = "macos") {
    "open"
} else {
    "xdg-open"
};

/// Arguments of `dashboard`.
#[derive(Debug, Args)]
pub(super) struct DashboardArguments {
    /// Number of a decision that the link opens; without one it opens the overview.
    #[arg(value_name = "SEQ")]
    decision: Option<u64>,
    /// Also opens the link in a browser.
    #[arg(long)]
    open: bool,
}

/// Answer of the proxy.
#[derive(Deserialize)]
struct SignInLink {
    /// Path and query of the link.
    path: String,
}

/// Runs `dashboard`.
pub(super) fn dashboard(
    arguments: &DashboardArguments,
    settings: &Settings,
) -> anyhow::Result<Exit> {
    let found = with_holder_address(settings)?;
    let answer = ask(
        &found,
        &ApiRequest {
            method: Method::POST,
            target: "/api/v1/sign-in-link".to_owned(),
        },
    )?;
    let foreign = |error| ApiError::Foreign(found.admin.listen, error);
    let link: SignInLink = serde_json::from_slice(&answer).map_err(foreign)?;
    let path = match arguments.decision {
        Some(seq) => format!("{}&to=/decisions/{seq}", link.path),
        None => link.path,
    };
    let url = admin_url(&found, &found.admin.listen, &path);
    let printed = print(&format!("{url}\n"))?;
    if arguments.open {
        let mut opener = Command::new(OPENER);
        opener.arg(&url).stdout(Stdio::null()).stderr(Stdio::null());
        let opened = opener.status();
        opened.with_context(|| format!("cannot start {OPENER}: open the link by hand"))?;
    }
    Ok(printed)
}
