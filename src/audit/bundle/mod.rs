//! Bundles: decisions of a record in one file, with the proof that they are on it,
//! to be verified by somebody who has neither the record nor its machine.
//!
//! A bundle is a zip archive of text: the rows with the values that they share, each
//! robots.txt, one proof for all of them up to the newest signed head, that head,
//! the public key, and what people read (docs/handing-over.md). Whoever verifies it
//! gets the key on another way.

mod checking;
mod error;
mod form;
mod summary;
mod writing;
pub(super) mod zip;

pub use self::checking::{BundleVerification, verify_bundle};
pub use self::error::BundleError;
pub use self::summary::{
    BundleCounts, BundleName, BundleReport, BundleRule, BundleTable, ReportMaker,
};
pub use self::writing::{Bundle, write_bundle};
pub use self::zip::ZipError;
