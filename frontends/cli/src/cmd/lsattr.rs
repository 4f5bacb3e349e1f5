//! `diorite lsattr`: prints the flags of files in an image, as lsattr does.
//!
//! Input: an image and paths. Output: a line per file: letters, path. Invariant: symbolic links are not followed; their flags
//! are printed, which the kernel's interface does not give. Limits: the names of a directory are printed in its own order.

use crate::args::{Global, LsattrArgs};
use crate::images::image::{self, bytes};
use crate::output::Out;
use crate::output::report::Report;
use crate::walking::paths;
use crate::words::names;
use crate::words::names::json_name;
use diorite::Volume;
use diorite_format::{Ino, Inode};
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::collections::HashSet;
use std::process::ExitCode;
use std::sync::Arc;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &LsattrArgs) -> ExitCode {
    let mut report = Report::new("lsattr", &args.img);
    let Some(volume) = image::open(&args.img, global, &mut report) else {
        return report.exit_code();
    };
    let mut listing = Listing {
        volume: &volume,
        args,
        out: Out::new(),
        report: &mut report,
    };
    let root = [std::ffi::OsString::from("/")];
    let paths = if args.paths.is_empty() {
        &root
    } else {
        &args.paths[..]
    };
    for path in paths.iter().map(|p| bytes(p)) {
        listing.path(path);
    }
    listing.out.finish();
    report.exit_code()
}

struct Listing<'a> {
    volume: &'a Volume,
    args: &'a LsattrArgs,
    out: Out,
    report: &'a mut Report,
}

impl Listing<'_> {
    fn path(&mut self, path: &[u8]) {
        let Some(inode) = self.look(path) else { return };
        if inode.is_dir() && !self.args.directory {
            self.directory(path, &inode);
        } else {
            self.line(path, &inode);
        }
    }

    fn look(&mut self, path: &[u8]) -> Option<Arc<Inode>> {
        let found = self.volume.resolve(path, false);
        let found = found.and_then(|ino| paths::inode(self.volume, ino));
        found.map_err(|error| self.failed(path, error)).ok()
    }

    fn failed(&mut self, path: &[u8], error: diorite::Error) {
        self.out.flush();
        self.report.file(path, error);
    }

    /// Lists the contents of a directory; with -R the contents of each subdirectory follow its own line, below a heading. In a
    /// corrupt image a directory that is reached twice is listed once.
    fn directory(&mut self, path: &[u8], inode: &Inode) {
        let mut seen = HashSet::from([inode.ino]);
        let mut open = vec![(path.to_vec(), self.names(path, inode.ino))];
        while let Some((path, names)) = open.last_mut() {
            let Some(name) = names.next() else {
                open.pop();
                if !open.is_empty() && !self.args.json.on {
                    self.out.bytes(b"\n");
                }
                continue;
            };
            let path = names::join(path, &name);
            let Some(inode) = self.look(&path) else {
                continue;
            };
            self.line(&path, &inode);
            let is_below = inode.is_dir() && !matches!(&name[..], b"." | b"..");
            if !self.args.recursive || !is_below || !seen.insert(inode.ino) {
                continue;
            }
            if !self.args.json.on {
                self.out.bytes(&[b"\n", path.as_slice(), b":\n"].concat());
            }
            let names = self.names(&path, inode.ino);
            open.push((path, names));
        }
    }

    /// The names of a directory that the options select.
    fn names(&mut self, path: &[u8], ino: Ino) -> std::vec::IntoIter<Vec<u8>> {
        let mut names = Vec::new();
        match self.volume.read_dir(ino) {
            Err(error) => self.failed(path, error),
            Ok(entries) => {
                for entry in entries {
                    match entry {
                        Ok(entry) => names.push(entry.name),
                        Err(error) => self.failed(path, error),
                    }
                }
            }
        }
        names.retain(|name| self.args.all || !name.starts_with(b"."));
        names.into_iter()
    }

    fn line(&mut self, path: &[u8], inode: &Inode) {
        if self.args.json.on {
            return self.out.json(&JsonFlags { path, inode });
        }
        let mut front = String::new();
        if self.args.project {
            front += &format!("{:5} ", inode.projid);
        }
        if self.args.generation {
            front += &format!("{:<10} ", inode.generation);
        }
        front += &inode.flags.letters();
        self.out
            .bytes(&[front.as_bytes(), b" ", path, b"\n"].concat());
    }
}

/// The fields of `--json`: `path`, `flags` (lsattr's letters), `bits`, `project`, `generation`.
struct JsonFlags<'a> {
    path: &'a [u8],
    inode: &'a Inode,
}

impl Serialize for JsonFlags<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        json_name(&mut map, "path", self.path)?;
        let letters: String = self.inode.flags.letters();
        map.serialize_entry("flags", &letters.replace('-', ""))?;
        map.serialize_entry("bits", &self.inode.flags.bits())?;
        map.serialize_entry("project", &self.inode.projid)?;
        map.serialize_entry("generation", &self.inode.generation)?;
        map.end()
    }
}
