//! A FUSE server for a [`diorite::Volume`].
//!
//! Modules in the order in which a request meets them:
//!
//! | module | takes -> gives |
//! |---|---|
//! | [`options`] | the words of `-o` -> how to mount, and how to open the volume |
//! | `transport` | a mount point -> `/dev/fuse`, mounted; requests in, replies out |
//! | `wire` | bytes -> checked requests; attributes, entries and errors -> bytes |
//! | [`session`] | threads: each receives a request, executes it, replies |
//! | `fs` | a request -> calls of the volume -> a reply |
//!
//! The kernel caches names, attributes and pages; this crate caches nothing besides. Inode numbers are node numbers, except that the
//! kernel calls the root 1.
//!
//! No feature is for programs: `_shuttle` (random schedules) is internal, for the tests of this project.

mod fs;
pub mod options;
pub mod session;
/// Hidden: public for the tests of this crate, which are a kernel. What a program needs of it is re-exported below.
#[doc(hidden)]
pub mod transport;
/// Hidden, for the same reason.
#[doc(hidden)]
pub mod wire;

/// Compiles the examples in the README as doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use options::{MountOptions, Times};
pub use session::{Closer, Mounted, StartError, Stats};
pub use transport::{
    Entry, Instead, LATENCY, MountError, become_nobody, close_others, find_mounted, inherited,
    mount, mount_number, mounted_at, mounts_of, receive, remount, send, stock_rings, unmount,
};
