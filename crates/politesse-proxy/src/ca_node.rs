//! Certificates of fleet nodes: each node has its own key, signed by the root, so that a
//! lost key can be replaced without touching the others.
//!
//! Does not know how a node uses its certificate; `ca` does.

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

/// Request for a node certificate.
#[derive(Debug)]
pub struct NodeOrder {
    /// Name of the node.
    pub node: String,
    /// Path of its certificate, which is followed by that of the root.
    pub cert: PathBuf,
    /// Path of its key.
    pub key: PathBuf,
    /// Lifetime of the certificate; it never outlasts the root.
    pub lifetime: Duration,
}

/// Creates a key and a certificate for a node, signed by the root of `options`, and
/// writes both. Returns the expiry.
///
/// # Errors
///
/// [`CaError`], also if either file exists or the authority is not a root.
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
    // The root is appended, so that clients get both and `ca export` can print it on the
    // node.
    let chain = certificate.pem() + root.root().pem();
    write_new(&order.cert, &chain, CERT_MODE).inspect_err(|_| {
        // A key without a certificate would keep the next call from creating both.
        let _ = std::fs::remove_file(&order.key);
    })?;
    let end = params.not_after.unix_timestamp();
    Ok(Timestamp::from_second(end).unwrap_or(Timestamp::MAX))
}
