//! Contents of the certificates of the local authority: roots, nodes, and leaves for the
//! hosts that clients connect to.
//!
//! RFC 5280. Does not know where certificates are stored.

use std::net::IpAddr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, PublicKeyData as _, SanType, SerialNumber,
};
use rustls::pki_types::CertificateDer;
use time::OffsetDateTime;
use x509_parser::certificate::X509Certificate;
use x509_parser::parse_x509_certificate;
use x509_parser::time::ASN1Time;

use politesse_decision::digest::Digest;
use politesse_robots::origin::Host;

/// One day.
pub(super) const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Lifetime of a root. Ten years, because people install it by hand.
const CA_LIFETIME: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
/// Lifetime of a leaf: eight days, beginning one day in the past. A new one is signed
/// every day.
const LEAF_LIFETIME: Duration = Duration::from_secs(8 * 24 * 60 * 60);

/// Returns the SHA-256 digest of a certificate's public key in base64, the format of
/// Chromium (RFC 7469, section 2.4: `SubjectPublicKeyInfo`). `None` if the certificate
/// cannot be parsed.
pub(super) fn spki_hash(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, certificate) = parse_x509_certificate(certificate).ok()?;
    let digest = Digest::of(certificate.public_key().raw);
    Some(STANDARD.encode(digest.as_bytes()))
}

/// Returns the contents of a root certificate created at `now`: P-256, critical
/// constraints, and the key identifiers that strict verifiers (Python 3.13, Apple)
/// require (RFC 5280, section 4.2.1).
///
/// # Errors
///
/// [`rcgen::Error`] if the system provides no randomness.
pub(super) fn authority_params(now: Timestamp) -> Result<CertificateParams, rcgen::Error> {
    let host = std::fs::read_to_string("/etc/hostname").unwrap_or_default();
    let mut params = params(now, CA_LIFETIME)?;
    params.distinguished_name = name(&format!("CA {}", host.trim()), now);
    // Allows one level of signing certificates below it: those of fleet nodes.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(1));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

/// Returns the contents of the certificate of `node`, created at `now`: like a root, but
/// certificates below it cannot sign others.
///
/// # Errors
///
/// [`rcgen::Error`] if the system provides no randomness.
pub(super) fn node_params(
    node: &str,
    lifetime: Duration,
    now: Timestamp,
) -> Result<CertificateParams, rcgen::Error> {
    let mut params = params(now, lifetime.saturating_add(DAY))?;
    params.distinguished_name = name(&format!("node {node}"), now);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

/// Returns a distinguished name that contains the date of creation, because a new key
/// needs a new name.
fn name(of: &str, now: Timestamp) -> DistinguishedName {
    let made = now.strftime("%Y-%m-%d");
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, format!("politesse {of} {made}"));
    name.push(DnType::OrganizationName, "politesse");
    name
}

/// Returns the contents of a leaf for `host`, created at `now`.
///
/// # Errors
///
/// [`rcgen::Error`] if the host name is not allowed in a certificate.
pub(super) fn leaf_params(host: &Host, now: Timestamp) -> Result<CertificateParams, rcgen::Error> {
    let mut params = params(now, LEAF_LIFETIME)?;
    params.distinguished_name = DistinguishedName::new();
    params.subject_alt_names = vec![match host {
        Host::Name(name) => SanType::DnsName(name.to_string().try_into()?),
        Host::Address(address) => SanType::IpAddress(*address as IpAddr),
    }];
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(params)
}

fn params(now: Timestamp, lifetime: Duration) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.use_authority_key_identifier_extension = true;
    params.serial_number = Some(serial()?);
    // Valid from one day ago, for clients whose clocks are slow.
    params.not_before = to_date(now) - DAY;
    params.not_after = params.not_before + lifetime;
    Ok(params)
}

/// Returns a serial number of 127 bits, positive (RFC 5280, section 4.1.2.2): random
/// except for the highest bit.
fn serial() -> Result<SerialNumber, rcgen::Error> {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| rcgen::Error::RingUnspecified)?;
    // The highest bit is the sign of an ASN.1 integer. The next one is set so that all
    // serial numbers have the same length.
    bytes[0] = bytes[0] & 0x7f | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}

/// Converts a time to the type used in certificates.
pub(super) fn to_date(time: Timestamp) -> OffsetDateTime {
    // Any time that a clock shows is within the range of the type.
    OffsetDateTime::from_unix_timestamp(time.as_second()).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// Checks that `certificate` may sign others at `now` and that `key` is its key. Without
/// the check, clients would trust no leaf, and the log would not say why.
///
/// # Errors
///
/// The fault of the certificate, worded as the end of a sentence.
pub(super) fn check_authority(
    certificate: &CertificateDer<'_>,
    key: &KeyPair,
    now: Timestamp,
) -> Result<(), String> {
    let parsed = parse(certificate)?;
    check_signer(&parsed, now)?;
    if parsed.public_key().raw != key.subject_public_key_info() {
        return Err("it belongs to another key".to_owned());
    }
    Ok(())
}

/// Checks that `issuer` signed `certificate` and may do so at `now`. `below` is the
/// number of signing certificates between `issuer` and the leaf.
///
/// # Errors
///
/// The fault, worded as the end of a sentence.
pub(super) fn check_link(
    certificate: &CertificateDer<'_>,
    issuer: &CertificateDer<'_>,
    below: u32,
    now: Timestamp,
) -> Result<(), String> {
    let (certificate, issuer) = (parse(certificate)?, parse(issuer)?);
    let name = issuer.subject().to_string();
    if certificate.issuer().as_raw() != issuer.subject().as_raw() {
        let wanted = certificate.issuer();
        return Err(format!("{wanted} has signed it, and {name} follows it"));
    }
    check_signer(&issuer, now).map_err(|reason| format!("{name}: {reason}"))?;
    let constraints = issuer.basic_constraints().ok().flatten();
    let room = constraints.and_then(|constraints| constraints.value.path_len_constraint);
    if room.is_some_and(|room| room < below) {
        return Err(format!(
            "{name} was made without room for certificates of nodes"
        ));
    }
    let signed = certificate.verify_signature(Some(issuer.public_key()));
    signed.map_err(|_| format!("it was not signed by the key of {name} that follows it"))
}

/// Checks that a certificate may sign others at `now`, without checking its key.
///
/// # Errors
///
/// The fault, worded as the end of a sentence.
pub(super) fn check_signing(
    certificate: &CertificateDer<'_>,
    now: Timestamp,
) -> Result<(), String> {
    check_signer(&parse(certificate)?, now)
}

/// Checks that a parsed certificate may sign others at `now`.
fn check_signer(parsed: &X509Certificate<'_>, now: Timestamp) -> Result<(), String> {
    if !parsed.is_ca() {
        return Err("it is not that of a certificate authority".to_owned());
    }
    let usage = parsed.key_usage().map_err(|error| error.to_string())?;
    if usage.is_some_and(|usage| !usage.value.key_cert_sign()) {
        return Err("its key usage does not let it sign certificates".to_owned());
    }
    let now = ASN1Time::from_timestamp(now.as_second()).map_err(|error| error.to_string())?;
    let validity = parsed.validity();
    if !validity.is_valid_at(now) {
        let (from, to) = (validity.not_before, validity.not_after);
        return Err(format!("it is not valid now, but from {from} to {to}"));
    }
    Ok(())
}

fn parse<'a>(certificate: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, String> {
    let parsed = parse_x509_certificate(certificate);
    parsed
        .map(|(_, parsed)| parsed)
        .map_err(|error| error.to_string())
}

/// Reports whether `certificate` is a root: its issuer is its own subject.
pub(super) fn is_root(certificate: &CertificateDer<'_>) -> bool {
    let is_own =
        |parsed: X509Certificate<'_>| parsed.issuer().as_raw() == parsed.subject().as_raw();
    parse(certificate).is_ok_and(is_own)
}

/// Reports whether the path length of `certificate` allows a signing certificate below
/// it.
pub(super) fn has_room(certificate: &CertificateDer<'_>) -> bool {
    let Ok(parsed) = parse(certificate) else {
        return false;
    };
    let constraints = parsed.basic_constraints().ok().flatten();
    let room = constraints.and_then(|constraints| constraints.value.path_len_constraint);
    room.is_none_or(|room| room != 0)
}

/// Returns the start of the validity of `certificate`, in seconds since 1970; `None` if
/// it cannot be parsed.
pub(super) fn begin_of(certificate: &CertificateDer<'_>) -> Option<i64> {
    let (_, parsed) = parse_x509_certificate(certificate).ok()?;
    Some(parsed.validity().not_before.timestamp())
}

/// Returns the expiry of `certificate`, in seconds since 1970; `None` if it cannot be
/// parsed.
pub(super) fn end_of(certificate: &CertificateDer<'_>) -> Option<i64> {
    let (_, parsed) = parse_x509_certificate(certificate).ok()?;
    Some(parsed.validity().not_after.timestamp())
}

/// Encodes a certificate as PEM.
pub(super) fn to_pem(certificate: &CertificateDer<'_>) -> String {
    let base64 = STANDARD.encode(certificate);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    // RFC 7468, section 2: all lines but the last have exactly 64 characters.
    for line in base64.as_bytes().chunks(64) {
        pem.push_str(&String::from_utf8_lossy(line));
        pem.push('\n');
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}
