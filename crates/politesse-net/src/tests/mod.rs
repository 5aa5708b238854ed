//! What goes over the wire: this layer against origins on loopback.

mod exceptions;
mod framing;
mod reuse;
mod secured;
