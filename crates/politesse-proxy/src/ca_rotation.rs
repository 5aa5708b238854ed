//! Rotation of the root (`politesse ca rotate`): a second root is created, both are given
//! out for a day, then the new one signs, and the old one can be retired.
//!
//! Between the two steps, the new root is in files of its own ([`Options::next`]), and
//! the old certificate file contains both certificates for the clients that read it. The
//! last write of a step is the one that makes it take effect, so that a crash before
//! leaves the old state. Does not know which clients trust a root.

use jiff::Timestamp;
use rcgen::KeyPair;

use super::ca::{Ca, Options};
use super::ca_files::{CERT_MODE, CaError, KEY_MODE, rename, replace, write_new};
use super::certificate::authority_params;
use politesse_base::clock;

/// Step of a rotation that has been taken.
#[derive(Debug, PartialEq, Eq)]
pub enum Rotation {
    /// A second root exists, and signs from this time on.
    Begun(Timestamp),
    /// The old root is gone.
    Ended,
}

/// Takes the next step: creates a second root, or retires the old one once the second
/// signs.
///
/// # Errors
///
/// [`CaError::TooEarly`] if the second root does not sign yet; [`CaError::NotRoot`] on a
/// node, because its root is elsewhere; errors of the files.
pub fn rotate(options: &Options) -> Result<Rotation, CaError> {
    let ca = Ca::load(options)?;
    if ca.node().is_some() {
        return Err(CaError::NotRoot(options.cert.clone()));
    }
    match ca.next_signs_from() {
        Some(time) if clock::now() < time => Err(CaError::TooEarly(time)),
        Some(_) => retire(options),
        None => begin(options, &ca),
    }
}

fn begin(options: &Options, ca: &Ca) -> Result<Rotation, CaError> {
    let next = options.next();
    clear_key(options, &next)?;
    let key = KeyPair::generate()?;
    let certificate = authority_params(clock::now())?.self_signed(&key)?.pem();
    write_new(&next.key, &key.serialize_pem(), KEY_MODE)?;
    let both = format!("{}{certificate}", ca.root().pem());
    replace(&options.cert, &both, CERT_MODE)?;
    // Written last: once this file exists, the rotation has begun.
    write_new(&next.cert, &certificate, CERT_MODE)?;
    let from = Ca::load(options)?.next_signs_from();
    Ok(Rotation::Begun(from.unwrap_or(Timestamp::MAX)))
}

/// Makes room for the key of another root. A crash can leave an old `next` key: after an
/// interrupted retirement it is the key of the current root, otherwise it is unused.
fn clear_key(options: &Options, next: &Options) -> Result<(), CaError> {
    if !next.key.exists() {
        return Ok(());
    }
    let with_next_key = Options {
        key: next.key.clone(),
        ..options.clone()
    };
    if Ca::load(&with_next_key).is_ok() {
        return rename(&next.key, &options.key);
    }
    std::fs::remove_file(&next.key).map_err(|source| CaError::Write {
        path: next.key.clone(),
        source,
    })
}

fn retire(options: &Options) -> Result<Rotation, CaError> {
    let next = options.next();
    // The certificate is renamed first, because `Ca::load` also finds its key under the
    // `next` name.
    rename(&next.cert, &options.cert)?;
    rename(&next.key, &options.key)?;
    Ok(Rotation::Ended)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use jiff::SignedDuration;
    use politesse_base::testing::set_wall_by;
    use politesse_robots::origin::Host;
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;
    use tempfile::TempDir;
    use x509_parser::parse_x509_certificate;

    use super::*;
    use crate::ca::RootCertificate;
    use crate::ca_node::{NodeOrder, issue};

    /// Creates an authority in a temporary folder.
    fn authority() -> (TempDir, Options) {
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            cert: folder.path().join("ca.pem"),
            key: folder.path().join("ca.key"),
            leaf_cache: NonZeroUsize::MIN,
        };
        Ca::create(&options).unwrap();
        (folder, options)
    }

    fn fingerprints(options: &Options) -> Vec<String> {
        let roots = RootCertificate::load_all(options).unwrap();
        let digests = roots.iter().map(|root| root.fingerprint().to_string());
        digests.collect()
    }

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o777
    }

    /// Returns the fingerprint of the root that signed the current leaf.
    fn signed_by(ca: &Ca) -> String {
        let leaf = ca.leaf(&Host::Name("h.test".into())).unwrap();
        let [leaf, root] = &leaf.cert[..] else {
            panic!("a leaf and its root");
        };
        let (_, leaf) = parse_x509_certificate(leaf).unwrap();
        let (_, parsed) = parse_x509_certificate(root).unwrap();
        leaf.verify_signature(Some(parsed.public_key())).unwrap();
        politesse_decision::digest::Digest::of(root).to_string()
    }

    // Ours: the switch follows the clock, without a reload.
    #[tokio::test(start_paused = true)]
    async fn the_new_root_signs_after_a_day_and_then_the_old_one_can_be_retired() {
        let (_folder, options) = authority();
        let [old] = &fingerprints(&options)[..] else {
            panic!("one root");
        };
        set_wall_by(SignedDuration::ZERO);
        assert!(matches!(rotate(&options), Ok(Rotation::Begun(_))));
        let both = fingerprints(&options);
        assert_eq!((both.len(), &both[0]), (2, old));
        let next = options.next();
        assert_eq!((mode(&options.key), mode(&next.key)), (0o600, 0o600));
        assert_eq!((mode(&options.cert), mode(&next.cert)), (0o644, 0o644));
        let pem = std::fs::read(&options.cert).unwrap();
        assert_eq!(CertificateDer::pem_slice_iter(&pem).count(), 2);

        let running = Ca::load(&options).unwrap();
        assert_eq!(&signed_by(&running), old);
        set_wall_by(SignedDuration::from_hours(23));
        assert_eq!(&signed_by(&running), old);
        assert!(matches!(rotate(&options), Err(CaError::TooEarly(_))));
        set_wall_by(SignedDuration::from_hours(2));
        assert_eq!(signed_by(&running), both[1]);

        assert_eq!(rotate(&options).unwrap(), Rotation::Ended);
        assert_eq!(fingerprints(&options), both[1..]);
        assert!(!next.cert.exists() && !next.key.exists());
        assert_eq!(mode(&options.key), 0o600);
        let reloaded = Ca::load(&options).unwrap();
        assert_eq!(signed_by(&reloaded), both[1]);
        assert!(!reloaded.is_same(&running));
        assert!(matches!(rotate(&options), Ok(Rotation::Begun(_))));
    }

    // Ours: a crash at any step leaves an authority that works and can be rotated.
    #[tokio::test(start_paused = true)]
    async fn an_interrupted_step_can_be_repeated() {
        let (_folder, options) = authority();
        let old = fingerprints(&options);
        let next = options.next();
        set_wall_by(SignedDuration::ZERO);
        // As after a crash before the next certificate was written.
        rotate(&options).unwrap();
        std::fs::remove_file(&next.cert).unwrap();
        assert_eq!(signed_by(&Ca::load(&options).unwrap()), old[0]);
        assert_eq!(fingerprints(&options), old);
        rotate(&options).unwrap();
        let both = fingerprints(&options);
        assert_eq!(both.len(), 2);
        // As after a crash before the key of the new root was renamed.
        set_wall_by(SignedDuration::from_hours(25));
        std::fs::rename(&next.cert, &options.cert).unwrap();
        assert_eq!(signed_by(&Ca::load(&options).unwrap()), both[1]);
        rotate(&options).unwrap();
        assert_eq!(fingerprints(&options)[0], both[1]);
        assert_eq!(signed_by(&Ca::load(&options).unwrap()), both[1]);
    }

    #[test]
    fn a_node_certificate_is_not_rotated() {
        let (folder, root) = authority();
        let order = NodeOrder {
            node: "node1".to_owned(),
            cert: folder.path().join("node.pem"),
            key: folder.path().join("node.key"),
            lifetime: std::time::Duration::from_secs(24 * 60 * 60),
        };
        issue(&root, &order).unwrap();
        let node = Options {
            cert: order.cert,
            key: order.key,
            ..root
        };
        assert!(matches!(rotate(&node), Err(CaError::NotRoot(_))));
    }
}
