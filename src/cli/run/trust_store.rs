//! PKCS#12 trust store with the roots of the authority, for Java.
//!
//! RFC 7292 defines the format. A trust store holds no secret, so this one is neither
//! encrypted nor protected by a password: Java reads it with any password, or with
//! none.

use yasna::models::ObjectIdentifier;
use yasna::{DERWriter, Tag, construct_der};

/// Content of type `data` (RFC 5652, section 4).
const DATA: &[u64] = &[1, 2, 840, 113_549, 1, 7, 1];
/// Bag that holds a certificate (RFC 7292, section 4.2.3).
const CERT_BAG: &[u64] = &[1, 2, 840, 113_549, 1, 12, 10, 1, 3];
/// Certificate of X.509 in such a bag (RFC 7292, section 4.2.3).
const X509_CERTIFICATE: &[u64] = &[1, 2, 840, 113_549, 1, 9, 22, 1];
/// Attribute with the name of an entry (RFC 2985, section 5.5.1).
const FRIENDLY_NAME: &[u64] = &[1, 2, 840, 113_549, 1, 9, 20];
/// Oracle's attribute for the uses that a certificate is trusted for. Without it, Java
/// takes the certificate for part of a chain and does not trust it.
const TRUSTED_KEY_USAGE: &[u64] = &[2, 16, 840, 1, 113_894, 746_875, 1, 1];
/// Every use (RFC 5280, section 4.2.1.12).
const ANY_EXTENDED_KEY_USAGE: &[u64] = &[2, 5, 29, 37, 0];
/// Version of the format (RFC 7292, section 4).
const VERSION: u8 = 3;
/// Prefix of each entry's name. Names must differ, or Java merges the entries.
const ALIAS: &str = "politesse";

/// Writes a trust store that contains only the `certificates` (DER).
pub(super) fn pkcs12(certificates: &[&[u8]]) -> Vec<u8> {
    let bags = construct_der(|writer| {
        writer.write_sequence_of(|bags| {
            for (index, certificate) in certificates.iter().enumerate() {
                let alias = match index {
                    0 => ALIAS.to_owned(),
                    _ => format!("{ALIAS}-{index}"),
                };
                write_bag(bags.next(), certificate, &alias);
            }
        });
    });
    let contents = construct_der(|writer| {
        writer.write_sequence_of(|contents| write_data(contents.next(), &bags));
    });
    // An optional MacData is left out; it would protect the store with a password.
    construct_der(|writer| {
        writer.write_sequence(|store| {
            store.next().write_u8(VERSION);
            write_data(store.next(), &contents);
        });
    })
}

/// Writes `bytes` as a ContentInfo of type `data`.
fn write_data(writer: DERWriter<'_>, bytes: &[u8]) {
    writer.write_sequence(|content| {
        write_oid(content.next(), DATA);
        content
            .next()
            .write_tagged(Tag::context(0), |value| value.write_bytes(bytes));
    });
}

/// Writes a SafeBag with `certificate` and the attributes that make it a trusted entry.
fn write_bag(writer: DERWriter<'_>, certificate: &[u8], alias: &str) {
    writer.write_sequence(|bag| {
        write_oid(bag.next(), CERT_BAG);
        bag.next().write_tagged(Tag::context(0), |value| {
            value.write_sequence(|entry| {
                write_oid(entry.next(), X509_CERTIFICATE);
                entry
                    .next()
                    .write_tagged(Tag::context(0), |der| der.write_bytes(certificate));
            });
        });
        bag.next().write_set_of(|attributes| {
            write_attribute(attributes.next(), FRIENDLY_NAME, |value| {
                value.write_bmp_string(alias);
            });
            write_attribute(attributes.next(), TRUSTED_KEY_USAGE, |value| {
                write_oid(value, ANY_EXTENDED_KEY_USAGE);
            });
        });
    });
}

/// Writes an attribute with a single value, written by `write_value`.
fn write_attribute(writer: DERWriter<'_>, id: &[u64], write_value: impl FnOnce(DERWriter<'_>)) {
    writer.write_sequence(|attribute| {
        write_oid(attribute.next(), id);
        attribute
            .next()
            .write_set_of(|values| write_value(values.next()));
    });
}

fn write_oid(writer: DERWriter<'_>, id: &[u64]) {
    writer.write_oid(&ObjectIdentifier::from_slice(id));
}

#[cfg(test)]
mod tests {
    use yasna::{ASN1Result, BERReader, parse_der};

    use super::*;

    fn read_data(reader: BERReader<'_, '_>) -> ASN1Result<Vec<u8>> {
        reader.read_sequence(|content| {
            assert_eq!(content.next().read_oid()?.components().as_slice(), DATA);
            let tag = Tag::context(0);
            content.next().read_tagged(tag, |value| value.read_bytes())
        })
    }

    // RFC 7292, section 4: no MacData follows, and nothing is encrypted.
    #[test]
    fn a_trust_store_holds_the_certificate_unencrypted() {
        let store = pkcs12(&[b"a certificate"]);
        let contents = parse_der(&store, |reader| {
            reader.read_sequence(|store| {
                assert_eq!(store.next().read_u8()?, VERSION);
                read_data(store.next())
            })
        });
        let bags = parse_der(&contents.unwrap(), |reader| {
            reader.read_sequence(|contents| read_data(contents.next()))
        });
        let held = parse_der(&bags.unwrap(), |reader| {
            reader.read_sequence(|bags| {
                bags.next().read_sequence(|bag| {
                    assert_eq!(bag.next().read_oid()?.components().as_slice(), CERT_BAG);
                    let held = bag.next().read_tagged(Tag::context(0), |value| {
                        value.read_sequence(|entry| {
                            entry.next().read_oid()?;
                            entry
                                .next()
                                .read_tagged(Tag::context(0), |der| der.read_bytes())
                        })
                    });
                    let attributes = bag.next().read_der()?;
                    let usage = construct_der(|writer| write_oid(writer, TRUSTED_KEY_USAGE));
                    assert!(attributes.windows(usage.len()).any(|part| part == usage));
                    held
                })
            })
        });
        assert_eq!(held.unwrap(), b"a certificate");
    }
}
