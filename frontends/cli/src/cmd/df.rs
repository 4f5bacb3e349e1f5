//! `diorite df`: prints how much of an image is in use.
//!
//! Input: an image. Output: a header and a line, as df(1) prints them, or a JSON object. Invariant: the numbers are those of
//! the kernel's statvfs. Limits: the available space is that of users who may not use the reserved blocks.

use crate::args::{DfArgs, Global};
use crate::images::image;
use crate::output::Out;
use crate::output::report::Report;
use crate::words::sizes::human;
use diorite::Volume;
use serde_json::json;
use std::process::ExitCode;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &DfArgs) -> ExitCode {
    let mut report = Report::new("df", &args.img);
    if let Some(volume) = image::open(&args.img, global, &mut report) {
        show(args, &Counts::of(&volume));
    }
    report.exit_code()
}

/// The space of a volume in bytes, and its inodes.
struct Counts {
    size: u64,
    free: u64,
    available: u64,
    inodes: u64,
    free_inodes: u64,
    block: u32,
}

impl Counts {
    fn of(volume: &Volume) -> Counts {
        let space = volume.space();
        let block = u64::from(space.block_size);
        Counts {
            size: space.blocks.saturating_mul(block),
            free: space.free.saturating_mul(block),
            available: space.available.saturating_mul(block),
            inodes: space.inodes,
            free_inodes: space.free_inodes,
            block: space.block_size,
        }
    }

    fn used(&self) -> u64 {
        self.size.saturating_sub(self.free)
    }

    fn used_inodes(&self) -> u64 {
        self.inodes.saturating_sub(self.free_inodes)
    }
}

/// The percentage of the usable space that is used, rounded up.
fn percent(used: u64, available: u64) -> Option<u64> {
    let whole = u128::from(used) + u128::from(available);
    let percent = (u128::from(used) * 100).checked_div(whole)?;
    let rest = u128::from(used) * 100 % whole;
    u64::try_from(percent + u128::from(rest > 0)).ok()
}

fn show(args: &DfArgs, counts: &Counts) {
    let mut out = Out::new();
    let (used, used_inodes) = (counts.used(), counts.used_inodes());
    if args.json {
        out.json(&json!({
            "image": args.img,
            "size": counts.size,
            "used": used,
            "free": counts.free,
            "available": counts.available,
            "use_percent": percent(used, counts.available),
            "inodes": counts.inodes,
            "inodes_used": used_inodes,
            "inodes_free": counts.free_inodes,
            "block_size": counts.block,
        }));
    } else if args.inodes {
        let shown = [counts.inodes, used_inodes, counts.free_inodes];
        let use_percent = percent(used_inodes, counts.free_inodes);
        let titles = ["Inodes", "IUsed", "IFree", "IUse%"];
        table(
            args,
            titles,
            shown.map(|n| amount(args, n, 1)),
            use_percent,
            &mut out,
        );
    } else {
        let shown = [counts.size, used, counts.available];
        let titles = match args.human_readable {
            true => ["Size", "Used", "Avail", "Use%"],
            false => ["1K-blocks", "Used", "Available", "Use%"],
        };
        let use_percent = percent(used, counts.available);
        table(
            args,
            titles,
            shown.map(|n| amount(args, n, 1024)),
            use_percent,
            &mut out,
        );
    }
    out.finish();
}

fn amount(args: &DfArgs, number: u64, unit: u64) -> String {
    match args.human_readable {
        true => human(number),
        false => number.div_ceil(unit).to_string(),
    }
}

/// Prints a header and one line.
fn table(
    args: &DfArgs,
    titles: [&str; 4],
    shown: [String; 3],
    percent: Option<u64>,
    out: &mut Out,
) {
    let [a, b, c] = shown;
    let percent = percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent}%"));
    let cells = [a, b, c, percent];
    let mut lines = [
        format!("{:<1$}", "Filesystem", args.img.len()),
        format!("{:<10}", args.img),
    ];
    for (title, cell) in titles.iter().zip(&cells) {
        let width = title.len().max(cell.len());
        lines[0] += &format!(" {title:>width$}");
        lines[1] += &format!(" {cell:>width$}");
    }
    lines.iter().for_each(|line| out.line(line));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percents_are_rounded_up() {
        for (used, available, shown) in [
            (0, 0, None),
            (0, 5, Some(0)),
            (1, 999, Some(1)),
            (50, 50, Some(50)),
            (u64::MAX, u64::MAX, Some(50)),
            (7, 0, Some(100)),
        ] {
            assert_eq!(percent(used, available), shown);
        }
    }
}
