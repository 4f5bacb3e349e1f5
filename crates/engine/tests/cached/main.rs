//! Files read and written through the page cache, beside direct requests.
//!
//! | file | asks |
//! |---|---|
//! | `basics` | what a caller of `File` sees: positions, lengths, sizes, traits |
//! | `claims` | direct writes in flight over cached blocks |
//! | `model` | mixed operations against an array of bytes, by one thread and by several |
//! | `pressure` | budgets much smaller than what is read and written |
//! | `space` | full volumes: space is promised by the write |
//! | `failing` | failed write-back: reported once per open file |
//! | `memory` | a host that gives no memory for pages |
//! | `faults` | every request to the device fails in turn |
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;

mod basics;
mod claims;
mod failing;
mod faults;
mod memory;
mod model;
mod pressure;
mod space;
