//! `diorite du`: prints the space that files and directories take, as du(1) counts it.
//!
//! Input: an image and paths. Output: a line or a JSON object for each directory, after those for its contents. Invariants:
//! those of [`TreeWalk`]; a file with several names counts once. Limits: attribute blocks count as part of the file, as in the
//! kernel.

use crate::args::{DuArgs, Global};
use crate::images::image::{self, bytes};
use crate::output::Out;
use crate::output::report::Report;
use crate::walking::tree::{TreeWalk, Visit};
use crate::words::names::{json_name, quoted};
use crate::words::sizes::human;
use diorite::Volume;
use diorite_format::{Ino, Inode};
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::collections::HashSet;
use std::process::ExitCode;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &DuArgs) -> ExitCode {
    let mut report = Report::new("du", &args.img);
    let Some(volume) = image::open(&args.img, global, &mut report) else {
        return report.exit_code();
    };
    let mut adder = Adder {
        volume: &volume,
        args,
        out: Out::new(),
        report,
        seen: HashSet::new(),
        open: Vec::new(),
        path: Vec::new(),
        total: 0,
    };
    let mut paths: Vec<&[u8]> = args.paths.iter().map(|p| bytes(p)).collect();
    if paths.is_empty() {
        paths.push(b"/");
    }
    paths.into_iter().for_each(|path| adder.add(path));
    if args.total {
        adder.print(b"total", adder.total);
    }
    adder.out.finish();
    adder.report.exit_code()
}

struct Adder<'a> {
    volume: &'a Volume,
    args: &'a DuArgs,
    out: Out,
    report: Report,
    /// Inodes that were counted and have more names: they are not counted again.
    seen: HashSet<Ino>,
    /// The directories from the start to the present place: the length of the path of each, and its sum so far.
    open: Vec<(usize, u64)>,
    /// The path of the deepest of them; the paths of the others are prefixes of it.
    path: Vec<u8>,
    total: u64,
}

impl Adder<'_> {
    fn add(&mut self, path: &[u8]) {
        let mut walk = TreeWalk::new(self.volume);
        let mut next = Some(walk.begin(path));
        while let Some(visit) = next {
            self.close(visit.depth);
            self.visit(&visit, &mut walk);
            next = walk.next();
        }
        self.close(0);
    }

    fn visit(&mut self, visit: &Visit, walk: &mut TreeWalk<'_>) {
        let file = match &visit.file {
            Ok(file) => file,
            Err(error) => return self.report.file(&visit.path, error),
        };
        let inode = file.metadata();
        let may_return = inode.is_dir() || (inode.links > 1 && !self.args.count_links);
        if may_return && !self.seen.insert(file.ino()) {
            return;
        }
        let own = self.space(&inode);
        if !inode.is_dir() {
            self.total_of(visit.depth, own);
            if visit.depth == 0 || self.args.all && self.is_shown(visit.depth) {
                self.print(&visit.path, own);
            }
            return;
        }
        self.open.push((visit.path.len(), own));
        self.path.clone_from(&visit.path);
        let report = &mut self.report;
        let all = |_: &_| true;
        walk.enter(visit, all, |error| report.file(&visit.path, error));
    }

    /// Prints the sums of the open directories at `depth` and below it.
    fn close(&mut self, depth: usize) {
        while self.open.len() > depth {
            let Some((len, sum)) = self.open.pop() else {
                return;
            };
            self.path.truncate(len);
            let depth = self.open.len();
            self.total_of(depth, sum);
            if self.is_shown(depth) {
                let path = std::mem::take(&mut self.path);
                self.print(&path, sum);
                self.path = path;
            }
        }
    }

    /// Adds space at a depth to the sum of the directory above it.
    fn total_of(&mut self, depth: usize, space: u64) {
        let sum = match depth.checked_sub(1) {
            Some(above) => self.open.get_mut(above).map(|dir| &mut dir.1),
            None => Some(&mut self.total),
        };
        if let Some(sum) = sum {
            *sum = sum.saturating_add(space);
        }
    }

    fn is_shown(&self, depth: usize) -> bool {
        let most = match self.args.summarize {
            true => Some(0),
            false => self.args.max_depth,
        };
        most.is_none_or(|most| depth <= most)
    }

    fn space(&self, inode: &Inode) -> u64 {
        let apparent = self.args.apparent_size || self.args.bytes;
        match apparent {
            true if inode.is_dir() || inode.rdev().is_some() => 0,
            true => inode.size,
            false => inode.blocks.saturating_mul(512),
        }
    }

    fn print(&mut self, path: &[u8], space: u64) {
        if self.args.json {
            return self.out.json(&JsonSpace { path, space });
        }
        let shown = match (self.args.human_readable, self.args.bytes) {
            (true, _) => human(space),
            (false, true) => space.to_string(),
            (false, false) => space.div_ceil(1024).to_string(),
        };
        let name = quoted(path, self.out.is_terminal()).into_owned();
        let end: &[u8] = if self.args.null { b"\0" } else { b"\n" };
        self.out
            .bytes(&[shown.as_bytes(), b"\t", &name, end].concat());
    }
}

/// One line of `du --json`: `path`, `bytes`.
struct JsonSpace<'a> {
    path: &'a [u8],
    space: u64,
}

impl Serialize for JsonSpace<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        json_name(&mut map, "path", self.path)?;
        map.serialize_entry("bytes", &self.space)?;
        map.end()
    }
}
