//! `diorite getfacl`: prints the access control lists of files in an image, as getfacl -n does.
//!
//! Input: an image and paths. Output: for each file, as text or JSON, its path, owner and group, its list (made from its
//! permissions if it has none), and a directory's default list. Invariant: with -R symbolic links are left out, as they have no
//! list. Limits: users and groups are numbers.

use crate::args::{GetfaclArgs, Global};
use crate::cmd::getfattr::heading;
use crate::images::image::{self, bytes};
use crate::output::Out;
use crate::output::report::Report;
use crate::walking::paths;
use crate::words::attributes::AclList;
use crate::words::names::json_name;
use diorite::{Error, Volume};
use diorite_format::{FileType, Inode};
use serde::ser::{Serialize, SerializeMap, Serializer};
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
            let asked = found.and_then(|inode| Ok((inode, asked(&volume, inode, args)?)));
            match asked {
                Ok((_, None)) => {}
                Ok((inode, Some(lists))) if args.json.on => {
                    out.json(&JsonLists { path, inode, lists })
                }
                Ok((inode, Some(lists))) => out.bytes(&text(path, inode, &lists, args)),
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

/// The lists of a file that the options select; none for a list that is left out.
struct Lists {
    access: Option<AclList>,
    default: Option<AclList>,
}

fn asked(volume: &Volume, inode: &Inode, args: &GetfaclArgs) -> Result<Option<Lists>, Error> {
    if inode.file_type == Some(FileType::Symlink) {
        return Ok(None);
    }
    let (own, default) = lists(volume, inode)?;
    if args.skip_base && !own.is_extended() && default.is_empty() {
        return Ok(None);
    }
    Ok(Some(Lists {
        access: (args.access || !args.default).then_some(own),
        default: (args.default || !args.access).then_some(default),
    }))
}

/// The lists as getfacl prints them.
fn text(path: &[u8], inode: &Inode, lists: &Lists, args: &GetfaclArgs) -> Vec<u8> {
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
    if let Some(own) = &lists.access {
        out.extend(own.lines("").bytes());
    }
    let before = if lists.access.is_some() {
        "default:"
    } else {
        ""
    };
    if let Some(default) = &lists.default {
        out.extend(default.lines(before).bytes());
    }
    out.push(b'\n');
    out
}

/// The fields of `--json`: `path`, `uid`, `gid`, `mode` (the low 12 bits), `access` and `default` (entries as `setfacl -m`
/// takes them).
struct JsonLists<'a> {
    path: &'a [u8],
    inode: &'a Inode,
    lists: Lists,
}

impl Serialize for JsonLists<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        json_name(&mut map, "path", self.path)?;
        map.serialize_entry("uid", &self.inode.uid)?;
        map.serialize_entry("gid", &self.inode.gid)?;
        map.serialize_entry("mode", &(self.inode.mode & 0o7777))?;
        for (name, list) in [
            ("access", &self.lists.access),
            ("default", &self.lists.default),
        ] {
            if let Some(list) = list {
                map.serialize_entry(name, &list.entries().collect::<Vec<_>>())?;
            }
        }
        map.end()
    }
}
