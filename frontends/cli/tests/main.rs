//! The tests of the commands, in one program: it links once, and its tests run side by side.
//!
//! Input: images and trees, made by the installed tools; documents. Output: the verdicts. Limits: mounts (`mount/`) and what a sandbox
//! holds back (`sandbox/`) have programs of their own.
#![allow(clippy::unwrap_used)]

mod common;

mod attributes;
mod bench;
mod check;
mod compare;
mod copy;
mod copy_device;
mod cp;
mod destinations;
mod documents;
mod edit;
mod find;
mod free;
mod hostile;
mod images;
mod limits;
mod locks;
mod look;
mod mend;
mod put;
mod repair;
mod serve;
mod slashes;
mod syncs;
mod tree;
mod tune;
mod uncached;
mod undo;
mod undo_kills;
mod words;
