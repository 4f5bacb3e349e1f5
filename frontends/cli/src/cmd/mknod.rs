//! `diorite mknod`: makes pipes and devices in an image, with coreutils' options and messages.
//!
//! Input: an image, a path, a type, numbers. Output: nothing. Invariant: a device has both numbers, a pipe none. Limits: major
//! numbers have 12 bits, minor numbers 20.

use crate::args::{Global, MknodArgs, NodeType};
use crate::images::image::{self, bytes};
use crate::output::report::{Reason, Report};
use diorite::Volume;
use diorite_format::FileType;
use diorite_format::inode::Rdev;
use std::process::ExitCode;

/// The permissions of a new node.
const NEW: u16 = 0o644;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &MknodArgs) -> ExitCode {
    image::change("mknod", &args.img, global, |volume, report| {
        apply(volume, report, args);
    })
}

/// Runs the command on an open image.
pub(crate) fn apply(volume: &Volume, report: &mut Report, args: &MknodArgs) {
    if let Err(reason) = make(volume, args) {
        report.file(bytes(&args.path), reason);
    }
}

fn make(volume: &Volume, args: &MknodArgs) -> Result<(), Reason> {
    let (kind, device) = match (args.kind, args.major, args.minor) {
        (NodeType::Pipe, None, None) => (FileType::Fifo, Rdev { major: 0, minor: 0 }),
        (NodeType::Pipe, ..) => return Err(Reason::new("a pipe has no device numbers")),
        (kind, Some(major), Some(minor)) => (file_type(kind), Rdev { major, minor }),
        _ => return Err(Reason::new("a device has a major and a minor number")),
    };
    let permissions = args.mode.as_ref().map_or(NEW, |mode| mode.of(NEW, false));
    volume.mknod(bytes(&args.path), kind, permissions, device)?;
    Ok(())
}

fn file_type(kind: NodeType) -> FileType {
    match kind {
        NodeType::Block => FileType::BlockDevice,
        NodeType::Character | NodeType::Pipe => FileType::CharDevice,
    }
}
