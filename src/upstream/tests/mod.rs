//! What goes over the wire: this layer against origins on loopback.

mod kit;

mod framing;
mod reuse;
mod robots;
mod secured;
