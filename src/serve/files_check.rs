//! Check of the files that a start would open (`config check`).
//!
//! Creates and changes no file. A file that a start would create may be missing.

use std::fs::OpenOptions;
use std::io;

use anyhow::Context as _;

use super::parts;
use crate::config::Settings;
use politesse_admin::{AdminToken, TokenError};
use politesse_base::server::user_and_password;
use politesse_base::tls::client_config;
use politesse_net::client::OriginTls;
use politesse_proxy::ca::Ca;
use politesse_proxy::connect::HttpsMode;
use politesse_record::{self, SealTarget};

/// Returns an error for each file that would keep a proxy with these `settings` from
/// starting, or from doing everything they configure.
#[must_use]
pub fn unusable_files(settings: &Settings) -> Vec<anyhow::Error> {
    let checks: &[fn(&Settings) -> anyhow::Result<()>] = &[
        authority,
        |settings| Ok(parts::listener_tls(settings).map(drop)?),
        |settings| Ok(parts::admin_tls(settings).map(drop)?),
        token,
        roots,
        parent,
        |settings| Ok(politesse_record::check_files(&settings.audit)?),
        exports,
        #[cfg(feature = "redis")]
        fleet,
        #[cfg(feature = "redis")]
        fleet_login,
        #[cfg(feature = "redis")]
        fleet_roots,
        #[cfg(feature = "postgres")]
        archive,
    ];
    let results = checks.iter().filter_map(|check| check(settings).err());
    results.collect()
}

fn authority(settings: &Settings) -> anyhow::Result<()> {
    if settings.connect.mode == HttpsMode::Intercept {
        Ca::load_existing(&settings.ca).context("https.ca_cert, https.ca_key")?;
    }
    Ok(())
}

fn token(settings: &Settings) -> anyhow::Result<()> {
    match AdminToken::read(&settings.admin.token_file) {
        Ok(_) | Err(TokenError::Missing(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn roots(settings: &Settings) -> anyhow::Result<()> {
    let tls = &settings.upstream.tls;
    client_config(&tls.roots).context("https.upstream_roots")?;
    OriginTls::new(tls).context("upstream.tls")?;
    Ok(())
}

fn parent(settings: &Settings) -> anyhow::Result<()> {
    if let Some(path) = &settings.upstream.parent_auth {
        user_and_password(path).context("upstream.parent_auth")?;
    }
    Ok(())
}

/// Opens the files that heads of the record are appended to (`audit.seal_to`).
fn exports(settings: &Settings) -> anyhow::Result<()> {
    for target in &settings.audit.seal.to {
        let SealTarget::File(path) = target else {
            continue;
        };
        match OpenOptions::new().append(true).open(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let text = format!("cannot write {} (audit.seal_to)", path.display());
                return Err(error).context(text);
            }
            Ok(_) | Err(_) => {}
        }
    }
    Ok(())
}

#[cfg(feature = "redis")]
fn fleet(settings: &Settings) -> anyhow::Result<()> {
    let options = &settings.fleet;
    if options.store.is_empty() {
        return Ok(());
    }
    parts::node_name(&options.node)?;
    if let Some(path) = &options.key {
        politesse_fleet::shared_answer::FleetKey::read(path).context("fleet.key")?;
    }
    Ok(())
}

#[cfg(feature = "redis")]
fn fleet_login(settings: &Settings) -> anyhow::Result<()> {
    let path = settings.fleet.store_auth.as_ref();
    if let Some(path) = path.filter(|_| !settings.fleet.store.is_empty()) {
        user_and_password(path).context("fleet.store_auth")?;
    }
    Ok(())
}

#[cfg(feature = "redis")]
fn fleet_roots(settings: &Settings) -> anyhow::Result<()> {
    let path = settings.fleet.store_ca.as_ref();
    if let Some(path) = path.filter(|_| !settings.fleet.store.is_empty()) {
        let roots = politesse_base::tls::Roots::File(path.clone());
        client_config(&[roots]).context("fleet.store_ca")?;
    }
    Ok(())
}

#[cfg(feature = "postgres")]
fn archive(settings: &Settings) -> anyhow::Result<()> {
    if settings.archive.address.is_some() {
        politesse_archive::connection::ArchiveAccess::new(&settings.archive)
            .context("audit.archive")?;
        parts::node_name(&settings.archive.node)?;
    }
    Ok(())
}
