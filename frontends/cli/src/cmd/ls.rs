//! `diorite ls`: lists directories as coreutils does: one name per line, in byte order, or by time or size.
//!
//! Input: an image and paths. Output: names, long lines, or a JSON object per name. Invariants: a directory is never listed
//! below itself, whatever the image says; a file that cannot be read is a message, and the rest is listed. Limits: holds the
//! names of one directory at a time, and a list of the directories still to visit.

mod long;
mod name_style;

use crate::args::{Global, LsArgs};
use crate::images::image::{self, bytes};
use crate::output::Out;
use crate::output::report::Report;
use crate::words::inode_fields::JsonFile;
use crate::words::names::{join, quoted};
use crate::words::times::Clock;
use diorite::{File, Volume};
use diorite_format::Ino;
use long::Row;
use name_style::NameStyle;
use std::collections::HashSet;
use std::process::ExitCode;

/// Exit code for failures of paths on the command line; failures below them give 1.
const SERIOUS: u8 = 2;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &LsArgs) -> ExitCode {
    let mut report = Report::new("ls", &args.img);
    let Some(volume) = image::open(&args.img, global, &mut report) else {
        report.failed(SERIOUS);
        return report.exit_code();
    };
    let out = Out::new();
    let mut lister = Lister {
        volume: &volume,
        args,
        style: NameStyle::new(args, out.is_terminal()),
        out,
        report,
        clock: Clock::local(),
        seen: HashSet::new(),
        printed_any: false,
    };
    lister.run();
    lister.out.finish();
    lister.report.exit_code()
}

struct Lister<'a> {
    volume: &'a Volume,
    args: &'a LsArgs,
    style: NameStyle,
    out: Out,
    report: Report,
    clock: Clock,
    /// Directories that were listed: a cycle ends at one of them.
    seen: HashSet<Ino>,
    printed_any: bool,
}

/// A name to print, with its inode if it is needed and could be read.
struct Entry {
    name: Vec<u8>,
    ino: Ino,
    file: Option<File>,
}

impl Lister<'_> {
    fn run(&mut self) {
        let mut paths: Vec<&[u8]> = self.args.paths.iter().map(|p| bytes(p)).collect();
        if paths.is_empty() {
            paths.push(b"/");
        }
        let (mut files, mut dirs) = (Vec::new(), Vec::new());
        for path in &paths {
            match self.find(path) {
                Ok(file) => {
                    let is_listed = file.metadata().is_dir() && !self.args.directory;
                    let entry = Entry {
                        name: path.to_vec(),
                        ino: file.ino(),
                        file: Some(file),
                    };
                    if is_listed { &mut dirs } else { &mut files }.push(entry);
                }
                Err(error) => {
                    self.report.file(path, error);
                    self.report.failed(SERIOUS);
                }
            }
        }
        self.sort(&mut files);
        self.sort(&mut dirs);
        let titled = self.args.recursive || paths.len() > 1;
        self.print(None, files);
        for dir in dirs {
            self.tree(dir.name, dir.ino, titled);
        }
    }

    fn sort(&self, entries: &mut [Entry]) {
        let key = |entry: &Entry| match &entry.file {
            Some(file) if self.args.is_by_time() => {
                let time = self.args.time(&file.metadata());
                (i128::from(time.secs), time.nanos)
            }
            Some(file) if self.args.by_size => (i128::from(file.metadata().size), 0),
            _ => (i128::MIN, 0),
        };
        if self.args.unsorted {
            return;
        }
        entries.sort_by(|a, b| key(b).cmp(&key(a)).then_with(|| a.name.cmp(&b.name)));
        if self.args.reverse {
            entries.reverse();
        }
    }

    /// Links to directories are followed if only names are printed, as in coreutils.
    fn find(&self, path: &[u8]) -> Result<File, diorite::Error> {
        let link = image::find(self.volume, path, false)?;
        if self.args.is_long() || self.args.directory || link.metadata().is_dir() {
            return Ok(link);
        }
        match image::find(self.volume, path, true) {
            Ok(target) if target.metadata().is_dir() => Ok(target),
            _ => Ok(link),
        }
    }

    /// Lists a directory, and with -R everything below it: depth first, without recursion.
    fn tree(&mut self, path: Vec<u8>, ino: Ino, titled: bool) {
        let mut todo = vec![(path, ino, 0)];
        self.seen.clear();
        while let Some((path, ino, depth)) = todo.pop() {
            if !self.seen.insert(ino) {
                let why = format!(
                    "inode {ino} was listed already: the directories form a circle; run e2fsck"
                );
                self.report
                    .file(&path, crate::output::report::Reason::new(why));
                continue;
            }
            let Some(entries) = self.read(&path, ino, depth == 0) else {
                continue;
            };
            if titled && !self.args.json {
                self.title(&path);
            }
            let below = self.below(&path, &entries, depth);
            self.print(Some(&path), entries);
            todo.extend(below.into_iter().rev());
        }
    }

    fn title(&mut self, path: &[u8]) {
        if self.printed_any {
            self.out.line("");
        }
        let name = quoted(path, self.out.is_terminal()).into_owned();
        self.out.bytes(&name);
        self.out.line(":");
    }

    /// The subdirectories to list next.
    fn below(&self, path: &[u8], entries: &[Entry], depth: u32) -> Vec<(Vec<u8>, Ino, u32)> {
        if !self.args.recursive {
            return Vec::new();
        }
        let is_dir = |e: &&Entry| {
            e.name != b"."
                && e.name != b".."
                && e.file.as_ref().is_some_and(|f| f.metadata().is_dir())
        };
        let go = entries.iter().filter(is_dir);
        go.map(|e| (join(path, &e.name), e.ino, depth + 1))
            .collect()
    }

    /// Reads the names of a directory and sorts them.
    fn read(&mut self, path: &[u8], ino: Ino, asked_for: bool) -> Option<Vec<Entry>> {
        let listing = match self.volume.read_dir(ino) {
            Ok(listing) => listing,
            Err(error) => {
                self.report.file(path, error);
                self.report.failed(if asked_for { SERIOUS } else { 1 });
                return None;
            }
        };
        let mut entries = Vec::new();
        for entry in listing {
            match entry {
                Ok(entry) if self.is_hidden(&entry.name) => {}
                Ok(entry) => entries.push(Entry {
                    name: entry.name,
                    ino: entry.ino,
                    file: None,
                }),
                Err(error) => self.report.file(path, error),
            }
        }
        let sorted = self.args.is_by_time() || self.args.by_size || self.args.space;
        if self.args.is_long()
            || self.args.json
            || self.args.recursive
            || sorted
            || self.style.needs_inodes()
        {
            entries.retain_mut(|e| self.load(path, e));
        }
        self.sort(&mut entries);
        Some(entries)
    }

    fn is_hidden(&self, name: &[u8]) -> bool {
        let is_itself = matches!(name, b"." | b"..");
        name.starts_with(b".") && !self.args.all && (is_itself || !self.args.almost_all)
    }

    /// Reads the inode of a name; false if that failed and the name is left out, which is so only for JSON.
    fn load(&mut self, dir: &[u8], entry: &mut Entry) -> bool {
        match image::file(self.volume, entry.ino) {
            Ok(file) => entry.file = Some(file),
            Err(error) => {
                self.report.file(&join(dir, &entry.name), error);
                return !self.args.json;
            }
        }
        true
    }

    fn print(&mut self, dir: Option<&[u8]>, entries: Vec<Entry>) {
        self.printed_any |= !entries.is_empty() || dir.is_some();
        if self.args.json {
            entries.iter().for_each(|e| self.json(dir, e));
        } else if self.args.is_long() {
            let rows: Vec<Row> = entries.iter().map(|e| self.row(dir, e)).collect();
            long::print(&rows, dir.is_some(), self.args, &mut self.out);
        } else {
            let spaces = long::spaces(&entries, dir.is_some(), self.args, &mut self.out);
            for (entry, space) in entries.iter().zip(spaces) {
                if self.args.inode {
                    self.out.bytes(format!("{} ", entry.ino).as_bytes());
                }
                self.out.bytes(space.as_bytes());
                let inode = entry.file.as_ref().map(File::metadata);
                let mut line = self.style.name(&entry.name, inode.as_deref(), false);
                line.push(b'\n');
                self.out.bytes(&line);
            }
        }
    }

    fn row(&mut self, dir: Option<&[u8]>, entry: &Entry) -> Row {
        let path = dir.map_or_else(|| entry.name.clone(), |d| join(d, &entry.name));
        match &entry.file {
            None => Row::unknown(&entry.name, entry.ino, self.style.is_terminal()),
            Some(file) => {
                let shown = (&self.style, self.args);
                let (row, errors) = Row::new(self.volume, file, (&entry.name, &path), shown, |t| {
                    self.time(t)
                });
                errors.into_iter().for_each(|e| self.report.file(&path, e));
                row
            }
        }
    }

    fn time(&self, time: diorite_format::Timestamp) -> String {
        if self.args.full_time {
            return self.clock.full(time);
        }
        match self.args.time_style {
            crate::args::TimeStyle::Locale => self.clock.short(time),
            crate::args::TimeStyle::FullIso => self.clock.full(time),
            crate::args::TimeStyle::LongIso => self.clock.long_iso(time),
        }
    }

    fn json(&mut self, dir: Option<&[u8]>, entry: &Entry) {
        let Some(file) = &entry.file else { return };
        let target = image::target(self.volume, &file.metadata()).transpose();
        let target = target.unwrap_or_else(|error| {
            self.report
                .file(&join(dir.unwrap_or_default(), &entry.name), error);
            None
        });
        self.out.json(&JsonFile {
            dir,
            name: &entry.name,
            inode: &file.metadata(),
            target: target.as_deref(),
            more: None,
        });
    }
}
