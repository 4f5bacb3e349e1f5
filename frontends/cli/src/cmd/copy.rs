//! `diorite copy`: copies the bytes of one device to another, for any two locators.
//!
//! | module | takes -> gives |
//! |---|---|
//! | `ends` | two locators -> two devices that share no byte |
//! | `target` | the locator of DST -> an existing device, or a file that gets its name at the end |
//! | `packed` | SRC in a packed form -> its bytes; a device -> a packed DST (`crate::encoding`) |
//! | `run` | the devices -> requests in flight (`crate::copying::ranges`), a flush, a comparison |
//!
//! Input: two locators. Output: the copy. Invariants: success means that every byte of SRC is durable on DST: all writes ended well, a
//! flush began after the last of them and ended well, and with --verify what was read back is the same; otherwise the message says that
//! DST is not complete, and the exit code is not 0. Limits: of a SRC that changes meanwhile each piece is from some moment.

pub(crate) mod ends;
mod packed;
pub(crate) mod run;
mod target;

use crate::args::{CopyArgs, Encoding, Global};
use crate::copying::ranges::Written;
use crate::encoding::{Holes, Hooks, Level, seen};
use crate::host::process;
use crate::images::device::{self, Opened};
use crate::images::location::Location;
use crate::output::Out;
use crate::output::progress::Progress;
use crate::output::report::{Reason, Report};
use crate::targets::new_image;
use diorite_block::{Locator, open_storage};
use diorite_image::Warnings;
use ends::{Ends, Named};
use packed::Streamed;
use run::{How, Run, Trouble, Zeros};
use rustix::fs::OFlags;
use serde_json::json;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &CopyArgs) -> ExitCode {
    let args = &args.in_order();
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

/// What was asked for.
struct Asked<'a> {
    global: &'a Global,
    args: &'a CopyArgs,
    /// None is standard input.
    source: Option<Locator>,
    /// Further pieces of an image whose first one is the source.
    pieces: Vec<Locator>,
    target: Locator,
    from: Encoding,
    to: Encoding,
    level: Level,
    /// What is odd about SRC.
    warnings: Warnings,
}

impl Asked<'_> {
    /// What holes say of what is copied: SRC, or a scratch file with what a stream holds.
    fn holes(&self) -> Holes {
        match self.source.is_some() && self.from.is_device() {
            true => Holes::Unwritten,
            false => Holes::Zeros,
        }
    }

    /// What SRC is seen to be, if it was taken for a disk by its name alone.
    fn seen(&self, source: &Opened) -> Option<String> {
        let is_assumed = seen::is_assumed(self.args.source_format, self.from);
        let is_named = self.source.as_ref().is_some_and(|source| match source {
            Locator::File(file) => file.format.is_some(),
            _ => false,
        });
        let is_assumed = is_assumed && self.source.is_some() && !is_named;
        is_assumed.then(|| seen::of_device(source)).flatten()
    }
}

fn copy(global: &Global, args: &CopyArgs, report: &mut Report) -> Result<Done, Trouble> {
    let stop = process::watch()?;
    check_pieces(args)?;
    Encoding::check_known(args.source_format, Path::new(&args.source)).map_err(Reason::new)?;
    Encoding::check_written(args.format, Path::new(&args.target)).map_err(Reason::new)?;
    if args.target == "-" {
        return Err(new_image::no_stdout().into());
    }
    let parsed = |text: &str| Locator::parse(text).map_err(|e| Reason::new(e.to_string()));
    let source = (args.source != "-").then(|| parsed(&args.source));
    let source = source.transpose()?;
    if let Some(source) = &source {
        let asked = ("-f", args.source_format);
        Encoding::check_agrees(asked, source).map_err(Reason::new)?;
    }
    let source = source.map(|locator| Encoding::applied(args.source_format, locator));
    let (source, from) = form(global, args, source)?;
    let target = parsed(&args.target)?;
    Encoding::check_agrees(("-O", args.format), &target).map_err(Reason::new)?;
    let target = Encoding::applied(args.format, target);
    let to = Encoding::of(args.format, &target);
    let pieces: Result<Vec<Locator>, Reason> =
        args.pieces.iter().map(|text| parsed(text)).collect();
    let asked = Asked {
        global,
        pieces: pieces?,
        args,
        level: Level::new(args.level, to).map_err(Reason::new)?,
        warnings: Warnings::default(),
        from,
        to,
        source,
        target,
    };
    check_map(&asked)?;
    let progress = Progress::new(args.quiet, report);
    let hooks = Hooks {
        stop: &stop,
        step: &|at| progress.entry(at),
    };
    let done = of_any(&asked, &hooks, &progress, report);
    progress.finish();
    for warning in asked.warnings.take(&args.source) {
        report.warn(warning);
    }
    done
}

/// SRC with its form: the one that was asked for, or that its name says, or, for `auto`, that its first bytes say.
fn form(
    global: &Global,
    args: &CopyArgs,
    source: Option<Locator>,
) -> Result<(Option<Locator>, Encoding), Reason> {
    if !args.pieces.is_empty() {
        return Ok((source, Encoding::AndroidSparse));
    }
    let Some(locator) = source else {
        return Ok((None, args.source_format.unwrap_or(Encoding::Raw)));
    };
    let asked = args.source_format.filter(|asked| *asked != Encoding::Auto);
    let encoding = Encoding::of(asked, &locator);
    if asked.is_some() || !Encoding::is_auto(&locator) {
        return Ok((Some(locator), encoding));
    }
    if encoding == Encoding::Qcow2 {
        return Ok((Some(Encoding::applied(Some(encoding), locator)), encoding));
    }
    let of = |why: String| Reason::new(format!("{}: {why}", args.source));
    let bytes = Encoding::applied(Some(Encoding::Raw), locator);
    let opened = device::open(&bytes, &device::options(global, false));
    let opened = opened.map_err(|e| ends::of(&args.source, &e))?;
    let found = seen::form_of_device(&opened);
    opened.close().map_err(|e| ends::of(&args.source, &e))?;
    let found = found.map_err(of)?;
    Ok((Some(Encoding::applied(Some(found), bytes)), found))
}

/// Refuses several sources that cannot be pieces of one image.
fn check_pieces(args: &CopyArgs) -> Result<(), Reason> {
    if args.pieces.is_empty() {
        return Ok(());
    }
    if args
        .source_format
        .is_some_and(|format| !matches!(format, Encoding::AndroidSparse | Encoding::Auto))
    {
        return Err(Reason::new(
            "several SRC are pieces of one Android sparse image, and --source-format says something else: copy one at a time",
        ));
    }
    match [&args.source]
        .into_iter()
        .chain(&args.pieces)
        .any(|name| name == "-")
    {
        true => Err(Reason::new(
            "standard input (-) is one SRC, no piece among others",
        )),
        false => Ok(()),
    }
}

/// Refuses a DST that seems to be one more piece, because the name of an output was forgotten.
fn check_output(args: &CopyArgs, target: &Locator) -> Result<(), Reason> {
    let Locator::File(file) = target else {
        return Ok(());
    };
    if args.pieces.is_empty() || args.force || !file.path.is_file() {
        return Ok(());
    }
    let mut first = Vec::new();
    // What cannot be read is not known to be a piece, and is refused later if it cannot be written.
    if let Ok(opened) = open_storage(&file.path, OFlags::RDONLY) {
        let read = File::from(opened)
            .take(seen::FIRST as u64)
            .read_to_end(&mut first);
        read.map_err(|e| Reason::new(format!("{}: {e}", args.target)))?;
    }
    match seen::form(&first, &[]) {
        Ok(Encoding::AndroidSparse) => Err(Reason::new(format!(
            "{} is an Android sparse image, as the pieces are: name an output behind them, or replace it with --force; nothing was changed",
            args.target
        ))),
        _ => Ok(()),
    }
}

/// Refuses a block map that would take the place of an end of the copy.
fn check_map(asked: &Asked<'_>) -> Result<(), Reason> {
    let Some(map) = &asked.args.bmap else {
        return Ok(());
    };
    if asked.to == Encoding::Qcow2 {
        return Err(new_image::no_map());
    }
    let ends = asked
        .source
        .iter()
        .chain(&asked.pieces)
        .chain([&asked.target]);
    let files = ends.filter_map(|end| match Location::of(end.clone()).base {
        Locator::File(file) => Some(file.path),
        Locator::Mem { .. } | Locator::Sim { .. } | Locator::Inside { .. } => None,
    });
    new_image::check_map(map, files, &device::options(asked.global, true))
}

fn of_any(
    asked: &Asked<'_>,
    hooks: &Hooks<'_>,
    progress: &Progress,
    report: &mut Report,
) -> Result<Done, Trouble> {
    let (source, _scratch) = match &asked.source {
        Some(source) if asked.from.is_device() => (source.clone(), None),
        _ => {
            progress.expect(None);
            match packed::unpack(asked, hooks)? {
                Streamed::Done(done) => return Ok(done),
                Streamed::Scratch(file) => (Locator::file(file.path()), Some(file)),
            }
        }
    };
    if asked.to.is_device() {
        return plain(asked, source, hooks, progress, report);
    }
    let (done, doubts) = packed::pack(asked, &source, hooks, progress)?;
    for doubt in doubts {
        report.warn(format_args!("{}: {doubt}", asked.args.source));
    }
    Ok(done)
}

/// Both ends are devices.
fn plain(
    asked: &Asked<'_>,
    source: Locator,
    hooks: &Hooks<'_>,
    progress: &Progress,
    report: &mut Report,
) -> Result<Done, Trouble> {
    let args = asked.args;
    let named = Named {
        args,
        source,
        target: asked.target.clone(),
    };
    let Ends { source, target } = named.open(asked.global)?;
    packed::check_map_apart(args)?;
    for doubt in source.doubts().into_iter().chain(asked.seen(&source)) {
        report.warn(format_args!("{}: {doubt}", args.source));
    }
    let work = source.size.saturating_mul(1 + u64::from(args.verify));
    progress.expect(Some(work));
    let run = Run {
        how: How {
            zeros: Zeros::of_option(args.sparse),
            requests: args.requests,
            verify: args.verify,
        },
        names: (&args.source, &args.target),
        source: &source,
        target: &target.opened,
        is_new: target.is_new,
        stop: hooks.stop,
        step: hooks.step,
    };
    let copied = run.all().and_then(|written| {
        let map = args
            .bmap
            .is_some()
            .then(|| packed::map(asked, &source, hooks));
        Ok((written, map.transpose()?))
    });
    let (size, is_new) = (source.size, target.is_new);
    drop(source);
    let (written, map) = match copied {
        Ok(done) => done,
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
    if let Some((path, map)) = args.bmap.as_deref().zip(map) {
        new_image::map(path, &map)?;
    }
    Ok(Done {
        size,
        written,
        is_new,
    })
}

fn tell(args: &CopyArgs, done: &Done) {
    let mut out = Out::new();
    if args.json.on {
        let mut told = json!({
            "source": args.source, "target": args.target, "size": done.size, "data": done.written.data,
            "zeroed": done.written.zeroed, "created": done.is_new, "verified": args.verify,
        });
        if !args.pieces.is_empty() {
            told["pieces"] = json!(args.pieces);
        }
        out.json(&told);
    } else if args.verbose || out.is_terminal() && !args.quiet {
        let verified = if args.verify { ", verified" } else { "" };
        out.line(format_args!(
            "{} -> {}: {} bytes, {} of them written as data{verified}",
            args.source, args.target, done.size, done.written.data
        ));
    }
    out.finish();
}
