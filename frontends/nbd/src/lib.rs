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
//!
//! ```
//! use diorite_block::MemDevice;
//! use diorite_nbd::{Export, Listen, Options, Server};
//! use std::sync::Arc;
//!
//! # fn main() -> Result<(), diorite_nbd::ServerError> {
//! # let dir = tempfile::tempdir().expect("a scratch directory");
//! # let path = dir.path().join("nbd.sock");
//! let export = Export::new("disk", Arc::new(MemDevice::new(1 << 20)));
//! let server = Server::start(vec![export], &[Listen::Unix(path)], Options::default())?;
//! // Clients come and go. In the end:
//! server.drain();
//! # Ok(())
//! # }
//! ```

mod aside;
mod connection;
pub mod export;
pub mod negotiate;
#[cfg(test)]
#[path = "../tests/common/random.rs"]
mod random;
pub mod server;
pub mod tls;
mod transport;
pub mod wire;

pub use export::{Export, ExportStats};
pub use server::{Address, Listen, Listeners, Options, Server, ServerError, ServerStats};
