//! `diorite compare`: compares the bytes of two devices, for any two locators.
//!
//! Input: two locators. Output: the place of the first difference. Invariants: ranges that both devices call zeros are not read; behind the
//! end of the shorter one there are zeros, unless sizes are compared, too. Limits: nothing behind the first difference is looked at, except
//! by requests in flight.

use crate::args::{CompareArgs, Global};
use crate::cmd::copy::ends::of;
use crate::copying::ranges::{self, Bufs, Equal, Failure, Found, Plan, Side};
use crate::images::device::{self, Opened};
use crate::output::Out;
use crate::output::progress::Progress;
use crate::output::report::{Reason, Report, without_number};
use diorite_block::Locator;
use serde_json::json;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

/// Exit codes: the two differ; they could not be compared.
const DIFFERENT: u8 = 1;
const TROUBLE: u8 = 2;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &CompareArgs) -> ExitCode {
    let mut report = Report::new("compare", &args.first);
    match compare(global, args, &mut report) {
        Ok(verdict) => {
            if !matches!(verdict, Verdict::Same) {
                report.failed(DIFFERENT);
            }
            tell(args, &verdict);
        }
        Err(reason) => {
            report.host(reason);
            report.failed(TROUBLE);
        }
    }
    report.exit_code()
}

/// The result.
enum Verdict {
    Same,
    /// The first byte that differs, from 0.
    Differs(u64),
    /// The sizes, which were to be the same.
    Sizes(u64, u64),
}

fn compare(global: &Global, args: &CompareArgs, report: &mut Report) -> Result<Verdict, Reason> {
    let options = device::options(global, false);
    let open = |text: &str| -> Result<Opened, Reason> {
        let locator = Locator::parse(text).map_err(|e| Reason::new(e.to_string()))?;
        device::open(&locator, &options).map_err(|e| of(text, &e))
    };
    let (first, second) = (open(&args.first)?, open(&args.second)?);
    for (name, opened) in [(&args.first, &first), (&args.second, &second)] {
        for doubt in opened.doubts() {
            report.warn(format_args!("{name}: {doubt}"));
        }
    }
    if args.strict && first.size != second.size {
        return Ok(Verdict::Sizes(first.size, second.size));
    }
    let progress = Progress::new(args.quiet, report);
    let found = bytes(args, (&first, &second), &progress);
    progress.finish();
    Ok(match found? {
        Found::Same => Verdict::Same,
        Found::Differs(at) => Verdict::Differs(at),
    })
}

fn bytes(
    args: &CompareArgs,
    (first, second): (&Opened, &Opened),
    progress: &Progress,
) -> Result<Found, Reason> {
    let unit = first.unit_with(second);
    let longest = first.size.max(second.size);
    progress.expect(Some(longest));
    let end = longest.checked_next_multiple_of(unit).unwrap_or(longest);
    let plan = Plan::of_both(&first.device, &second.device, 0..end, unit);
    let bufs = || Bufs::new(usize::from(args.requests));
    let mut equal = Equal::new(bufs()?);
    let devices = (&first.device, &second.device);
    let mut step = |at| progress.entry(at);
    let never = AtomicBool::new(false);
    let failed = |failure: Failure| {
        let name = match failure.side() {
            Some(Side::Second) => &args.second,
            _ => &args.first,
        };
        Reason::new(format!("{name}: {}", without_number(&failure.to_string())))
    };
    ranges::run(devices, plan, bufs()?, &mut equal, (&never, &mut step)).map_err(failed)?;
    equal.end().map_err(failed)
}

fn tell(args: &CompareArgs, verdict: &Verdict) {
    let CompareArgs { first, second, .. } = args;
    let mut out = Out::new();
    if args.json.on {
        let (at, sizes) = match *verdict {
            Verdict::Same => (None, None),
            Verdict::Differs(at) => (Some(at), None),
            Verdict::Sizes(a, b) => (None, Some([a, b])),
        };
        let same = matches!(verdict, Verdict::Same);
        out.json(&json!({
            "first": first, "second": second, "same": same, "offset": at, "sizes": sizes,
        }));
    } else if !args.quiet {
        match verdict {
            Verdict::Same => {}
            Verdict::Differs(at) => {
                out.line(format_args!(
                    "{first} {second} differ: byte {}",
                    at.saturating_add(1)
                ));
            }
            Verdict::Sizes(a, b) => {
                out.line(format_args!("{first} {second} differ: size {a}, {b}"));
            }
        }
    }
    out.finish();
}
