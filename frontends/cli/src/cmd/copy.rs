//! `diorite copy`: copies the bytes of one device to another, for any two locators.
//!
//! | module | takes -> gives |
//! |---|---|
//! | `ends` | two locators -> two devices that share no byte |
//! | `target` | the locator of DST -> an existing device, or a file that gets its name at the end |
//! | `crate::pump` | the devices -> requests in flight |
//!
//! Input: two locators. Output: the copy. Invariants: success means that every byte of SRC is durable on DST: all writes ended well, a
//! flush began after the last of them and ended well, and with --verify what was read back is the same; otherwise the message says that
//! DST is not complete, and the exit code is not 0. Limits: of a SRC that changes meanwhile each piece is from some moment.

pub(crate) mod ends;
mod target;

use crate::args::{CopyArgs, Global};
use crate::device::Opened;
use crate::output::Out;
use crate::process::{self, INTERRUPTED};
use crate::progress::Progress;
use crate::pump::{self, Bufs, Equal, Failure, Found, Gaps, LARGE, Plan, Side, Write, Written};
use crate::report::{Reason, Report};
use diorite_block::{Bio, Blocking, Buf, Locator};
use ends::{Ends, Named};
use serde_json::json;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

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

/// Why there is no copy.
struct Trouble {
    reason: Reason,
    code: u8,
}

impl From<Reason> for Trouble {
    fn from(reason: Reason) -> Trouble {
        Trouble { reason, code: 1 }
    }
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
    let run = Run {
        args,
        source: &source,
        target: &target.opened,
        is_new: target.is_new,
        stop: &stop,
        progress: &progress,
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

/// One copy between open devices.
struct Run<'a> {
    args: &'a CopyArgs,
    source: &'a Opened,
    target: &'a Opened,
    is_new: bool,
    stop: &'a AtomicBool,
    progress: &'a Progress,
}

impl Run<'_> {
    /// Copies, flushes, and verifies if that was asked for.
    fn all(&self) -> Result<Written, Trouble> {
        let unit = self.source.unit_with(self.target);
        // What is behind the last whole unit is a part of a sector of one of the two.
        let body = self.source.size / unit * unit;
        let work = self
            .source
            .size
            .saturating_mul(1 + u64::from(self.args.verify));
        self.progress.expect(Some(work));
        let mut written = self.body(body, unit)?;
        written.data += self.tail(body)?;
        self.flush()?;
        if self.args.verify {
            self.verify(body, unit)?;
        }
        Ok(written)
    }

    fn body(&self, body: u64, unit: u64) -> Result<Written, Trouble> {
        let gaps = match (self.args.sparse, self.is_new) {
            (0, _) => Gaps::Fill,
            (_, true) => Gaps::Skip,
            (_, false) => Gaps::Unmap,
        };
        let (source, target) = (&self.source.device, &self.target.device);
        let plan = Plan::of(source, 0..body, unit, gaps == Gaps::Skip);
        let mut write = Write::new(target.as_ref(), gaps, self.args.sparse, unit);
        let bufs = Bufs::new(usize::from(self.args.requests));
        let mut step = |at| self.progress.entry(at);
        let ran = pump::run(
            (source, target),
            plan,
            bufs,
            &mut write,
            (self.stop, &mut step),
        );
        let written = write.end().map_err(|failure| self.failed(failure))?;
        ran.map_err(|failure| self.failed(failure))?;
        Ok(written)
    }

    /// Copies the bytes behind the last whole unit, and leaves those behind them in the last sector of DST; returns their number.
    fn tail(&self, body: u64) -> Result<u64, Trouble> {
        let size = self.source.size;
        if body == size {
            return Ok(0);
        }
        let ours = self.last(Side::First, body)?;
        let mut theirs = self.last(Side::Second, body)?;
        let bytes = short(size - body);
        theirs.copy_in(0, &ours.as_slice()[..bytes]);
        let bio = Blocking::new(self.target.device.clone()).run(Bio::write(body, theirs, 0));
        bio.result
            .map_err(|error| self.request(Side::Second, "write", body, error))?;
        Ok(size - body)
    }

    /// The last sectors of one of the two, from `body` to the end of SRC.
    fn last(&self, side: Side, body: u64) -> Result<Buf, Trouble> {
        let opened = match side {
            Side::First => self.source,
            Side::Second => self.target,
        };
        let sector = u64::from(opened.device.geometry().logical);
        let len = (self.source.size - body).next_multiple_of(sector);
        Blocking::new(opened.device.clone())
            .read(body, Buf::zeroed(short(len)))
            .map_err(|error| self.request(side, "read", body, error))
    }

    fn flush(&self) -> Result<(), Trouble> {
        let device = &self.target.device;
        if !device.geometry().volatile_cache {
            return Ok(());
        }
        // All writes have ended, so this flush covers them.
        let flush = Blocking::new(device.clone()).run(Bio::flush(0));
        let size = self.source.size;
        flush
            .result
            .map_err(|error| self.request(Side::Second, "flush what was written up", size, error))
    }

    fn verify(&self, body: u64, unit: u64) -> Result<(), Trouble> {
        let (source, target) = (&self.source.device, &self.target.device);
        let plan = Plan::of_both(source, target, 0..body, unit);
        let half = usize::from(self.args.requests).div_ceil(2);
        let mut equal = Equal::new(Bufs::new(half));
        let mut step = |at| self.progress.entry(self.source.size + at);
        let ran = pump::run(
            (source, target),
            plan,
            Bufs::new(half),
            &mut equal,
            (self.stop, &mut step),
        );
        ran.map_err(|failure| self.failed(failure))?;
        let found = equal.end().map_err(|failure| self.failed(failure))?;
        match found {
            Found::Differs(at) => Err(self.differs(at)),
            Found::Same if body == self.source.size => Ok(()),
            Found::Same => {
                let (ours, theirs) = (
                    self.last(Side::First, body)?,
                    self.last(Side::Second, body)?,
                );
                let bytes = short(self.source.size - body);
                let (a, b) = (&ours.as_slice()[..bytes], &theirs.as_slice()[..bytes]);
                let same = a.iter().zip(b).take_while(|(a, b)| a == b).count();
                match same == bytes {
                    true => Ok(()),
                    false => Err(self.differs(body + same as u64)),
                }
            }
        }
    }

    fn differs(&self, at: u64) -> Trouble {
        let CopyArgs { source, target, .. } = self.args;
        Reason::new(format!(
            "{target}: byte {at} read back is not that of {source}: either changed meanwhile, or a device loses data"
        ))
        .into()
    }

    fn request(
        &self,
        side: Side,
        doing: &'static str,
        at: u64,
        error: diorite_block::BioError,
    ) -> Trouble {
        self.failed(Failure::Request {
            side,
            doing,
            at,
            error,
        })
    }

    fn failed(&self, failure: Failure) -> Trouble {
        let name = match failure.side() {
            Some(Side::First) => &self.args.source,
            Some(Side::Second) => &self.args.target,
            None => {
                return Trouble {
                    reason: Reason::new("interrupted"),
                    code: INTERRUPTED,
                };
            }
        };
        let text = failure.to_string();
        Reason::new(format!("{name}: {}", crate::report::without_number(&text))).into()
    }
}

/// A length that is shorter than the largest sector.
fn short(len: u64) -> usize {
    debug_assert!(len <= LARGE as u64);
    usize::try_from(len).expect("a few sectors")
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
