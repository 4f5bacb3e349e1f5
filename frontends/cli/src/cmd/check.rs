//! `diorite check`: checks whether an image is consistent, as `e2fsck -n` does, and with its exit codes.
//!
//! Input: an image. Output: a line for every finding, or one JSON object: `clean`, `findings` (`[{"kind", "count", "kept":
//! [{"inode", "block", "path", "what"}]}]`), `finished`, `notes`, `repaired`, and totals of the image. Invariant: nothing is written
//! without --repair. Limits: only the first 10 findings of each kind are printed (1000 with -v); all are counted.

mod repair;

use crate::args::{CheckArgs, Global};
use crate::images::image;
use crate::output::Out;
use crate::output::report::Report;
use diorite::Error;
use diorite_check::{CheckOptions, Finding, Progress, Report as Found, check};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use repair::Repaired;
use serde_json::{Value, json};
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Mutex;

/// Exit codes of e2fsck, which are added: errors were found and not corrected; the image was not checked, or not completely.
const DAMAGED: u8 = 4;
const FAILED: u8 = 8;

/// How many findings of each kind are printed, without and with -v.
const TOLD: usize = 10;
const TOLD_VERBOSE: usize = 1000;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &CheckArgs) -> ExitCode {
    let mut report = Report::new("check", &args.img).with_undo(global.undo.as_ref());
    let mut options = CheckOptions::default()
        .per_kind(if args.verbose { TOLD_VERBOSE } else { TOLD })
        .open(image::options(global));
    if let Some(threads) = args.threads {
        options.threads = usize::from(threads);
    }
    let journal = global.journal.as_deref();
    let _kept = (image::keep(&args.img), journal.and_then(image::keep));
    let bar = Bar::new();
    if args.repair {
        let repaired = repair::repair(global, &args.img, &options, &|p| bar.show(p));
        bar.finish();
        match repaired {
            Ok(repaired) => {
                show_repaired(args, &repaired);
                report.failed(repaired.code);
            }
            Err(error) => failed(args, &mut report, &error),
        }
        return report.exit_code();
    }
    let found = check(&args.img, &options, &|p| bar.show(p));
    bar.finish();
    match found {
        Ok(found) => {
            if !(args.preen && found.is_clean()) || args.json.on {
                show(args, &found);
            }
            if found.unfinished {
                report.failed(DAMAGED | FAILED);
            } else if !found.is_clean() {
                report.failed(DAMAGED);
            }
        }
        Err(error) => failed(args, &mut report, &error),
    }
    report.exit_code()
}

fn failed(args: &CheckArgs, report: &mut Report, error: &Error) {
    image::refused(&args.img, report, error);
    report.failed(FAILED);
}

/// What a repair did, and what the check after it found.
fn show_repaired(args: &CheckArgs, repaired: &Repaired) {
    let mut out = Out::new();
    if args.json.on {
        let mut object = json_of(&args.img, &repaired.found);
        object["repaired"] = json!(repaired.done);
        out.json(&object);
    } else if !(args.preen && repaired.code == 0 && repaired.done.is_empty()) {
        for line in &repaired.done {
            out.line(format_args!("{}: {line}", args.img));
        }
        text(args, &repaired.found, &mut out);
        if let Some(left) = repaired.left {
            out.line(format_args!("{0}: {left}; run 'e2fsck -f {0}'", args.img));
        }
    }
    out.finish();
}

fn show(args: &CheckArgs, found: &Found) {
    let mut out = Out::new();
    if args.json.on {
        out.json(&json_of(&args.img, found));
    } else {
        text(args, found, &mut out);
    }
    out.finish();
}

fn text(args: &CheckArgs, found: &Found, out: &mut Out) {
    for note in &found.notes {
        out.line(format_args!("{}: note: {note}", args.img));
    }
    for findings in &found.findings {
        for finding in &findings.kept {
            out.line(finding);
        }
        let more = findings.count.saturating_sub(findings.kept.len() as u64);
        if more > 0 {
            out.line(format_args!(
                "... and {more} more findings of the kind {}",
                findings.kind
            ));
        }
    }
    if found.unfinished {
        return out.line(format_args!(
            "{}: NOT clean: it could not be checked",
            args.img
        ));
    }
    let totals = &found.totals;
    let verdict = match found.count() {
        0 => "clean".to_owned(),
        1 => "NOT clean: 1 finding".to_owned(),
        n => format!("NOT clean: {n} findings"),
    };
    out.line(format_args!(
        "{}: {verdict}; {} inodes and {} blocks in use, {} directories, {} names",
        args.img, totals.inodes, totals.blocks, totals.directories, totals.names
    ));
}

fn json_of(img: &str, found: &Found) -> Value {
    let one = |f: &Finding| {
        json!({
            "inode": f.ino.map(diorite_format::Ino::get),
            "block": f.block.map(diorite_format::FsBlock::get),
            "path": f.path.as_ref().map(|p| p.escape_ascii().to_string()),
            "what": f.what,
        })
    };
    let kinds: Vec<Value> = found
        .findings
        .iter()
        .map(|f| {
            let kept: Vec<Value> = f.kept.iter().map(one).collect();
            json!({ "kind": f.kind.name(), "count": f.count, "kept": kept })
        })
        .collect();
    json!({
        "image": img,
        "clean": found.is_clean(),
        "findings": kinds,
        "finished": !found.unfinished,
        "notes": found.notes,
        "inodes": found.totals.inodes,
        "directories": found.totals.directories,
        "names": found.totals.names,
        "blocks": found.totals.blocks,
    })
}

/// A progress bar on a terminal; each stage starts a new one.
struct Bar {
    bar: Option<ProgressBar>,
    stage: Mutex<&'static str>,
}

impl Bar {
    fn new() -> Bar {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
            let style = ProgressStyle::with_template("{msg} {wide_bar} {percent}%");
            bar.set_style(style.expect("the template is a constant that parses"));
            bar
        });
        Bar {
            bar,
            stage: Mutex::new(""),
        }
    }

    fn show(&self, progress: Progress) {
        let Some(bar) = &self.bar else { return };
        let mut stage = self
            .stage
            .lock()
            .expect("nobody panics while a bar is drawn");
        if *stage != progress.stage {
            *stage = progress.stage;
            bar.set_message(progress.stage);
            bar.set_length(progress.total);
        }
        bar.set_position(progress.done);
    }

    /// Removes the bar from the terminal.
    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
