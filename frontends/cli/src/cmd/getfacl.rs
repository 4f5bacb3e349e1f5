//! `diorite getfacl`: access control lists of files in an image, as getfacl -n prints them.
//!
//! Input: an image and paths. Output: for each file its path, owner and group, its list or what its permissions say, and a directory's default list.
//! Invariant: symbolic links met on the way are left out, as they have none. Limits: users and groups are numbers.

use crate::args::{GetfaclArgs, Global};
use crate::attributes::AclList;
use crate::cmd::getfattr::heading;
use crate::image::{self, bytes};
use crate::output::Out;
use crate::paths;
use crate::report::Report;
use diorite::{Error, Volume};
use diorite_format::{FileType, Inode};
use std::process::ExitCode;

pub(super) const ACCESS: &[u8] = b"system.posix_acl_access";
pub(super) const DEFAULT: &[u8] = b"system.posix_acl_default";

/// Runs the command.
pub(crate) fn run(global: &Global, args: &GetfaclArgs) -> ExitCode {
    let mut report = Report::new("getfacl", &args.img);
    let Some(volume) = image::open(&args.img, global, &mut report) else {
        return report.exit_code();
    };
    let mut out = Out::new();
    for path in args.paths.iter().map(|p| bytes(p)) {
        let mut one = |path: &[u8], found: Result<&Inode, Error>| {
            let shown = found.and_then(|inode| shown(&volume, path, inode, args));
            match shown {
                Ok(text) => out.bytes(&text),
                Err(error) => {
                    out.flush();
                    report.file(path, error);
                }
            }
        };
        if args.recursive {
            paths::walk(&volume, path, one);
        } else {
            let found = volume.resolve(path, true);
            let found = found.and_then(|ino| paths::inode(&volume, ino));
            one(path, found.as_deref().map_err(Clone::clone));
        }
    }
    out.finish();
    report.exit_code()
}

/// The lists of a file: its own, and the default one of a directory.
pub(super) fn lists(volume: &Volume, inode: &Inode) -> Result<(AclList, AclList), Error> {
    let one = |name: &[u8]| match volume.xattr(inode.ino, name) {
        Ok(value) => Ok(Some(AclList::of_value(&value))),
        Err(error) if matches!(error.root(), Error::NoAttribute { .. }) => Ok(None),
        Err(error) => Err(error),
    };
    let own = one(ACCESS)?.unwrap_or_else(|| AclList::of_mode(inode.mode));
    Ok((own, one(DEFAULT)?.unwrap_or_default()))
}

fn shown(
    volume: &Volume,
    path: &[u8],
    inode: &Inode,
    args: &GetfaclArgs,
) -> Result<Vec<u8>, Error> {
    if inode.file_type == Some(FileType::Symlink) {
        return Ok(Vec::new());
    }
    let (own, default) = lists(volume, inode)?;
    if args.skip_base && !own.is_extended() && default.is_empty() {
        return Ok(Vec::new());
    }
    let mut out = Vec::new();
    if !args.omit_header {
        out.extend(heading(path, args.absolute_names));
        out.extend(format!("# owner: {}\n# group: {}\n", inode.uid, inode.gid).bytes());
        let letters = [(0o4000, 's'), (0o2000, 's'), (0o1000, 't')];
        if inode.mode & 0o7000 != 0 {
            let letter = |(bit, letter)| if inode.mode & bit != 0 { letter } else { '-' };
            let letters: String = letters.into_iter().map(letter).collect();
            out.extend(format!("# flags: {letters}\n").bytes());
        }
    }
    if args.access || !args.default {
        out.extend(own.lines("").bytes());
    }
    let before = if args.default && !args.access {
        ""
    } else {
        "default:"
    };
    if args.default || !args.access {
        out.extend(default.lines(before).bytes());
    }
    out.push(b'\n');
    Ok(out)
}
