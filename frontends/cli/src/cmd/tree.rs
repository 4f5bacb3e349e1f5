//! `diorite tree`: prints directories as trees, as tree(1) does.
//!
//! Input: an image, paths. Output: a line per name, with lines for the branches, and the numbers of directories and files.
//! Invariants: those of [`TreeWalk`]. Limits: there is no JSON; programs use `find --json`.

use crate::args::{Global, TreeArgs};
use crate::images::image::{self, bytes};
use crate::output::Out;
use crate::output::report::Report;
use crate::walking::tree::{Name, TreeWalk, Visit};
use crate::words::names::quoted;
use diorite::Volume;
use diorite_format::FileType;
use std::process::ExitCode;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &TreeArgs) -> ExitCode {
    let mut report = Report::new("tree", &args.img);
    let Some(volume) = image::open(&args.img, global, &mut report) else {
        return report.exit_code();
    };
    let mut drawing = Drawing {
        volume: &volume,
        args,
        out: Out::new(),
        report,
        open: Vec::new(),
        dirs: 0,
        files: 0,
    };
    let mut paths: Vec<&[u8]> = args.paths.iter().map(|p| bytes(p)).collect();
    if paths.is_empty() {
        paths.push(b"/");
    }
    paths.into_iter().for_each(|path| drawing.tree(path));
    drawing.count();
    drawing.out.finish();
    drawing.report.exit_code()
}

struct Drawing<'a> {
    volume: &'a Volume,
    args: &'a TreeArgs,
    out: Out,
    report: Report,
    /// For each level above, whether more names follow in it.
    open: Vec<bool>,
    dirs: u64,
    files: u64,
}

impl Drawing<'_> {
    fn tree(&mut self, path: &[u8]) {
        let mut walk = TreeWalk::new(self.volume);
        let mut next = Some(walk.begin(path));
        while let Some(visit) = next {
            self.line(&visit);
            if visit.is_dir()
                && self
                    .args
                    .level
                    .is_none_or(|most| visit.depth < most as usize)
            {
                let args = self.args;
                let wanted = |name: &Name| {
                    let hidden = name.name.starts_with(b".") && !args.all;
                    let is_dir = name.kind.is_none_or(|kind| kind == FileType::Directory);
                    !hidden && (is_dir || !args.dirs)
                };
                let report = &mut self.report;
                walk.enter(&visit, wanted, |reason| report.file(&visit.path, reason));
            }
            next = walk.next();
        }
    }

    fn line(&mut self, visit: &Visit) {
        let mut line = Vec::new();
        if visit.depth > 0 {
            self.open.truncate(visit.depth - 1);
            for open in &self.open {
                line.extend(if *open { "│   " } else { "    " }.as_bytes());
            }
            self.open.push(!visit.is_last);
            line.extend(
                if visit.is_last {
                    "└── "
                } else {
                    "├── "
                }
                .as_bytes(),
            );
        }
        let file = match &visit.file {
            Ok(file) => Some(file),
            Err(error) => {
                self.report.file(&visit.path, error);
                if visit.depth == 0 {
                    return;
                }
                None
            }
        };
        if visit.depth > 0 {
            let count = if visit.is_dir() {
                &mut self.dirs
            } else {
                &mut self.files
            };
            *count += 1;
        }
        if self.args.size && visit.depth > 0 {
            let size = file.map_or("?".to_owned(), |f| f.metadata().size.to_string());
            line.extend(format!("[{size:>11}]  ").into_bytes());
        }
        let terminal = self.out.is_terminal();
        line.extend(quoted(&visit.name, terminal).iter());
        let target = file.and_then(|f| image::target(self.volume, &f.metadata()));
        match target.transpose() {
            Ok(Some(target)) => {
                line.extend(b" -> ");
                line.extend(quoted(&target, terminal).iter());
            }
            Ok(None) => {}
            Err(error) => self.report.file(&visit.path, error),
        }
        line.push(b'\n');
        self.out.bytes(&line);
    }

    fn count(&mut self) {
        let dirs = match self.dirs {
            1 => "1 directory".to_owned(),
            n => format!("{n} directories"),
        };
        let files = match self.files {
            _ if self.args.dirs => String::new(),
            1 => ", 1 file".to_owned(),
            n => format!(", {n} files"),
        };
        self.out.line("");
        self.out.line(format_args!("{dirs}{files}"));
    }
}
