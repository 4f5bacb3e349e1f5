//! `diorite find`: names that fit, in the words of find(1).
//!
//! Input: an image, paths, an expression. Output: the paths of what fits, or a JSON object for each. Invariants: those of the walk; an expression that
//! makes no sense is refused before the image is opened. Limits: the tests are those of what an inode says; nothing is run or removed.
//!
//! | module | takes -> gives |
//! |---|---|
//! | `parse` | words -> an expression, and how deep to go |
//! | `test` | a file that was met -> whether it fits |
//! | `glob` | a name and a pattern -> whether they fit |

mod glob;
mod parse;
mod test;

use crate::args::{FindArgs, Global};
use crate::descent::{Descent, Visit};
use crate::facts::JsonFile;
use crate::image;
use crate::names::quoted;
use crate::output::Out;
use crate::report::Report;
use crate::usage;
use diorite::Volume;
use parse::Query;
use std::process::ExitCode;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &FindArgs) -> ExitCode {
    let query = parse::read(&args.words).unwrap_or_else(|why| usage::wrong(&why));
    let mut report = Report::new("find", &args.img);
    let Some(volume) = image::open(&args.img, global, &mut report) else {
        return report.exit_code();
    };
    let mut finder = Finder {
        volume: &volume,
        args,
        query: &query,
        out: Out::new(),
        report,
    };
    query.paths.iter().for_each(|path| finder.walk(path));
    finder.out.finish();
    finder.report.exit_code()
}

struct Finder<'a> {
    volume: &'a Volume,
    args: &'a FindArgs,
    query: &'a Query,
    out: Out,
    report: Report,
}

impl Finder<'_> {
    fn walk(&mut self, path: &[u8]) {
        let mut descent = Descent::new(self.volume);
        let mut next = Some(descent.begin(path));
        while let Some(visit) = next {
            self.look(&visit);
            if visit.is_dir() && visit.depth < self.query.deepest {
                let report = &mut self.report;
                let all = |_: &_| true;
                descent.enter(&visit, all, |reason| report.file(&visit.path, reason));
            }
            next = descent.next();
        }
    }

    fn look(&mut self, visit: &Visit) {
        let file = match &visit.file {
            Ok(file) => file,
            Err(error) => return self.report.file(&visit.path, error),
        };
        if visit.depth < self.query.shallowest {
            return;
        }
        match test::fits(&self.query.test, self.volume, visit, file) {
            Ok(true) => self.print(visit, file),
            Ok(false) => {}
            Err(error) => self.report.file(&visit.path, error),
        }
    }

    fn print(&mut self, visit: &Visit, file: &diorite::File) {
        if self.args.json {
            let target = image::target(self.volume, &file.metadata()).transpose();
            let target = target.unwrap_or_else(|error| {
                self.report.file(&visit.path, error);
                None
            });
            return self.out.json(&JsonFile {
                dir: None,
                name: &visit.path,
                inode: &file.metadata(),
                target: target.as_deref(),
                more: None,
            });
        }
        let (mut line, end) = match self.query.zero {
            true => (visit.path.clone(), 0),
            false => (
                quoted(&visit.path, self.out.is_terminal()).into_owned(),
                b'\n',
            ),
        };
        line.push(end);
        self.out.bytes(&line);
    }
}
