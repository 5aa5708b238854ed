//! Tests of the bytes on the wire: this crate against origins on loopback.

mod exceptions;
mod framing;
mod reuse;
mod secured;
