//! Local certificate authority: signs the certificates that are shown to intercepted
//! clients.
//!
//! One key serves all leaves of a process, so that a new host costs one signature.
//! Nothing is copied from an origin's own certificate: a problem with that one is
//! reported inside the intercepted connection.

use std::ffi::OsStr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use moka::sync::Cache;
use rcgen::{Issuer, KeyPair};
use rustls::crypto::aws_lc_rs::sign::any_ecdsa_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SigningKey};
use time::OffsetDateTime;

use super::ca_files::{
    self, CERT_FOLDER_MODE, CERT_MODE, CaError, KEY_FOLDER_MODE, KEY_MODE, make_folder, write_new,
};
use super::certificate::{
    DAY, authority_params, begin_of, check_authority, check_link, check_signing, end_of, is_root,
    leaf_params, spki_hash, to_date, to_pem,
};
use politesse_base::clock::{self, Stamp};
use politesse_decision::digest::Digest;
use politesse_robots::origin::Host;

/// Settings of the certificate authority (`https.*`).
#[derive(Debug, Clone)]
pub struct Options {
    /// Path of its certificate, in PEM.
    pub cert: PathBuf,
    /// Path of its key, in PEM; must be readable by the owner only.
    pub key: PathBuf,
    /// Number of leaf certificates kept for reuse.
    pub leaf_cache: NonZeroUsize,
}

impl Options {
    /// Returns the settings of the root that replaces this one in a rotation:
    /// `ca.next.pem` and `ca.next.key` next to `ca.pem` and `ca.key`.
    pub fn next(&self) -> Self {
        let beside = |path: &Path| {
            let ending = path.extension().and_then(OsStr::to_str);
            path.with_extension(ending.map_or("next".to_owned(), |it| format!("next.{it}")))
        };
        Self {
            cert: beside(&self.cert),
            key: beside(&self.key),
            leaf_cache: self.leaf_cache,
        }
    }
}

/// Time between the creation of a new root and the first leaf that it signs. Meanwhile
/// clients are given both roots.
const ROTATION_TIME: Duration = DAY;
/// Longest time that a leaf is shown.
const LEAF_KEPT: Duration = DAY;
/// Interval at which [`Ca::open`] checks whether another process has finished creating
/// the authority, which takes milliseconds.
const MAKING_INTERVAL: Duration = Duration::from_millis(20);
/// Number of those checks.
const MAKING_WAITS: u32 = 15;

/// Certificate authority of a proxy.
pub struct Ca {
    /// Signer of the leaves.
    current: Signer,
    /// Signer that replaces `current` at the end of a rotation.
    next: Option<Signer>,
    /// Key of all leaves.
    leaf_key: KeyPair,
    /// `leaf_key` in the form that TLS uses.
    leaf_signer: Arc<dyn SigningKey>,
    /// Leaves by host.
    leaves: Cache<Host, Arc<LeafCertificate>>,
}

/// Signing certificate and its key: a root that clients trust, or a node certificate
/// signed by the root (`politesse ca issue`).
struct Signer {
    /// Certificate and key that sign.
    issuer: Issuer<'static, KeyPair>,
    /// Certificate that signs leaves, followed by the chain up to the root, which comes
    /// last.
    chain: Vec<CertificateDer<'static>>,
    /// Root that clients trust.
    root: RootCertificate,
}

impl Signer {
    fn load(options: &Options) -> Result<Self, CaError> {
        let pem = ca_files::read(&options.cert)?;
        let bad_certificate = |reason| bad_certificate(options, reason);
        let certificate = CertificateDer::from_pem_slice(pem.as_bytes())
            .map_err(|error| bad_certificate(error.to_string()))?;
        let key = ca_files::read_key(&options.key)?;
        let now = clock::now();
        check_authority(&certificate, &key, now).map_err(bad_certificate)?;
        let issuer = Issuer::from_ca_cert_der(&certificate, key)
            .map_err(|error| bad_certificate(error.to_string()))?;
        let chain = chain_to_root(&pem, now).map_err(bad_certificate)?;
        // The chain has at least one certificate.
        let root = chain.last().cloned().unwrap_or(certificate);
        Ok(Self {
            issuer,
            chain,
            root: RootCertificate::new(root),
        })
    }
}

/// Root certificate that clients must trust.
#[derive(Debug, Clone)]
pub struct RootCertificate {
    der: CertificateDer<'static>,
    pem: String,
}

impl RootCertificate {
    /// Reads the roots that clients must trust from the certificate files: none if there
    /// is no authority, two during a rotation. Does not need the keys, which only their
    /// owner may read.
    ///
    /// # Errors
    ///
    /// [`CaError::Read`] or [`CaError::Content`].
    pub fn load_all(options: &Options) -> Result<Vec<Self>, CaError> {
        let next = options.next();
        let both = [options, &next].into_iter();
        let existing = both.filter(|options| options.cert.exists());
        existing.map(Self::load).collect()
    }

    fn load(options: &Options) -> Result<Self, CaError> {
        let pem = ca_files::read(&options.cert)?;
        let now = clock::now();
        let signing_chain = chain_to_root(&pem, now).and_then(|chain| {
            chain.iter().try_for_each(|one| check_signing(one, now))?;
            let root = chain.into_iter().next_back();
            root.ok_or_else(|| "it is empty".to_owned())
        });
        let root = signing_chain.map_err(|reason| bad_certificate(options, reason))?;
        Ok(Self::new(root))
    }

    fn new(der: CertificateDer<'static>) -> Self {
        // The PEM is built anew, because the file may contain more than may be published.
        let pem = to_pem(&der);
        Self { der, pem }
    }

    /// Returns the certificate in DER.
    pub fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }

    /// Returns the certificate in PEM, the format of trust stores.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Returns the SHA-256 digest of the certificate.
    pub fn fingerprint(&self) -> Digest {
        Digest::of(&self.der)
    }

    /// Returns the hash of its public key in the format of Chromium's
    /// `--ignore-certificate-errors-spki-list`.
    pub fn spki_hash(&self) -> Option<String> {
        spki_hash(&self.der)
    }
}

/// Certificate for a host, and the times at which it may be shown.
struct LeafCertificate {
    /// Certificate with its chain and key.
    certified: Arc<CertifiedKey>,
    /// Moment of its signing, on both clocks.
    made_at: Stamp,
    /// Time at which another root begins to sign.
    shown_until: Timestamp,
    /// Start of its validity.
    not_before: OffsetDateTime,
    /// End of its validity.
    not_after: OffsetDateTime,
}

impl LeafCertificate {
    /// Reports whether a client whose clock equals ours accepts the certificate today and
    /// tomorrow. The clock may have been set since it was signed, or the machine may have
    /// been suspended.
    fn is_current(&self) -> bool {
        let now = clock::now();
        let date = to_date(now);
        let is_valid = self.not_before <= date && date + DAY < self.not_after;
        is_valid && now < self.shown_until && self.made_at.age() < LEAF_KEPT
    }
}

impl std::fmt::Debug for Ca {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ca")
            .field("fingerprint", &self.root().fingerprint())
            .finish_non_exhaustive()
    }
}

impl Ca {
    /// Loads the authority, or creates it if neither file exists. If another process is
    /// creating it, waits briefly for the result.
    ///
    /// # Errors
    ///
    /// [`CaError`], which names the file.
    pub fn open(options: &Options) -> Result<Self, CaError> {
        let mut waits = MAKING_WAITS;
        loop {
            match Self::try_open(options) {
                Err(error) if waits > 0 && error.may_be_in_the_making() => {
                    waits -= 1;
                    std::thread::sleep(MAKING_INTERVAL);
                }
                result => return result,
            }
        }
    }

    fn try_open(options: &Options) -> Result<Self, CaError> {
        if let Some(existing) = Self::load_existing(options)? {
            return Ok(existing);
        }
        Self::create(options)?;
        Self::load(options)
    }

    /// Loads the authority; `None` if neither file exists.
    ///
    /// # Errors
    ///
    /// [`CaError::Half`], and the errors of [`Self::load`].
    pub fn load_existing(options: &Options) -> Result<Option<Self>, CaError> {
        let (found, missing) = match (options.cert.exists(), options.key.exists()) {
            (false, false) => return Ok(None),
            (true, true) => return Self::load(options).map(Some),
            (true, false) => (&options.cert, &options.key),
            (false, true) => (&options.key, &options.cert),
        };
        let (found, missing) = (found.clone(), missing.clone());
        Err(CaError::Half { found, missing })
    }

    /// Creates a new authority and writes its two files.
    ///
    /// # Errors
    ///
    /// [`CaError::Exists`] if either file exists; [`CaError::Write`].
    pub fn create(options: &Options) -> Result<(), CaError> {
        for path in [&options.cert, &options.key] {
            if path.exists() {
                return Err(CaError::Exists(path.clone()));
            }
        }
        let key = KeyPair::generate()?;
        let certificate = authority_params(clock::now())?.self_signed(&key)?;
        // The certificate's folder comes first: if the key shares it, the folder must be
        // open to other users, and the key is protected by its own mode.
        make_folder(&options.cert, CERT_FOLDER_MODE)?;
        make_folder(&options.key, KEY_FOLDER_MODE)?;
        write_new(&options.key, &key.serialize_pem(), KEY_MODE)?;
        write_new(&options.cert, &certificate.pem(), CERT_MODE).inspect_err(|_| {
            // A key without a certificate would keep the next start from creating both.
            let _ = std::fs::remove_file(&options.key);
        })
    }

    /// Loads the authority, and the next root if a rotation is in progress.
    ///
    /// # Errors
    ///
    /// [`CaError::Read`], [`CaError::Mode`] or [`CaError::Content`].
    pub fn load(options: &Options) -> Result<Self, CaError> {
        let next = options.next();
        let is_rotating = next.cert.exists();
        let current = Signer::load(options).or_else(|error| {
            // An interrupted rotation may have renamed the certificate but not yet its
            // key.
            let with_next_key = Options {
                key: next.key.clone(),
                ..options.clone()
            };
            let is_possible = !is_rotating && next.key.exists();
            let signer = is_possible.then(|| Signer::load(&with_next_key).ok());
            signer.flatten().ok_or(error)
        })?;
        let leaf_key = KeyPair::generate()?;
        let leaf_der = PrivateKeyDer::Pkcs8(leaf_key.serialize_der().into());
        Ok(Self {
            current,
            next: is_rotating.then(|| Signer::load(&next)).transpose()?,
            leaf_signer: any_ecdsa_type(&leaf_der)
                .map_err(|_| rcgen::Error::CouldNotParseKeyPair)?,
            leaf_key,
            leaves: Cache::builder()
                .max_capacity(options.leaf_cache.get() as u64)
                .time_to_live(LEAF_KEPT)
                .build(),
        })
    }

    /// Returns the root that signs now.
    pub fn root(&self) -> &RootCertificate {
        &self.signer().root
    }

    /// Returns the roots that clients must trust. During a rotation there are two, the
    /// old one first.
    pub fn roots(&self) -> impl Iterator<Item = &RootCertificate> {
        let signers = std::iter::once(&self.current).chain(&self.next);
        signers.map(|signer| &signer.root)
    }

    /// Returns the time from which the next root signs; `None` if there is no next root.
    pub fn next_signs_from(&self) -> Option<Timestamp> {
        let begin_s = begin_of(self.next.as_ref()?.chain.first()?)?;
        let begin = Timestamp::from_second(begin_s).ok()?;
        // Certificates are valid from one day before their creation.
        begin.checked_add(DAY + ROTATION_TIME).ok()
    }

    fn signer(&self) -> &Signer {
        let is_over = self.next_signs_from().is_some_and(|at| at <= clock::now());
        let next = self.next.as_ref().filter(|_| is_over);
        next.unwrap_or(&self.current)
    }

    /// Returns the issuer that signs certificates now.
    pub(super) fn issuer(&self) -> &Issuer<'static, KeyPair> {
        &self.signer().issuer
    }

    /// Returns the time from which all certificates of the authority are valid, in
    /// seconds since 1970.
    pub fn begins_at(&self) -> Option<i64> {
        self.signer().chain.iter().filter_map(begin_of).max()
    }

    /// Returns the earliest expiry of the authority's certificates, in seconds since
    /// 1970.
    pub fn ends_at(&self) -> Option<i64> {
        self.signer().chain.iter().filter_map(end_of).min()
    }

    /// Returns the node certificate, or `None` if a root signs the leaves itself.
    pub fn node(&self) -> Option<&CertificateDer<'static>> {
        let Signer { chain, root, .. } = self.signer();
        chain.first().filter(|first| **first != root.der)
    }

    /// Reports whether both authorities use the same certificates.
    pub fn is_same(&self, other: &Self) -> bool {
        let next = |ca: &Self| ca.next.as_ref().map(|next| next.chain.clone());
        self.current.chain == other.current.chain && next(self) == next(other)
    }

    /// Returns the cached certificate for `host` if it may still be shown.
    pub fn cached_leaf(&self, host: &Host) -> Option<Arc<CertifiedKey>> {
        let leaf = self.leaves.get(host).filter(|leaf| leaf.is_current())?;
        Some(Arc::clone(&leaf.certified))
    }

    /// Returns the certificate for `host`, from the cache or newly signed, followed by
    /// the chain up to and including the root.
    ///
    /// # Errors
    ///
    /// [`CaError::Make`] if the host name is not allowed in a certificate.
    pub fn leaf(&self, host: &Host) -> Result<Arc<CertifiedKey>, Arc<CaError>> {
        // The cache expires entries by the monotonic clock only, which does not notice
        // that the wall clock was set.
        if self.leaves.get(host).is_some_and(|leaf| !leaf.is_current()) {
            self.leaves.invalidate(host);
        }
        let leaf = self.leaves.try_get_with_by_ref(host, || self.mint(host))?;
        Ok(Arc::clone(&leaf.certified))
    }

    fn mint(&self, host: &Host) -> Result<Arc<LeafCertificate>, CaError> {
        let made_at = Stamp::now();
        let params = leaf_params(host, clock::now())?;
        let (not_before, not_after) = (params.not_before, params.not_after);
        let signer = self.signer();
        let next_signs_from = self.next_signs_from();
        let certificate = params.signed_by(&self.leaf_key, &signer.issuer)?;
        let mut chain = vec![certificate.der().clone()];
        chain.extend(signer.chain.iter().cloned());
        let certified = CertifiedKey::new(chain, Arc::clone(&self.leaf_signer));
        Ok(Arc::new(LeafCertificate {
            certified: Arc::new(certified),
            made_at,
            shown_until: next_signs_from
                .filter(|_| std::ptr::eq(signer, &raw const self.current))
                .unwrap_or(Timestamp::MAX),
            not_before,
            not_after,
        }))
    }
}

fn bad_certificate(options: &Options, reason: String) -> CaError {
    CaError::Content {
        path: options.cert.clone(),
        what: "certificate",
        reason,
    }
}

/// Returns the certificates of a PEM file from the first up to the root. Certificates
/// after the root are ignored.
///
/// # Errors
///
/// The fault of the first certificate, worded as the end of a sentence.
fn chain_to_root(pem: &str, now: Timestamp) -> Result<Vec<CertificateDer<'static>>, String> {
    let mut chain: Vec<CertificateDer<'static>> = Vec::new();
    for (below, certificate) in (0..).zip(CertificateDer::pem_slice_iter(pem.as_bytes())) {
        let certificate = certificate.map_err(|error| error.to_string())?;
        if let Some(before) = chain.last() {
            check_link(before, &certificate, below, now)?;
        }
        let is_end = is_root(&certificate);
        chain.push(certificate);
        if is_end {
            return Ok(chain);
        }
    }
    // Without a root, clients would have nothing to trust, and `ca export` nothing to
    // print.
    Err("it is not a root, and that of its root does not follow it in the file".to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs::{DirBuilder, Permissions};
    use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
    use std::path::Path;

    use rcgen::{CertificateParams, IsCa, KeyUsagePurpose};
    use x509_parser::parse_x509_certificate;
    use x509_parser::time::ASN1Time;

    use super::*;
    use crate::ca_files::{ClosedPath, closed_to_others};

    fn options(folder: &Path) -> Options {
        Options {
            cert: folder.join("certs/ca.pem"),
            key: folder.join("certs/ca.key"),
            leaf_cache: NonZeroUsize::MIN,
        }
    }

    // Ours: the key is readable by its owner only, and is never overwritten.
    #[test]
    fn an_authority_is_created_once_and_loaded_again() {
        let folder = tempfile::tempdir().unwrap();
        let options = options(folder.path());
        let made = Ca::open(&options).unwrap().root().fingerprint();
        assert_eq!(Ca::open(&options).unwrap().root().fingerprint(), made);
        assert_eq!(options.key.metadata().unwrap().mode() & 0o777, 0o600);
        assert!(matches!(Ca::create(&options), Err(CaError::Exists(_))));
    }

    // Ours: two proxies that start at once in a new folder must both start.
    #[test]
    fn processes_that_create_an_authority_at_once_get_the_same_one() {
        let folder = tempfile::tempdir().unwrap();
        let options = options(folder.path());
        let fingerprints: Vec<_> = std::thread::scope(|scope| {
            let open = || scope.spawn(|| Ca::open(&options).unwrap().root().fingerprint());
            let threads: Vec<_> = (0..8).map(|_| open()).collect();
            let ends = threads.into_iter().map(|thread| thread.join().unwrap());
            ends.collect()
        });
        assert!(fingerprints.iter().all(|one| *one == fingerprints[0]));
    }

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().mode() & 0o777
    }

    // Ours: crawlers run as other users and must be able to read the certificate.
    #[test]
    fn every_user_can_read_the_certificate_but_only_the_owner_the_key() {
        let folder = tempfile::tempdir().unwrap();
        let options = options(folder.path());
        Ca::create(&options).unwrap();
        assert_eq!(mode(&options.cert), 0o644);
        assert_eq!(mode(options.cert.parent().unwrap()), 0o755);
        assert_eq!(mode(&options.key), 0o600);
        assert_eq!(closed_to_others(&options.cert), []);
    }

    #[test]
    fn a_separate_key_folder_is_closed_to_other_users() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            key: folder.path().join("private/ca.key"),
            ..options(folder.path())
        };
        Ca::create(&options).unwrap();
        assert_eq!(mode(options.key.parent().unwrap()), 0o700);
        assert_eq!(mode(options.cert.parent().unwrap()), 0o755);
    }

    // Ours: the mode of an existing folder is reported but not changed, because the
    // folder may belong to another user.
    #[test]
    fn paths_that_hide_the_certificate_are_listed_with_the_needed_modes() {
        let folder = tempfile::tempdir().unwrap();
        let options = options(folder.path());
        let certs = options.cert.parent().unwrap();
        DirBuilder::new().mode(0o700).create(certs).unwrap();
        Ca::create(&options).unwrap();
        assert_eq!(mode(certs), 0o700);
        std::fs::set_permissions(&options.cert, Permissions::from_mode(0o600)).unwrap();
        let told = |path: &Path, wanted_mode| ClosedPath {
            path: path.to_owned(),
            wanted_mode,
        };
        let wanted = [told(certs, 0o755), told(&options.cert, 0o644)];
        assert_eq!(closed_to_others(&options.cert), wanted);
    }

    #[test]
    fn an_incomplete_authority_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let options = options(folder.path());
        Ca::create(&options).unwrap();
        std::fs::remove_file(&options.cert).unwrap();
        assert!(matches!(Ca::open(&options), Err(CaError::Half { .. })));
        assert!(options.key.exists());
    }

    #[test]
    fn a_key_that_others_may_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let options = options(folder.path());
        Ca::create(&options).unwrap();
        std::fs::set_permissions(&options.key, Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(
            Ca::open(&options),
            Err(CaError::Mode { mode: 0o640, .. })
        ));
    }

    #[test]
    fn a_leaf_is_cached_and_reused() {
        let folder = tempfile::tempdir().unwrap();
        let ca = Ca::open(&options(folder.path())).unwrap();
        let host: Host = "h.test".parse().unwrap();
        assert!(Arc::ptr_eq(
            &ca.leaf(&host).unwrap(),
            &ca.leaf(&host).unwrap()
        ));
    }

    // RFC 5280, section 4.1.2.5: a certificate is valid at the current time of the clock.
    // 25 hours exceed the time that a leaf is shown, 40 days exceed its lifetime.
    #[tokio::test(start_paused = true)]
    async fn a_leaf_is_signed_again_after_the_clock_was_set() {
        use jiff::SignedDuration;
        use politesse_base::testing::set_wall_by;

        let folder = tempfile::tempdir().unwrap();
        let ca = Ca::open(&options(folder.path())).unwrap();
        let host: Host = "h.test".parse().unwrap();
        for hours in [25, 40 * 24, -80 * 24] {
            let before = ca.leaf(&host).unwrap();
            set_wall_by(SignedDuration::from_hours(hours));
            let leaf = ca.leaf(&host).unwrap();
            assert!(!Arc::ptr_eq(&leaf, &before), "{hours}");
            let (_, shown) = parse_x509_certificate(&leaf.cert[0]).unwrap();
            let now = ASN1Time::from_timestamp(clock::now().as_second()).unwrap();
            assert!(shown.validity().is_valid_at(now), "{hours}");
            assert!(Arc::ptr_eq(&leaf, &ca.leaf(&host).unwrap()), "{hours}");
        }
        // Every leaf tolerates a clock that is off by a day.
        let before = ca.leaf(&host).unwrap();
        set_wall_by(SignedDuration::from_hours(-23));
        assert!(Arc::ptr_eq(&before, &ca.leaf(&host).unwrap()));
        tokio::time::advance(LEAF_KEPT).await;
        assert!(!Arc::ptr_eq(&before, &ca.leaf(&host).unwrap()));
    }

    /// Returns the error for a certificate made from `params` and signed with its own
    /// key, if the key file holds `key`.
    fn refused(params: &CertificateParams, own: &KeyPair, key: &KeyPair) -> String {
        let folder = tempfile::tempdir().unwrap();
        let options = options(folder.path());
        make_folder(&options.cert, CERT_FOLDER_MODE).unwrap();
        write_new(&options.key, &key.serialize_pem(), KEY_MODE).unwrap();
        let certificate = params.self_signed(own).unwrap().pem();
        write_new(&options.cert, &certificate, CERT_MODE).unwrap();
        Ca::open(&options).unwrap_err().to_string()
    }

    // RFC 5280, sections 4.1.2.5, 4.2.1.3 and 4.2.1.9: crawlers would not trust leaves
    // signed by such a certificate, and would not say why.
    #[test]
    fn a_certificate_that_cannot_sign_leaves_is_refused() {
        let now = clock::now();
        let (own, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let good = authority_params(now).unwrap();
        assert!(refused(&good, &own, &other).contains("another key"));
        let mut leaf = authority_params(now).unwrap();
        leaf.is_ca = IsCa::ExplicitNoCa;
        assert!(refused(&leaf, &own, &own).contains("not that of a certificate authority"));
        let mut mute = authority_params(now).unwrap();
        mute.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        assert!(refused(&mute, &own, &own).contains("sign certificates"));
        let mut old = authority_params(now).unwrap();
        old.not_after = old.not_before;
        assert!(refused(&old, &own, &own).contains("not valid now"));
    }

    // Ours: other contents of the file are not published.
    #[test]
    fn only_the_certificate_is_published() {
        let folder = tempfile::tempdir().unwrap();
        let options = options(folder.path());
        Ca::create(&options).unwrap();
        let key = std::fs::read_to_string(&options.key).unwrap();
        let both = std::fs::read_to_string(&options.cert).unwrap() + &key;
        std::fs::write(&options.cert, both).unwrap();
        let told = Ca::open(&options).unwrap().root().pem().to_owned();
        assert!(!told.contains("PRIVATE") && told.starts_with("-----BEGIN CERTIFICATE"));
        assert!(CertificateDer::from_pem_slice(told.as_bytes()).is_ok());
    }
}
