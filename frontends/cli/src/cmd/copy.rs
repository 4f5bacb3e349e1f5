//! `diorite copy`: copies the bytes of one device to another, for any two locators.
//!
//! | module | takes -> gives |
//! |---|---|
//! | `ends` | two locators -> two devices that share no byte |
//! | `target` | the locator of DST -> an existing device, or a file that gets its name at the end |
//! | `run` | the devices -> requests in flight (`crate::pump`), a flush, a comparison |
//!
//! Input: two locators. Output: the copy. Invariants: success means that every byte of SRC is durable on DST: all writes ended well, a
//! flush began after the last of them and ended well, and with --verify what was read back is the same; otherwise the message says that
//! DST is not complete, and the exit code is not 0. Limits: of a SRC that changes meanwhile each piece is from some moment.

pub(crate) mod ends;
pub(crate) mod run;
mod target;

use crate::args::{CopyArgs, Global};
use crate::output::Out;
use crate::process;
use crate::progress::Progress;
use crate::pump::Written;
use crate::report::{Reason, Report};
use diorite_block::Locator;
use ends::{Ends, Named};
use run::{How, Run, Trouble};
use serde_json::json;
use std::process::ExitCode;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &CopyArgs) -> ExitCode {
    let mut report = Report::new("copy", &args.source);
    match copy(global, args, &mut report) {
        Ok(done) => tell(args, &done),
        Err(Trouble { reason, code }) => {
            report.host(reason);
            report.failed(code);
        }
    }
    report.exit_code()
}

/// What was done.
struct Done {
    size: u64,
    written: Written,
    is_new: bool,
}

fn copy(global: &Global, args: &CopyArgs, report: &mut Report) -> Result<Done, Trouble> {
    let stop = process::watch()?;
    let parsed = |text: &str| Locator::parse(text).map_err(|e| Reason::new(e.to_string()));
    let named = Named {
        args,
        source: parsed(&args.source)?,
        target: parsed(&args.target)?,
    };
    let Ends { source, target } = named.open(global)?;
    for doubt in source.doubts() {
        report.warn(format_args!("{}: {doubt}", args.source));
    }
    let progress = Progress::new(args.quiet, report);
    let work = source.size.saturating_mul(1 + u64::from(args.verify));
    progress.expect(Some(work));
    let run = Run {
        how: How {
            sparse: args.sparse,
            requests: args.requests,
            verify: args.verify,
        },
        names: (&args.source, &args.target),
        source: &source,
        target: &target.opened,
        is_new: target.is_new,
        stop: &stop,
        step: &|at| progress.entry(at),
    };
    let copied = run.all();
    progress.finish();
    let (size, is_new) = (source.size, target.is_new);
    drop(source);
    let written = match copied {
        Ok(written) => written,
        Err(mut trouble) => {
            let left = match is_new {
                true => "there is no copy".to_owned(),
                false => format!("{} is not complete, do not use it", args.target),
            };
            trouble.reason = Reason::new(format!("{} ({left})", trouble.reason));
            if let Err(also) = target.abandon() {
                report.host(also);
            }
            return Err(trouble);
        }
    };
    target.finish()?;
    Ok(Done {
        size,
        written,
        is_new,
    })
}

fn tell(args: &CopyArgs, done: &Done) {
    let mut out = Out::new();
    if args.json {
        out.json(&json!({
            "source": args.source, "target": args.target, "size": done.size, "data": done.written.data,
            "zeroed": done.written.zeroed, "created": done.is_new, "verified": args.verify,
        }));
    } else if args.verbose {
        let verified = if args.verify { ", verified" } else { "" };
        out.line(format_args!(
            "{} -> {}: {} bytes, {} of them written as data{verified}",
            args.source, args.target, done.size, done.written.data
        ));
    }
    out.finish();
}
