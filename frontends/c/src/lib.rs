//! libdiorite: the engine's faces for C. Its documentation for users is `diorite.h`, which cbindgen makes of these files.
//!
//! | module | takes -> gives |
//! |---|---|
//! | `error`, `errno` | what a call returns, or its panic -> an error number and a message |
//! | `sink`, `log` | what is worth a line -> the host program |
//! | `handle` | objects -> numbers that C has in place of pointers, and back |
//! | `args` | pointers, sizes, flags -> checked values |
//! | `options`, `volume` | locators, devices -> open volumes |
//! | `device` | functions of the host program -> a device |
//! | `file` | names, inodes -> open files, and their blocking calls |
//! | `queue` | requests -> completions |
//! | `image` | sources of files -> images; images -> what a check has found |
//! | `editor` | an image, and changes -> the changed image |
//! | `statistics` | volumes, queues -> numbers by name |
//! | `names`, `attributes`, `directory` | names and inodes -> changed directories, attributes, entries |
//!
//! Input: calls of C. Output: calls of the engine. Invariants: no panic leaves an exported function; no handle is believed. Limits: no rule
//! of files is here. The symbols are the interface: the Rust names are of no use to other crates, which have the engine.
#![cfg_attr(test, allow(clippy::unwrap_used))]
#![allow(
    missing_docs,
    clippy::missing_safety_doc,
    reason = "the documentation is the header's: fields that belong together share a comment, and what a caller promises is said there"
)]

mod errno;
mod handle;
mod sink;

// In the order of the header.
pub mod error;
pub mod log;

pub mod options;
pub mod volume;

pub mod args;
pub mod file;

pub mod queue;

pub mod names;

pub mod attributes;
pub mod directory;

pub mod editor;

pub mod image;

pub mod device;

pub mod statistics;

/// The version of the binary interface: a program that was built for another is not to use this library. Fields that are added to
/// structures, and functions that are added, do not change it.
pub const DIORITE_ABI_VERSION: u32 = 0;

/// DIORITE_ABI_VERSION of the library that is loaded.
#[unsafe(no_mangle)]
pub extern "C" fn diorite_abi_version() -> u32 {
    DIORITE_ABI_VERSION
}

/// The library's version as text, such as "0.1.0". It belongs to the library and is valid for ever.
#[unsafe(no_mangle)]
pub extern "C" fn diorite_version() -> *const std::ffi::c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
