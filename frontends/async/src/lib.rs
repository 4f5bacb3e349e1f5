//! Futures over a queue of diorite: direct I/O on files of ext4 images from asynchronous programs.
//!
//! | module | takes -> gives |
//! |---|---|
//! | `volume` | an opened volume -> asynchronous names and files |
//! | `file` | a file -> futures of its requests |
//! | `io` | a request -> the future of its completion |
//! | `table` | requests of tasks -> batches for the queue; completions -> the tasks that wait for them |
//! | `driver` | a queue -> its submissions and completions, by a thread or by a task of a runtime |
//! | `pool` | calls that block -> futures, by a bounded number of threads |
//! | `stream` | a file -> a stream of bytes, with the traits of tokio and futures-io |
//!
//! A volume's requests go through one queue. Futures of any executor wait for them; [`AsyncVolume::new`] starts a thread that completes
//! them. With the feature `tokio` or `smol` a task of that runtime does it: then all requests that the tasks made since its last turn go
//! to the device with one system call.
//!
//! # Cancellation
//!
//! A future that is dropped cancels its request if the request has not been submitted yet. Otherwise the device goes on with it, and
//! the queue keeps the buffer until the device has ended with it; then the buffer goes to [`AsyncVolume::on_cancelled`], or is dropped. A
//! write that was cancelled may have been made or not.
//!
//! # Example
//!
//! ```
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/engine/tests/common/example.rs"));
//! use diorite::{Buf, OpenOptions, Volume};
//! use diorite_async::AsyncVolume;
//!
//! # fn main() -> Result<(), diorite::Error> {
//! # let device = example_volume();
//! // Or by a locator: Volume::open("disk.img", &options)
//! let volume = AsyncVolume::new(Volume::open_device(device, &OpenOptions::writable())?, 64)?;
//! futures_lite::future::block_on(async {
//!     let file = volume.create("/data", 0o644).await?;
//!     let (buf, written) = file.write_at(0, Buf::zeroed(4096)).await;
//!     assert_eq!(written?, 4096);
//!     file.sync().await?;
//!     let (_buf, read) = file.read_at(0, buf).await;
//!     assert_eq!(read?, 4096);
//!     drop(file);
//!     volume.close().await
//! })
//! # }
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod driver;
mod file;
mod io;
mod pool;
#[cfg(any(feature = "tokio", feature = "smol"))]
mod stream;
mod table;
mod volume;

#[cfg(feature = "smol")]
mod smol;
#[cfg(feature = "tokio")]
mod tokio;

pub use diorite;
pub use driver::Driver;
pub use file::AsyncFile;
pub use io::{Append, Io, Sync, Whole};
#[cfg(any(feature = "tokio", feature = "smol"))]
pub use stream::AsyncStream;
pub use volume::AsyncVolume;

/// Compiles the examples in the README as doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Compiles the examples in the page of the book as doctests.
#[cfg(all(doctest, feature = "tokio"))]
#[doc = include_str!("../../../docs/book/src/howto/async.md")]
struct Book;

use diorite_block::sync::LockClass;

/// The requests of tasks, and who waits for them. Nothing is called with this lock but allocation.
static ASYNC_TABLE: LockClass = LockClass::new("async-table", 52);
/// Calls that wait for a thread of the pool.
static ASYNC_POOL: LockClass = LockClass::new("async-pool", 54);
/// The classes of this crate, for printing statistics.
pub static CLASSES: [&LockClass; 2] = [&ASYNC_TABLE, &ASYNC_POOL];
