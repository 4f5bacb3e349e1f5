//! The actions of `find` for a file that matches: it is printed in one of several forms, or removed.
//!
//! Input: an action, a file. Output: standard output; removed names. Invariants: the root stays; a directory that is not empty
//! stays. Limits: none of its own.

use super::test::Action;
use crate::args::FindArgs;
use crate::images::image;
use crate::output::Out;
use crate::output::report::Report;
use crate::walking::tree::Visit;
use crate::words::directives::OfFind;
use crate::words::inode_fields::{JsonFile, mode_string};
use crate::words::names::{last_name, quoted};
use crate::words::template::{Field, Template};
use crate::words::times::Clock;
use diorite::{Error, File, Volume};
use diorite_format::{FileType, Ino};

/// The state that all actions of one run share.
pub(super) struct Actor<'a> {
    pub(super) volume: &'a Volume,
    pub(super) args: &'a FindArgs,
    pub(super) out: Out,
    pub(super) report: Report,
    pub(super) clock: Clock,
}

impl Actor<'_> {
    /// Runs an action; returns whether it succeeded. `start` is the path where the walk began.
    pub(super) fn act(
        &mut self,
        action: &Action,
        visit: &Visit,
        file: &File,
        start: &[u8],
    ) -> bool {
        match action {
            Action::Print | Action::Print0 if self.args.json.on => self.json(visit, file),
            Action::Print => {
                let mut line = quoted(&visit.path, self.out.is_terminal()).into_owned();
                line.push(b'\n');
                self.out.bytes(&line);
            }
            Action::Print0 => self.out.bytes(&[&visit.path[..], b"\0"].concat()),
            Action::Printf(template) => self.printf(template, visit, file, start),
            Action::Ls if self.args.json.on => self.json(visit, file),
            Action::Ls => self.line(visit, file),
            Action::Delete => return self.delete(visit, file),
        }
        true
    }

    /// Prints a line as find(1) does, with owners as numbers.
    fn line(&mut self, visit: &Visit, file: &File) {
        let inode = &*file.metadata();
        let size = inode.rdev().map_or_else(
            || inode.size.to_string(),
            |rdev| format!("{:>3}, {:>3}", rdev.major, rdev.minor),
        );
        let mut line = format!(
            "{:>9} {:>6} {} {:>3} {:<8} {:<8} {size:>8} {} ",
            file.ino(),
            inode.blocks.div_ceil(2),
            mode_string(inode.file_type, inode.mode),
            inode.links,
            inode.uid,
            inode.gid,
            self.clock.short(inode.mtime),
        )
        .into_bytes();
        line.extend(quoted(&visit.path, self.out.is_terminal()).iter());
        if let Some(target) = self.target(visit, file) {
            line.extend(b" -> ");
            line.extend(quoted(&target, self.out.is_terminal()).iter());
        }
        line.push(b'\n');
        self.out.bytes(&line);
    }

    fn json(&mut self, visit: &Visit, file: &File) {
        let target = self.target(visit, file);
        self.out.json(&JsonFile {
            dir: None,
            name: &visit.path,
            inode: &file.metadata(),
            target: target.as_deref(),
            more: None,
        });
    }

    fn target(&mut self, visit: &Visit, file: &File) -> Option<Vec<u8>> {
        let target = image::target(self.volume, &file.metadata()).transpose();
        target.unwrap_or_else(|error| {
            self.report.file(&visit.path, error);
            None
        })
    }

    fn printf(&mut self, template: &Template<OfFind>, visit: &Visit, file: &File, start: &[u8]) {
        let target = self.target(visit, file).unwrap_or_default();
        let text = template.fill(|field| self.value(field, visit, file, (start, &target)));
        self.out.bytes(&text);
    }

    fn value(
        &self,
        field: &Field<OfFind>,
        visit: &Visit,
        file: &File,
        (start, target): (&[u8], &[u8]),
    ) -> Vec<u8> {
        let inode = &*file.metadata();
        let path = &visit.path[..];
        let time = |time| match field.part {
            Some(part) => self.clock.part(time, part),
            None => self.clock.ctime_of(time),
        };
        match field.prints {
            OfFind::Inode(common) => common.of(inode).into_bytes(),
            OfFind::Path => path.to_vec(),
            OfFind::Name => name_of(path).to_vec(),
            OfFind::Directory => directory_of(path).to_vec(),
            OfFind::Start => start.to_vec(),
            OfFind::BelowStart => {
                let below = path.get(start.len()..).unwrap_or_default();
                below.strip_prefix(b"/").unwrap_or(below).to_vec()
            }
            OfFind::Target => target.to_vec(),
            OfFind::Type => letter_of(inode.file_type).to_string().into_bytes(),
            OfFind::Depth => visit.depth.to_string().into_bytes(),
            OfFind::Kibibytes => inode.blocks.div_ceil(2).to_string().into_bytes(),
            OfFind::Access => time(inode.atime).into_bytes(),
            OfFind::Modification => time(inode.mtime).into_bytes(),
            OfFind::Change => time(inode.ctime).into_bytes(),
        }
    }

    fn delete(&mut self, visit: &Visit, file: &File) -> bool {
        if file.ino() == Ino::ROOT {
            return true;
        }
        let done: Result<(), Error> = match visit.is_dir() {
            true => self.volume.rmdir(visit.at()),
            false => self.volume.unlink(visit.at()),
        };
        done.map_err(|error| self.report.file(&visit.path, error))
            .is_ok()
    }
}

fn letter_of(kind: Option<FileType>) -> char {
    match kind {
        Some(FileType::Regular) => 'f',
        Some(FileType::Directory) => 'd',
        Some(FileType::Symlink) => 'l',
        Some(FileType::Fifo) => 'p',
        Some(FileType::CharDevice) => 'c',
        Some(FileType::BlockDevice) => 'b',
        Some(FileType::Socket) => 's',
        None => 'U',
    }
}

/// The last name of a path; `/` for the root.
fn name_of(path: &[u8]) -> &[u8] {
    match last_name(path) {
        b"" => path,
        name => name,
    }
}

/// The part of a path before its last name.
fn directory_of(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|c| *c == b'/') {
        Some(cut) => &path[..cut],
        None => b".",
    }
}
