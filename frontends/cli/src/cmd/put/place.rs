//! Determines where copies go, with DEST as `cp -a` understands it.
//!
//! Input: SOURCE and DEST of the command line. Output: a path in the image. Invariant: links in DEST itself are followed if
//! they lead to a directory, because the user gave them; links below DEST are not. Limits: a SOURCE that ends in `.` or `..`,
//! or is the root, has no name of its own: its contents go into DEST.

use crate::args::PutArgs;
use crate::output::report::Reason;
use crate::walking::paths::look;
use crate::words::names::{join, last_name};
use diorite::Volume;
use std::ffi::{OsStr, OsString};

/// The destination of one SOURCE.
pub(super) enum Place {
    /// The path of the copy.
    Inside(Vec<u8>),
    /// The directory with this path: the contents of SOURCE go into it.
    Whole(Vec<u8>),
}

/// The SOURCEs and the DEST of a command line.
pub(super) fn split(args: &PutArgs) -> Result<(&[OsString], &OsStr), &'static str> {
    match (&args.target_directory, args.paths.split_last()) {
        (Some(dir), _) => Ok((&args.paths, dir)),
        (None, Some((dest, sources))) if !sources.is_empty() => Ok((sources, dest)),
        _ => Err("put needs a SOURCE and, without -t, a DEST"),
    }
}

/// Chooses the place of the copy of a SOURCE, given by its path.
pub(super) fn choose(
    volume: &Volume,
    args: &PutArgs,
    (path, is_dir): (&[u8], bool),
    dest: &[u8],
    many: bool,
) -> Result<Place, Reason> {
    let into = args.target_directory.is_some();
    let there = look(volume, dest, true)?;
    if there.as_ref().is_some_and(|inode| inode.is_dir()) {
        let name = last_name(path);
        let has_none = matches!(name, b"" | b"." | b"..");
        return match has_none || args.no_target_directory {
            false => Ok(Place::Inside(join(dest, name))),
            true if is_dir => Ok(Place::Whole(dest.to_vec())),
            true => Err(Reason::new("Is a directory; a file cannot replace it")),
        };
    }
    if many || into {
        let what = match there {
            Some(_) => "Not a directory",
            None => "No such directory",
        };
        return Err(Reason::new(format!(
            "{what}; the copies need one to go into"
        )));
    }
    if there.is_some() && is_dir {
        return Err(Reason::new(
            "Not a directory; a directory cannot replace it",
        ));
    }
    Ok(Place::Inside(dest.to_vec()))
}
