//! `diorite find`: prints the files that match an expression of find(1).
//!
//! Input: an image, paths, an expression. Output: the path of each file that matches, in the form that the expression gives, or
//! a JSON object. Invariants: those of [`TreeWalk`]; an invalid expression is refused before the image is opened; the image is
//! opened for writing only for `-delete`. Limits: tests only look at names and inodes; there is no -exec.
//!
//! | module | takes -> gives |
//! |---|---|
//! | `parse` | words -> an expression and the depth limits |
//! | `test` | a file -> whether it matches the expression |
//! | `act` | a file that matches -> its output, or its removal |
//! | `glob` | a name and a pattern -> whether the name matches |
//! | `pattern` | a regular expression in a form of find(1) -> a compiled one |
//! | `refer` | the files, users and groups that an expression names -> times and ids |

mod act;
mod glob;
mod parse;
mod pattern;
mod refer;
mod test;

use crate::args::{FindArgs, Global};
use crate::images::image;
use crate::output::Out;
use crate::output::report::Report;
use crate::usage;
use crate::walking::tree::{TreeWalk, Visit, Waiting};
use crate::words::times::Clock;
use act::Actor;
use diorite::Volume;
use parse::Query;
use std::cell::Cell;
use std::process::ExitCode;
use test::Surroundings;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &FindArgs) -> ExitCode {
    let query = parse::read(&args.words).unwrap_or_else(|why| usage::wrong(&why));
    let mut report = Report::new("find", &args.img);
    let volume = match query.deletes {
        true => image::open_for_writing(&args.img, global, &mut report),
        false => image::open(&args.img, global, &mut report),
    };
    let Some(volume) = volume else {
        return report.exit_code();
    };
    let mut report = search(&volume, args, &query, report);
    if query.deletes {
        image::close(volume, &mut report);
    }
    report.exit_code()
}

fn search(volume: &Volume, args: &FindArgs, query: &Query, mut report: Report) -> Report {
    let (Some(references), Some(principals)) = (
        refer::times(volume, &query.references, &mut report),
        refer::ids(volume, &query.principals, &mut report),
    ) else {
        return report;
    };
    let around = Surroundings {
        volume,
        now: crate::words::times::now(),
        references: &references,
        principals: &principals,
        pruned: Cell::new(false),
        quits: Cell::new(false),
    };
    let mut finder = Finder {
        query,
        around,
        actor: Actor {
            volume,
            args,
            out: Out::new(),
            report,
            clock: Clock::local(),
        },
    };
    for path in &query.paths {
        if !finder.around.quits.get() {
            finder.walk(path);
        }
    }
    finder.actor.out.finish();
    finder.actor.report
}

struct Finder<'a> {
    query: &'a Query,
    around: Surroundings<'a>,
    actor: Actor<'a>,
}

impl Finder<'_> {
    fn walk(&mut self, path: &[u8]) {
        let mut walk = TreeWalk::new(self.around.volume);
        let mut next = Some(walk.begin(path));
        // Directories whose test comes after their contents (-depth).
        let mut open = Waiting::default();
        while let Some(visit) = next {
            self.close(&mut open, visit.depth, path);
            if self.around.quits.get() {
                return;
            }
            self.around.pruned.set(false);
            let waits = self.query.depth_first && visit.is_dir();
            if !waits {
                self.look(&visit, path);
            }
            let pruned = self.around.pruned.get();
            if visit.is_dir() && visit.depth < self.query.deepest && !pruned {
                let report = &mut self.actor.report;
                let all = |_: &_| true;
                walk.enter(&visit, all, |reason| report.file(&visit.path, reason));
            }
            if waits {
                open.push(visit);
            }
            next = walk.next();
        }
        self.close(&mut open, 0, path);
    }

    /// Tests the open directories at `depth` and below it, whose contents have all been visited.
    fn close(&mut self, open: &mut Waiting, depth: usize, start: &[u8]) {
        while !self.around.quits.get()
            && let Some(dir) = open.pop(depth)
        {
            self.look(&dir, start);
        }
    }

    fn look(&mut self, visit: &Visit, start: &[u8]) {
        let file = match &visit.file {
            Ok(file) => file,
            Err(error) => return self.actor.report.file(&visit.path, error),
        };
        if visit.depth < self.query.shallowest {
            return;
        }
        let actor = &mut self.actor;
        let mut act = |action: &_| actor.act(action, visit, file, start);
        if let Err(error) = test::fits(&self.query.test, &self.around, visit, file, &mut act) {
            self.actor.report.file(&visit.path, error);
        }
    }
}
