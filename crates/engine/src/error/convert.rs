//! Errors of the crates below, as the engine's.
//!
//! Input: errors of `diorite-format`, `diorite-block` and `diorite-mkfs`. Output: an [`Error`]. Invariant: nothing that a message says is
//! lost. Limits: none.

use super::Error;
use crate::op::Op;
use diorite_block::{BioOp, DeviceError};
use diorite_format::FormatError;
use diorite_format::error::Unfit;
use std::sync::Arc;

impl From<FormatError> for Error {
    fn from(e: FormatError) -> Error {
        Error::Format(Arc::new(e))
    }
}

impl From<diorite_format::Corrupt> for Error {
    fn from(e: diorite_format::Corrupt) -> Error {
        Error::Format(Arc::new(e.into()))
    }
}

impl From<Unfit> for Error {
    fn from(e: Unfit) -> Error {
        Error::Invalid(e.to_string())
    }
}

impl From<DeviceError> for Error {
    fn from(e: DeviceError) -> Error {
        Error::Open(Arc::new(e))
    }
}

/// An error of making a file system that operations on a volume have, too, becomes the same variant; [`Error::Mkfs`] holds any other.
impl From<diorite_mkfs::Error> for Error {
    fn from(e: diorite_mkfs::Error) -> Error {
        use diorite_mkfs::Error as Mkfs;
        match e {
            Mkfs::Format(e) => Error::Format(e),
            Mkfs::Open(e) => Error::Open(e),
            Mkfs::Device {
                device,
                op,
                pos,
                len,
                error,
            } => Error::of_failed(|| device.into(), op_of_bio(op), pos, len, error),
            Mkfs::Invalid(what) => Error::Invalid(what),
            Mkfs::NotSupported(what) => Error::NotSupported(what),
            Mkfs::ReadOnly(what) => Error::ReadOnly(what),
            Mkfs::Panicked => Error::Panicked,
            other => Error::Mkfs(Box::new(other)),
        }
    }
}

fn op_of_bio(op: BioOp) -> Op {
    match op {
        BioOp::Read => Op::Read,
        BioOp::Flush => Op::Sync,
        BioOp::Write | BioOp::Discard | BioOp::WriteZeroes | BioOp::WriteZeroesUnmap => Op::Write,
    }
}
