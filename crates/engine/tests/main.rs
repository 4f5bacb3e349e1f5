//! The integration tests of the engine, in one program: it links once, and its tests run side by side.
//!
//! Input: images by the installed tools, `mem:` devices and models. Output: the verdicts. Limits: what measures or changes the process
//! it runs in (memory, descriptors, panics) has a program of its own, named in `Cargo.toml`.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

mod common;

mod acls;
mod api;
mod aside;
mod atomic;
mod attributes;
mod cached;
mod clusters;
mod examples;
mod faults;
mod flags;
mod free_blocks;
mod frontends;
mod growth;
mod held_or_not;
mod htree;
mod inline;
mod inline_dirs;
mod journal;
mod journalled;
mod keeping;
mod large_file;
mod loops;
mod mkfs;
mod model;
mod name_faults;
mod names;
mod opening;
mod orphans;
mod polled;
mod preallocated;
mod privileges;
mod range_faults;
mod range_requests;
mod ranges;
mod recovery;
mod refused;
mod replaced;
mod reserved;
mod resize;
mod rules;
mod told;
mod tree;
mod tree_edges;
mod unheld;
mod untorn;
mod who_reaps;
mod who_waits;
mod whole_files;
mod worn;
mod xattrs;
