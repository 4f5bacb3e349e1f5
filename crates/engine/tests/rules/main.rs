//! Rules of direct I/O by number: `/// Rule U1.` says which one a test holds.
//!
//! | file | rules |
//! |---|---|
//! | `general` | G1 to G12: alignment, ends, holes, refusals |
//! | `completion` | C1 to C4, C7: inline or deferred, FUA or flush |
//! | `unaligned` | B1 to B3, B8: overwrites of parts of blocks |
//! | `looped` | L2, L4, L5: a file as a device |
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;

mod completion;
mod general;
mod looped;
mod unaligned;
