//! Certificates of the nodes of a fleet: each has a key of its own, which the root has
//! signed, so that one that is lost can be replaced alone.
//!
//! Does not know how a node uses it; `ca` does.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use rcgen::KeyPair;

use super::ca::{Ca, Options};
use super::ca_files::{
    CERT_FOLDER_MODE, CERT_MODE, CaError, KEY_FOLDER_MODE, KEY_MODE, make_folder, write_new,
};
use super::certificate::{has_room, node_params, to_date};
use politesse_base::clock;

/// Order for the certificate of a node.
#[derive(Debug)]
pub struct NodeOrder {
    /// Name of the node.
    pub node: String,
    /// File of its certificate, with that of the root behind it.
    pub cert: PathBuf,
    /// File of its key.
    pub key: PathBuf,
    /// Time for which it is valid; never longer than the root.
    pub lifetime: Duration,
}

/// Makes a certificate and its key for a node, signed by the root of `options`, and
/// writes both. Returns until when it is valid.
///
/// # Errors
///
/// [`CaError`]: also if either file exists, or the authority is no root.
pub fn issue(options: &Options, order: &NodeOrder) -> Result<Timestamp, CaError> {
    let root = Ca::load(options)?;
    if root.node().is_some() {
        return Err(CaError::NotRoot(options.cert.clone()));
    }
    if !has_room(root.root().der()) {
        return Err(CaError::NoRoom(options.cert.clone()));
    }
    for path in [&order.cert, &order.key] {
        if path.exists() {
            return Err(CaError::Exists(path.clone()));
        }
    }
    let mut params = node_params(&order.node, order.lifetime, clock::now())?;
    let root_end = root
        .ends_at()
        .and_then(|end| Timestamp::from_second(end).ok());
    if let Some(end) = root_end.map(to_date) {
        params.not_after = params.not_after.min(end);
    }
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, root.issuer())?;
    make_folder(&order.cert, CERT_FOLDER_MODE)?;
    make_folder(&order.key, KEY_FOLDER_MODE)?;
    write_new(&order.key, &key.serialize_pem(), KEY_MODE)?;
    // The root behind it: a client gets both, and `ca export` prints it at the node.
    let chain = certificate.pem() + root.root().pem();
    write_new(&order.cert, &chain, CERT_MODE).inspect_err(|_| {
        // A key without a certificate would keep the next order from making both.
        let _ = std::fs::remove_file(&order.key);
    })?;
    let end = params.not_after.unix_timestamp();
    Ok(Timestamp::from_second(end).unwrap_or(Timestamp::MAX))
}
