//! The local certificate authority, and the certificates it makes for the
//! names that crawlers connect to.
//!
//! One key serves every leaf of a process, so that a new name costs one
//! signature. Nothing of an origin's own certificate is copied: what is wrong
//! with it is answered inside the intercepted connection.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use moka::sync::Cache;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PublicKeyData as _, SanType, SerialNumber,
};
use rustls::crypto::aws_lc_rs::sign::any_ecdsa_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SigningKey};
use thiserror::Error;
use time::OffsetDateTime;
use x509_parser::certificate::X509Certificate;
use x509_parser::parse_x509_certificate;
use x509_parser::time::ASN1Time;

use crate::clock::{self, Stamp};
use crate::decision::digest::Digest;
use politesse_robots::origin::Host;

/// Where the authority is kept.
#[derive(Debug, Clone)]
pub struct Options {
    /// Its certificate, in PEM.
    pub cert: PathBuf,
    /// Its key, in PEM; readable by the owner alone.
    pub key: PathBuf,
    /// How many leaf certificates are kept for reuse.
    pub leaf_cache: NonZeroUsize,
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Ten years: crawlers are told to trust it once.
const CA_LIFETIME: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
/// A leaf holds from a day ago for eight days, and is made anew each day.
const LEAF_LIFETIME: Duration = Duration::from_secs(8 * 24 * 60 * 60);
const LEAF_KEPT: Duration = DAY;
/// How often, and how many times, it is looked whether another process is done
/// with making the authority: milliseconds suffice.
const MAKING_INTERVAL: Duration = Duration::from_millis(20);
const MAKING_WAITS: u32 = 15;
/// Only the owner may read the key.
const KEY_MODE: u32 = 0o600;
/// Folder of a key that does not lie beside its certificate.
const KEY_FOLDER_MODE: u32 = 0o700;
/// Everybody may read the certificate: crawlers run as other users, and it
/// holds nothing secret.
const CERT_MODE: u32 = 0o644;
const CERT_FOLDER_MODE: u32 = 0o755;

/// Why there is no authority to intercept with. Each keeps the proxy from
/// starting.
#[derive(Debug, Error)]
pub enum CaError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// One of the two files is missing; it is not made anew, since the other
    /// may be trusted somewhere.
    #[error("{} exists but {} does not; put it back, or remove both to start afresh", found.display(), missing.display())]
    Half {
        /// The file that is there.
        found: PathBuf,
        /// The file that is not.
        missing: PathBuf,
    },
    /// Others than its owner may read the key.
    #[error("{} may be read by others (mode {mode:o}); `chmod 600` it", path.display())]
    Mode {
        /// The key's file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A file does not hold what it should.
    #[error("{} holds no usable {what}: {reason}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// `certificate` or `key`.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The two files are there already.
    #[error("{} exists; it is never overwritten", .0.display())]
    Exists(PathBuf),
    /// A certificate could not be made.
    #[error("cannot make a certificate")]
    Make(#[from] rcgen::Error),
}

impl CaError {
    /// Whether it may be that another process makes the two files right now:
    /// the key first, then the certificate.
    fn may_be_in_the_making(&self) -> bool {
        let is_empty = |path: &Path| path.metadata().is_ok_and(|file| file.len() == 0);
        match self {
            Self::Half { .. } | Self::Exists(_) => true,
            Self::Write { source, .. } => source.kind() == io::ErrorKind::AlreadyExists,
            Self::Content { path, .. } => is_empty(path),
            Self::Read { .. } | Self::Mode { .. } | Self::Make(_) => false,
        }
    }
}

/// The authority of one proxy.
pub struct Ca {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    pem: String,
    leaf_key: KeyPair,
    leaf_signer: Arc<dyn SigningKey>,
    leaves: Cache<Host, Arc<LeafCertificate>>,
}

/// A certificate for a host, and when it may be shown.
struct LeafCertificate {
    certified: Arc<CertifiedKey>,
    minted: Stamp,
    not_before: OffsetDateTime,
    not_after: OffsetDateTime,
}

impl LeafCertificate {
    /// Whether a client that goes by our clock takes it, for a while to come.
    ///
    /// The clock may have been set, or the machine have slept, since it was
    /// made.
    fn is_current(&self) -> bool {
        let now = to_date(clock::now());
        let is_valid = self.not_before <= now && now + DAY < self.not_after;
        is_valid && self.minted.age() < LEAF_KEPT
    }
}

impl std::fmt::Debug for Ca {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ca")
            .field("fingerprint", &self.fingerprint())
            .finish_non_exhaustive()
    }
}

impl Ca {
    /// Reads the authority, or makes it if neither file is there. One that
    /// another process is about to make is waited for.
    ///
    /// # Errors
    ///
    /// [`CaError`], naming the file.
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
        match (options.cert.exists(), options.key.exists()) {
            (false, false) => Self::create(options)?,
            (true, true) => {}
            (found_cert, _) => {
                let (found, missing) = if found_cert {
                    (&options.cert, &options.key)
                } else {
                    (&options.key, &options.cert)
                };
                return Err(CaError::Half {
                    found: found.clone(),
                    missing: missing.clone(),
                });
            }
        }
        Self::load(options)
    }

    /// Makes a new authority and writes its two files.
    ///
    /// # Errors
    ///
    /// [`CaError::Exists`] if either is there; [`CaError::Write`].
    pub fn create(options: &Options) -> Result<(), CaError> {
        for path in [&options.cert, &options.key] {
            if path.exists() {
                return Err(CaError::Exists(path.clone()));
            }
        }
        let key = KeyPair::generate()?;
        let certificate = authority_params(clock::now())?.self_signed(&key)?;
        // The certificate's folder first: where both share one it must be open
        // to others, and the key is protected by its own mode.
        make_folder(&options.cert, CERT_FOLDER_MODE)?;
        make_folder(&options.key, KEY_FOLDER_MODE)?;
        write_new(&options.key, &key.serialize_pem(), KEY_MODE)?;
        write_new(&options.cert, &certificate.pem(), CERT_MODE).inspect_err(|_| {
            // A key without a certificate would keep the next start from
            // making both.
            let _ = std::fs::remove_file(&options.key);
        })
    }

    /// Reads the authority.
    ///
    /// # Errors
    ///
    /// [`CaError::Read`], [`CaError::Mode`] or [`CaError::Content`].
    pub fn load(options: &Options) -> Result<Self, CaError> {
        let pem = read(&options.cert)?;
        let bad_certificate = |reason: String| CaError::Content {
            path: options.cert.clone(),
            what: "certificate",
            reason,
        };
        let certificate = CertificateDer::from_pem_slice(pem.as_bytes())
            .map_err(|error| bad_certificate(error.to_string()))?;
        let key = load_key(&options.key)?;
        check_authority(&certificate, &key).map_err(bad_certificate)?;
        let issuer = Issuer::from_ca_cert_der(&certificate, key)
            .map_err(|error| bad_certificate(error.to_string()))?;
        let leaf_key = KeyPair::generate()?;
        Ok(Self {
            issuer,
            pem: to_pem(&certificate),
            certificate,
            leaf_signer: signer(&leaf_key)?,
            leaf_key,
            leaves: Cache::builder()
                .max_capacity(options.leaf_cache.get() as u64)
                .time_to_live(LEAF_KEPT)
                .build(),
        })
    }

    /// Its certificate, in DER.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// The certificate, as the crawler's trust store wants it.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// The SHA-256 of the certificate.
    pub fn fingerprint(&self) -> Digest {
        Digest::of(&self.certificate)
    }

    /// The certificate for `host`, kept or newly made, with the authority's
    /// behind it.
    ///
    /// # Errors
    ///
    /// [`CaError::Make`] if the name cannot stand in a certificate.
    pub fn leaf(&self, host: &Host) -> Result<Arc<CertifiedKey>, Arc<CaError>> {
        if self.leaves.get(host).is_some_and(|leaf| !leaf.is_current()) {
            self.leaves.invalidate(host);
        }
        let leaf = self.leaves.try_get_with_by_ref(host, || self.mint(host))?;
        Ok(Arc::clone(&leaf.certified))
    }

    fn mint(&self, host: &Host) -> Result<Arc<LeafCertificate>, CaError> {
        let minted = Stamp::now();
        let params = leaf_params(host, clock::now())?;
        let (not_before, not_after) = (params.not_before, params.not_after);
        let certificate = params.signed_by(&self.leaf_key, &self.issuer)?;
        let chain = vec![certificate.der().clone(), self.certificate.clone()];
        let certified = CertifiedKey::new(chain, Arc::clone(&self.leaf_signer));
        Ok(Arc::new(LeafCertificate {
            certified: Arc::new(certified),
            minted,
            not_before,
            not_after,
        }))
    }
}

/// P-256 and critical constraints, with the key identifiers that strict
/// verifiers (Python 3.13, Apple) ask for (RFC 5280, section 4.2.1).
fn authority_params(now: Timestamp) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    let host = std::fs::read_to_string("/etc/hostname").unwrap_or_default();
    let made = now.strftime("%Y-%m-%d");
    let mut name = DistinguishedName::new();
    name.push(
        DnType::CommonName,
        format!("politesse CA {} {made}", host.trim()),
    );
    name.push(DnType::OrganizationName, "politesse");
    params.distinguished_name = name;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.use_authority_key_identifier_extension = true;
    params.serial_number = Some(serial()?);
    (params.not_before, params.not_after) = validity(now, CA_LIFETIME);
    Ok(params)
}

fn leaf_params(host: &Host, now: Timestamp) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = DistinguishedName::new();
    params.subject_alt_names = vec![match host {
        Host::Name(name) => SanType::DnsName(name.to_string().try_into()?),
        Host::Address(address) => SanType::IpAddress(*address as IpAddr),
    }];
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    params.serial_number = Some(serial()?);
    (params.not_before, params.not_after) = validity(now, LEAF_LIFETIME);
    Ok(params)
}

/// Whether `certificate` may sign, and `key` is its key: otherwise no crawler
/// would trust a leaf, and nobody would know why.
fn check_authority(certificate: &CertificateDer<'_>, key: &KeyPair) -> Result<(), String> {
    let (_, parsed) = parse_x509_certificate(certificate).map_err(|error| error.to_string())?;
    if !parsed.is_ca() {
        return Err("it is not that of a certificate authority".to_owned());
    }
    let usage = parsed.key_usage().map_err(|error| error.to_string())?;
    if usage.is_some_and(|usage| !usage.value.key_cert_sign()) {
        return Err("its key usage does not let it sign certificates".to_owned());
    }
    let now =
        ASN1Time::from_timestamp(clock::now().as_second()).map_err(|error| error.to_string())?;
    if !parsed.validity().is_valid_at(now) {
        return Err(format!(
            "it is not valid now, but {}",
            validity_text(&parsed)
        ));
    }
    if parsed.public_key().raw != key.subject_public_key_info() {
        return Err("it belongs to another key".to_owned());
    }
    Ok(())
}

fn validity_text(certificate: &X509Certificate<'_>) -> String {
    let validity = certificate.validity();
    format!("from {} to {}", validity.not_before, validity.not_after)
}

/// The certificate alone: its file may hold more than may be given away.
fn to_pem(certificate: &CertificateDer<'_>) -> String {
    let base64 = STANDARD.encode(certificate);
    let lines = base64.as_bytes().chunks(64).map(String::from_utf8_lossy);
    let lines: String = lines.map(|line| format!("{line}\n")).collect();
    format!("-----BEGIN CERTIFICATE-----\n{lines}-----END CERTIFICATE-----\n")
}

/// 127 random bits, positive (RFC 5280, section 4.1.2.2).
fn serial() -> Result<SerialNumber, rcgen::Error> {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| rcgen::Error::RingUnspecified)?;
    bytes[0] = bytes[0] & 0x7f | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}

/// From a day ago, for clocks that run behind, for `lifetime` in all.
fn validity(now: Timestamp, lifetime: Duration) -> (OffsetDateTime, OffsetDateTime) {
    let from = to_date(now) - DAY;
    (from, from + lifetime)
}

fn to_date(time: Timestamp) -> OffsetDateTime {
    // Any time a clock shows lies within the years that the type can hold.
    OffsetDateTime::from_unix_timestamp(time.as_second()).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

fn signer(key: &KeyPair) -> Result<Arc<dyn SigningKey>, CaError> {
    let der = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    any_ecdsa_type(&der).map_err(|_| CaError::Make(rcgen::Error::CouldNotParseKeyPair))
}

fn load_key(path: &Path) -> Result<KeyPair, CaError> {
    let pem = read(path)?;
    let mode = path
        .metadata()
        .map_err(|source| CaError::Read {
            path: path.to_owned(),
            source,
        })?
        .mode()
        & 0o777;
    if mode & 0o077 != 0 {
        return Err(CaError::Mode {
            path: path.to_owned(),
            mode,
        });
    }
    KeyPair::from_pem(&pem).map_err(|error| CaError::Content {
        path: path.to_owned(),
        what: "key",
        reason: error.to_string(),
    })
}

fn read(path: &Path) -> Result<String, CaError> {
    std::fs::read_to_string(path).map_err(|source| CaError::Read {
        path: path.to_owned(),
        source,
    })
}

/// Makes the folder of `path` with `mode`, unless it is there. Folders above it
/// are made as the umask has it.
fn make_folder(path: &Path, mode: u32) -> Result<(), CaError> {
    let folder = path.parent().unwrap_or(Path::new(""));
    if folder.as_os_str().is_empty() || folder.is_dir() {
        return Ok(());
    }
    let make = || -> io::Result<()> {
        DirBuilder::new()
            .recursive(true)
            .mode(mode)
            .create(folder)?;
        // A strict umask (077) would keep the certificate from other users.
        std::fs::set_permissions(folder, Permissions::from_mode(mode))
    };
    make().map_err(|source| CaError::Write {
        path: folder.to_owned(),
        source,
    })
}

/// Writes a file that was not there, with exactly the permissions `mode`.
fn write_new(path: &Path, text: &str, mode: u32) -> Result<(), CaError> {
    let fill = |mut file: File| -> io::Result<()> {
        file.set_permissions(Permissions::from_mode(mode))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    let write = || -> io::Result<()> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            // Nobody else opens it before its final mode is set.
            .mode(KEY_MODE)
            .open(path)?;
        fill(file).inspect_err(|_| {
            // Half a file would be taken for an authority at the next start.
            let _ = std::fs::remove_file(path);
        })
    };
    write().map_err(|source| CaError::Write {
        path: path.to_owned(),
        source,
    })
}

/// A file or folder that keeps other users from the certificate.
#[derive(Debug, PartialEq, Eq)]
pub struct ClosedPath {
    /// The file or folder.
    pub path: PathBuf,
    /// The permissions that would let them read the certificate.
    pub wanted_mode: u32,
}

/// What keeps crawlers of other users from reading the certificate at `cert`.
///
/// Only the file and its folder are looked at: a home folder that is closed to
/// others is its owner's choice.
pub fn closed_to_others(cert: &Path) -> Vec<ClosedPath> {
    let is_closed = |path: &Path, bits: u32| {
        let metadata = path.metadata();
        metadata.is_ok_and(|metadata| metadata.mode() & bits != bits)
    };
    let mut closed = Vec::new();
    if let Some(folder) = cert.parent().filter(|folder| is_closed(folder, 0o001)) {
        closed.push(ClosedPath {
            path: folder.to_owned(),
            wanted_mode: CERT_FOLDER_MODE,
        });
    }
    if is_closed(cert, 0o004) {
        closed.push(ClosedPath {
            path: cert.to_owned(),
            wanted_mode: CERT_MODE,
        });
    }
    closed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(folder: &Path) -> Options {
        Options {
            cert: folder.join("certs/ca.pem"),
            key: folder.join("certs/ca.key"),
            leaf_cache: NonZeroUsize::MIN,
        }
    }

    // security: the key is the owner's alone, and is never overwritten.
    #[test]
    fn an_authority_is_made_once_and_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let options = options(folder.path());
        let made = Ca::open(&options).unwrap().fingerprint();
        assert_eq!(Ca::open(&options).unwrap().fingerprint(), made);
        assert_eq!(options.key.metadata().unwrap().mode() & 0o777, 0o600);
        assert!(matches!(Ca::create(&options), Err(CaError::Exists(_))));
    }

    // Ours: of two proxies that start in a new folder at once, both start.
    #[test]
    fn those_that_make_an_authority_at_once_get_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let options = options(folder.path());
        let fingerprints: Vec<_> = std::thread::scope(|scope| {
            let open = || scope.spawn(|| Ca::open(&options).unwrap().fingerprint());
            let threads: Vec<_> = (0..8).map(|_| open()).collect();
            let ends = threads.into_iter().map(|thread| thread.join().unwrap());
            ends.collect()
        });
        assert!(fingerprints.iter().all(|one| *one == fingerprints[0]));
    }

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().mode() & 0o777
    }

    // Ours: crawlers run as other users, and must read the certificate.
    #[test]
    fn the_certificate_can_be_read_by_every_user_and_the_key_by_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let options = options(folder.path());
        Ca::create(&options).unwrap();
        assert_eq!(mode(&options.cert), 0o644);
        assert_eq!(mode(options.cert.parent().unwrap()), 0o755);
        assert_eq!(mode(&options.key), 0o600);
        assert_eq!(closed_to_others(&options.cert), []);
    }

    #[test]
    fn a_key_in_a_folder_of_its_own_has_it_to_itself() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            key: folder.path().join("private/ca.key"),
            ..options(folder.path())
        };
        Ca::create(&options).unwrap();
        assert_eq!(mode(options.key.parent().unwrap()), 0o700);
        assert_eq!(mode(options.cert.parent().unwrap()), 0o755);
    }

    // A folder that was there is somebody else's: its mode is told, not changed.
    #[test]
    fn what_keeps_other_users_from_the_certificate_is_told_with_the_commands() {
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
    fn half_an_authority_is_not_replaced() {
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
        std::fs::set_permissions(&options.key, PermissionsExt::from_mode(0o640)).unwrap();
        assert!(matches!(
            Ca::open(&options),
            Err(CaError::Mode { mode: 0o640, .. })
        ));
    }

    #[test]
    fn a_leaf_is_kept_and_used_again() {
        let folder = tempfile::tempdir().unwrap();
        let ca = Ca::open(&options(folder.path())).unwrap();
        let host: Host = "h.test".parse().unwrap();
        assert!(Arc::ptr_eq(
            &ca.leaf(&host).unwrap(),
            &ca.leaf(&host).unwrap()
        ));
    }

    // RFC 5280, section 4.1.2.5: what a client is shown holds by the clock of
    // now. 25 hours are longer than a leaf is kept, 40 days longer than it holds.
    #[tokio::test(start_paused = true)]
    async fn a_leaf_is_made_anew_when_the_clock_was_set() {
        use clock::tests::set_wall_by;
        use jiff::SignedDuration;

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
        // A day is within what every leaf allows for.
        let before = ca.leaf(&host).unwrap();
        set_wall_by(SignedDuration::from_hours(-23));
        assert!(Arc::ptr_eq(&before, &ca.leaf(&host).unwrap()));
        tokio::time::advance(LEAF_KEPT).await;
        assert!(!Arc::ptr_eq(&before, &ca.leaf(&host).unwrap()));
    }

    /// Why a certificate made from `params` by its own key cannot be used, with
    /// `key` in the key's file.
    fn refused(params: &CertificateParams, own: &KeyPair, key: &KeyPair) -> String {
        let folder = tempfile::tempdir().unwrap();
        let options = options(folder.path());
        make_folder(&options.cert, CERT_FOLDER_MODE).unwrap();
        write_new(&options.key, &key.serialize_pem(), KEY_MODE).unwrap();
        let certificate = params.self_signed(own).unwrap().pem();
        write_new(&options.cert, &certificate, CERT_MODE).unwrap();
        Ca::open(&options).unwrap_err().to_string()
    }

    // RFC 5280, sections 4.1.2.5, 4.2.1.3 and 4.2.1.9: no crawler would trust
    // what these vouch for, and it would not say why.
    #[test]
    fn a_certificate_that_cannot_vouch_for_anything_is_refused() {
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

    // What else stands in the file is not given away.
    #[test]
    fn only_the_certificate_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let options = options(folder.path());
        Ca::create(&options).unwrap();
        let key = std::fs::read_to_string(&options.key).unwrap();
        let both = std::fs::read_to_string(&options.cert).unwrap() + &key;
        std::fs::write(&options.cert, both).unwrap();
        let told = Ca::open(&options).unwrap().pem().to_owned();
        assert!(!told.contains("PRIVATE") && told.starts_with("-----BEGIN CERTIFICATE"));
        assert!(CertificateDer::from_pem_slice(told.as_bytes()).is_ok());
    }
}
