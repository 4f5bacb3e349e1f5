//! An NBD server over any [`diorite_block::Device`].
//!
//! Modules in the order in which a client meets them:
//!
//! | module | takes -> gives |
//! |---|---|
//! | [`server`] | addresses -> connections, each with a thread; limits, the end of all, statistics |
//! | `transport`, [`tls`] | a socket -> bytes, plain or encrypted |
//! | [`negotiate`] | the handshake -> an export and the form of requests and replies |
//! | [`export`] | a device -> what clients are told about it |
//! | `connection` | requests -> bios -> replies |
//! | `aside` | what may block (flushes, how a range is stored) -> answers, on threads of the export |
//! | [`wire`] | bytes -> checked values, and back |

mod aside;
mod connection;
pub mod export;
pub mod negotiate;
pub mod server;
pub mod tls;
mod transport;
pub mod wire;

/// Compiles the examples in the README as doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use export::{Export, ExportStats};
pub use server::{Address, Listen, Listeners, Options, Server, ServerError, ServerStats};
