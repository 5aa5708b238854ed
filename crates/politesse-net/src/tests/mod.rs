//! What goes over the wire: this layer against origins on loopback.

mod framing;
mod reuse;
mod secured;
