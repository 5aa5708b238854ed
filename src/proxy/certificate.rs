//! Contents of the certificates of the local authority: its own, and those of
//! the hosts that clients connect to.
//!
//! RFC 5280. Does not know where certificates are kept.

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
use x509_parser::parse_x509_certificate;
use x509_parser::time::ASN1Time;

use politesse_robots::origin::Host;

/// Length of a day.
pub(super) const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Ten years, because people install the authority's certificate by hand.
const CA_LIFETIME: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
/// A leaf is valid from a day ago for eight days, and is made anew each day.
const LEAF_LIFETIME: Duration = Duration::from_secs(8 * 24 * 60 * 60);

/// Returns the contents of an authority's certificate made at `now`: P-256,
/// critical constraints, and the key identifiers that strict verifiers (Python
/// 3.13, Apple) ask for (RFC 5280, section 4.2.1).
///
/// # Errors
///
/// [`rcgen::Error`] if the system has no randomness.
pub(super) fn authority_params(now: Timestamp) -> Result<CertificateParams, rcgen::Error> {
    let host = std::fs::read_to_string("/etc/hostname").unwrap_or_default();
    let made = now.strftime("%Y-%m-%d");
    let mut name = DistinguishedName::new();
    name.push(
        DnType::CommonName,
        format!("politesse CA {} {made}", host.trim()),
    );
    name.push(DnType::OrganizationName, "politesse");
    let mut params = params(now, CA_LIFETIME)?;
    params.distinguished_name = name;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

/// Returns the contents of a certificate for `host` made at `now`.
///
/// # Errors
///
/// [`rcgen::Error`] if the name cannot stand in a certificate.
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
    // From a day ago, for clients whose clocks run behind.
    params.not_before = to_date(now) - DAY;
    params.not_after = params.not_before + lifetime;
    Ok(params)
}

/// Returns 127 random bits, positive (RFC 5280, section 4.1.2.2).
fn serial() -> Result<SerialNumber, rcgen::Error> {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| rcgen::Error::RingUnspecified)?;
    // The highest bit is the sign of an ASN.1 integer. The next one is set, so
    // that every number has the same length.
    bytes[0] = bytes[0] & 0x7f | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}

/// Converts a time to the type that certificates have.
pub(super) fn to_date(time: Timestamp) -> OffsetDateTime {
    // Any time a clock shows lies within the years that the type can hold.
    OffsetDateTime::from_unix_timestamp(time.as_second()).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// Checks that `certificate` may sign at `now`, and that `key` is its key.
/// Otherwise no client would trust a leaf, and the log would not say why.
///
/// # Errors
///
/// What is wrong with the certificate, as the end of a sentence.
pub(super) fn check_authority(
    certificate: &CertificateDer<'_>,
    key: &KeyPair,
    now: Timestamp,
) -> Result<(), String> {
    let text = |error: &dyn std::error::Error| error.to_string();
    let (_, parsed) = parse_x509_certificate(certificate).map_err(|error| text(&error))?;
    if !parsed.is_ca() {
        return Err("it is not that of a certificate authority".to_owned());
    }
    let usage = parsed.key_usage().map_err(|error| text(&error))?;
    if usage.is_some_and(|usage| !usage.value.key_cert_sign()) {
        return Err("its key usage does not let it sign certificates".to_owned());
    }
    let now = ASN1Time::from_timestamp(now.as_second()).map_err(|error| text(&error))?;
    let validity = parsed.validity();
    if !validity.is_valid_at(now) {
        let (from, to) = (validity.not_before, validity.not_after);
        return Err(format!("it is not valid now, but from {from} to {to}"));
    }
    if parsed.public_key().raw != key.subject_public_key_info() {
        return Err("it belongs to another key".to_owned());
    }
    Ok(())
}

/// Returns the second, since 1970, from which `certificate` is valid; `None` if it cannot
/// be read.
pub(super) fn begin_of(certificate: &CertificateDer<'_>) -> Option<i64> {
    let (_, parsed) = parse_x509_certificate(certificate).ok()?;
    Some(parsed.validity().not_before.timestamp())
}

/// Returns the second, since 1970, at which `certificate` ends; `None` if it cannot be
/// read.
pub(super) fn end_of(certificate: &CertificateDer<'_>) -> Option<i64> {
    let (_, parsed) = parse_x509_certificate(certificate).ok()?;
    Some(parsed.validity().not_after.timestamp())
}

/// Writes a certificate as PEM.
pub(super) fn to_pem(certificate: &CertificateDer<'_>) -> String {
    let base64 = STANDARD.encode(certificate);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    // RFC 7468, section 2: lines of exactly 64 characters but for the last.
    for line in base64.as_bytes().chunks(64) {
        pem.push_str(&String::from_utf8_lossy(line));
        pem.push('\n');
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}
