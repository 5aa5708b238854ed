//! Signed notes: a text, followed by lines with signatures.
//!
//! The format is that of C2SP (signed-note), with Ed25519 signatures. A key has a
//! name and a short id, which is part of each of its signatures. A public key is
//! written as one word, `NAME+ID+BASE64`.
//!
//! Does not know what a text says, or where keys are stored.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use thiserror::Error;

use politesse_decision::digest::Digest;

/// First byte of an encoded Ed25519 key.
const ED25519_TYPE: u8 = 1;

/// Length of an Ed25519 public key (RFC 8032, section 5.1.5).
const KEY_BYTES: usize = 32;

/// Length of a key id.
const ID_BYTES: usize = 4;

/// Prefix of a signature line: an em dash and a space.
const SIGNATURE_MARK: &str = "\u{2014} ";

/// Maximum length of a note; those of this program have some 400 bytes.
const NOTE_BYTES_MAX: usize = 64 * 1024;

/// Error of a note or of a key.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NoteError {
    /// The text is not a public key.
    #[error("{0:?} is not a key: NAME+ID+BASE64 is wanted, as `politesse audit key` prints it")]
    Key(String),
    /// The bytes are not a private key.
    #[error("it is not an Ed25519 key in PKCS #8")]
    PrivateKey,
    /// The text is not a note, or has no signatures.
    #[error("it is not a signed note")]
    Form,
    /// The key has not signed the note.
    #[error("it is not signed by {0}")]
    Unsigned(Box<NoteKey>),
    /// A signature names the key but is not valid for it.
    #[error("the signature of {0} is wrong")]
    Signature(Box<NoteKey>),
}

/// Public key of a signer of notes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoteKey {
    name: String,
    public: [u8; KEY_BYTES],
}

impl NoteKey {
    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Computes the id, with which a signature names its key.
    fn id(&self) -> [u8; ID_BYTES] {
        let mut bytes = self.name.clone().into_bytes();
        bytes.extend([b'\n', ED25519_TYPE]);
        bytes.extend(self.public);
        let [a, b, c, d, ..] = *Digest::of(&bytes).as_bytes();
        [a, b, c, d]
    }
}

impl fmt::Display for NoteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut key = vec![ED25519_TYPE];
        key.extend(self.public);
        let id = u32::from_be_bytes(self.id());
        write!(f, "{}+{id:08x}+{}", self.name, STANDARD.encode(key))
    }
}

impl FromStr for NoteKey {
    type Err = NoteError;

    fn from_str(text: &str) -> Result<Self, NoteError> {
        let parse = || {
            // The name has no plus sign, but Base64 may.
            let (name, rest) = text.split_once('+')?;
            let (_, key) = rest.split_once('+')?;
            let decoded = STANDARD.decode(key).ok()?;
            let public = decoded.strip_prefix(&[ED25519_TYPE])?.try_into().ok()?;
            Some(Self {
                name: name.to_owned(),
                public,
            })
        };
        // Formatting the key again checks the id.
        let is_same = |key: &Self| is_key_name(&key.name) && key.to_string() == text;
        parse()
            .filter(is_same)
            .ok_or_else(|| NoteError::Key(text.to_owned()))
    }
}

/// Reports whether `name` is a valid key name.
fn is_key_name(name: &str) -> bool {
    let is_usual = |letter: char| letter != '+' && !letter.is_whitespace() && !letter.is_control();
    !name.is_empty() && name.chars().all(is_usual)
}

/// Named private key that signs notes.
#[derive(Debug)]
pub struct NoteSigner {
    key: NoteKey,
    pair: Ed25519KeyPair,
}

impl NoteSigner {
    /// Generates a key and returns its PKCS #8 encoding.
    ///
    /// # Errors
    ///
    /// [`NoteError::PrivateKey`] if the system gives no random bytes.
    pub fn generate() -> Result<Vec<u8>, NoteError> {
        let pair = Ed25519KeyPair::generate().map_err(|_| NoteError::PrivateKey)?;
        let encoded: aws_lc_rs::encoding::Pkcs8V1Der<'_> =
            pair.as_der().map_err(|_| NoteError::PrivateKey)?;
        Ok(encoded.as_ref().to_vec())
    }

    /// Reads the private key in `pkcs8`, for signing as `name`.
    ///
    /// # Errors
    ///
    /// [`NoteError::PrivateKey`] if it is not an Ed25519 key, and
    /// [`NoteError::Key`] if the name is empty or has a space or a plus.
    pub fn from_pkcs8(name: &str, pkcs8: &[u8]) -> Result<Self, NoteError> {
        // Other programs write version 1 of PKCS #8, which has no public key to
        // compare with.
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(pkcs8);
        Self::new(name, pair.map_err(|_| NoteError::PrivateKey)?)
    }

    fn new(name: &str, pair: Ed25519KeyPair) -> Result<Self, NoteError> {
        if !is_key_name(name) {
            return Err(NoteError::Key(name.to_owned()));
        }
        let public = pair.public_key().as_ref().try_into();
        let key = NoteKey {
            name: name.to_owned(),
            public: public.map_err(|_| NoteError::PrivateKey)?,
        };
        Ok(Self { key, pair })
    }

    /// Returns the public key.
    pub fn key(&self) -> &NoteKey {
        &self.key
    }

    /// Signs `text`, which must end with a newline.
    pub fn sign(&self, text: &str) -> SignedNote {
        let mut value = self.key.id().to_vec();
        value.extend(self.pair.sign(text.as_bytes()).as_ref());
        SignedNote {
            text: text.to_owned(),
            signatures: vec![NoteSignature {
                name: self.key.name.clone(),
                value,
            }],
        }
    }
}

/// Text with its signatures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedNote {
    text: String,
    signatures: Vec<NoteSignature>,
}

/// Signature line of a note.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NoteSignature {
    name: String,
    /// Key id, followed by the signature.
    value: Vec<u8>,
}

impl NoteSignature {
    fn parse(line: &str) -> Option<Self> {
        let (name, value) = line.strip_prefix(SIGNATURE_MARK)?.split_once(' ')?;
        let value = STANDARD.decode(value).ok()?;
        let signature = Self {
            name: name.to_owned(),
            value,
        };
        (is_key_name(name) && ID_BYTES < signature.value.len()).then_some(signature)
    }
}

impl SignedNote {
    /// Returns the text, including its last newline. Must not be trusted before
    /// [`SignedNote::verify`].
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Splits a concatenation of notes. Text that is no note stays attached to the
    /// note after it.
    pub fn split(text: &str) -> impl Iterator<Item = &str> {
        let mut rest = text;
        std::iter::from_fn(move || {
            if rest.trim().is_empty() {
                return None;
            }
            // A note ends with its last signature line, because the text may have
            // any other line.
            let mut end = 0;
            let mut is_signed = false;
            for line in rest.split_inclusive('\n') {
                let is_signature = line.starts_with(SIGNATURE_MARK);
                if is_signed && !is_signature {
                    break;
                }
                is_signed = is_signature;
                end += line.len();
            }
            let (note, behind) = rest.split_at(end);
            rest = behind;
            Some(note)
        })
    }

    /// Verifies that `key` has signed the note. Signatures by other keys are
    /// ignored.
    ///
    /// # Errors
    ///
    /// [`NoteError::Unsigned`], [`NoteError::Signature`].
    pub fn verify(&self, key: &NoteKey) -> Result<(), NoteError> {
        let id = key.id();
        let own = |line: &&NoteSignature| line.name == key.name && line.value.starts_with(&id);
        let Some(line) = self.signatures.iter().find(own) else {
            return Err(NoteError::Unsigned(Box::new(key.clone())));
        };
        let (_, signature) = line.value.split_at(ID_BYTES);
        UnparsedPublicKey::new(&ED25519, key.public)
            .verify(self.text.as_bytes(), signature)
            .map_err(|_| NoteError::Signature(Box::new(key.clone())))
    }
}

impl fmt::Display for SignedNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.text)?;
        self.signatures.iter().try_for_each(|line| {
            let value = STANDARD.encode(&line.value);
            writeln!(f, "{SIGNATURE_MARK}{} {value}", line.name)
        })
    }
}

impl FromStr for SignedNote {
    type Err = NoteError;

    fn from_str(note: &str) -> Result<Self, NoteError> {
        let is_control = |letter: char| letter < ' ' && letter != '\n';
        if NOTE_BYTES_MAX < note.len() || note.contains(is_control) {
            return Err(NoteError::Form);
        }
        // The last empty line separates the signatures, because the text may have
        // empty lines too.
        let (text, below) = note.rsplit_once("\n\n").ok_or(NoteError::Form)?;
        let lines = below.strip_suffix('\n').ok_or(NoteError::Form)?;
        let signatures: Option<_> = lines.split('\n').map(NoteSignature::parse).collect();
        Ok(Self {
            text: format!("{text}\n"),
            signatures: signatures.ok_or(NoteError::Form)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Example from golang.org/x/mod/sumdb/note, which the C2SP format is based on.
    const PUBLIC: &str = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
    const PRIVATE: &str = "AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz";
    const TEXT: &str = "If you think cryptography is the answer to your problem,\n\
                        then you don't know what your problem is.\n";
    const SIGNATURE: &str = "\u{2014} PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZIn\
                             NIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n";

    fn peter() -> NoteSigner {
        let seed = STANDARD.decode(PRIVATE).unwrap();
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed[1..]).unwrap();
        NoteSigner::new("PeterNeumann", pair).unwrap()
    }

    // C2SP, signed-note; RFC 8032: a signature has no random part.
    #[test]
    fn a_note_is_signed_as_the_reference_signs_it() {
        let signer = peter();
        assert_eq!(signer.key().to_string(), PUBLIC);
        let note = signer.sign(TEXT);
        assert_eq!(note.to_string(), format!("{TEXT}\n{SIGNATURE}"));
        let parsed: SignedNote = note.to_string().parse().unwrap();
        assert_eq!(parsed, note);
        assert_eq!(parsed.text(), TEXT);
        assert_eq!(parsed.verify(&PUBLIC.parse().unwrap()), Ok(()));
    }

    // C2SP, signed-note, "Verification": signatures by unknown keys are ignored.
    #[test]
    fn a_note_is_valid_only_for_the_keys_that_signed_it() {
        let own: NoteKey = PUBLIC.parse().unwrap();
        let other_bytes = NoteSigner::generate().unwrap();
        let other = NoteSigner::from_pkcs8("other.test", &other_bytes).unwrap();
        let both = format!("{}{SIGNATURE}", other.sign(TEXT));
        let note: SignedNote = both.parse().unwrap();
        assert_eq!(note.verify(&own), Ok(()));
        assert_eq!(note.verify(other.key()), Ok(()));
        let only: SignedNote = other.sign(TEXT).to_string().parse().unwrap();
        let unsigned = NoteError::Unsigned(Box::new(own.clone()));
        assert_eq!(only.verify(&own), Err(unsigned));
        // A different key with the same name has a different id.
        let same_name = NoteSigner::from_pkcs8("PeterNeumann", &other_bytes).unwrap();
        assert_ne!(same_name.key().id(), own.id());
        let changed = both.replace("answer", "cause");
        let changed: SignedNote = changed.parse().unwrap();
        let wrong = NoteError::Signature(Box::new(own.clone()));
        assert_eq!(changed.verify(&own), Err(wrong));
    }

    #[test]
    fn a_malformed_note_is_refused() {
        let whole = format!("{TEXT}\n{SIGNATURE}");
        for wrong in [
            TEXT.to_owned(),
            format!("{TEXT}\n"),
            whole.trim_end().to_owned(),
            whole.replace("\u{2014} ", "- "),
            whole.replace("PeterNeumann ", "Peter+Neumann "),
            whole.replace(" x08go", " !x08go"),
            whole.replace("answer", "ans\u{1}wer"),
            format!("{TEXT}\n\u{2014} PeterNeumann AAAA\n"),
            format!("{whole}{}", "x".repeat(NOTE_BYTES_MAX)),
        ] {
            let parsed = wrong.parse::<SignedNote>();
            assert_eq!(parsed, Err(NoteError::Form), "{wrong:?}");
        }
    }

    #[test]
    fn concatenated_notes_are_split() {
        let (one, two) = (
            format!("{TEXT}\n{SIGNATURE}"),
            format!("x\n\n{SIGNATURE}{SIGNATURE}"),
        );
        let all = format!("{one}{two}{one}\n");
        let split: Vec<_> = SignedNote::split(&all).collect();
        assert_eq!(split, [&*one, &*two, &*one]);
        assert!(split.iter().all(|note| note.parse::<SignedNote>().is_ok()));
        let broken = format!("half of one\n{one}");
        assert_eq!(SignedNote::split(&broken).count(), 1);
        assert_eq!(SignedNote::split(" \n").count(), 0);
    }

    #[test]
    fn a_malformed_key_is_refused() {
        for wrong in [
            "",
            "PeterNeumann",
            "PeterNeumann+c74f20a3",
            // The id of another key.
            "PeterNeumann+c74f20a4+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW",
            "Peter Neumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW",
            // Another type of key.
            "PeterNeumann+c74f20a3+AhpcAgcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW",
        ] {
            let parsed = wrong.parse::<NoteKey>();
            assert_eq!(parsed, Err(NoteError::Key(wrong.to_owned())));
        }
        assert!(NoteSigner::from_pkcs8("name", b"no key").is_err());
    }
}
