//! `resize2fs`: grow, shrink and minimise with the words and the answers of resize2fs.
//!
//! Input: its command line. Output: its lines, which scripts read: how large the file system becomes and is, or can become, in blocks.
//! Invariants: those of grow and shrink; a word that is not understood is refused by name. Limits: -d and -S are
//! accepted and change nothing; 'run e2fsck first' is said of an image with recorded errors, not of each that was mounted
//! since its last check: what is to move is checked anyway. Source: man 8 resize2fs; its answers by experiment with resize2fs 1.47.

use super::{Shown, in_rounds, larger, safe, shown, squeezed, with_progress};
use crate::args::{Global, ResizeArgs};
use crate::images::image;
use crate::output::report::{Reason, Report};
use crate::output::{Out, complain_best_effort};
use diorite::Volume;
use diorite_format::features::Incompat;
use std::process::ExitCode;

/// What is to be done with a volume.
enum Wish {
    /// Nothing; the line says why.
    Nothing(String),
    Larger(u64),
    Smaller(u64),
    Least,
    /// 64bit, on or off.
    Width(bool),
}

/// Runs the command.
pub(crate) fn run(global: &Global, args: &ResizeArgs) -> ExitCode {
    let mut report = Report::new("resize2fs", &args.img).with_undo(global.undo.as_ref());
    let Some(volume) = image::open(&args.img, global, &mut report) else {
        return report.exit_code();
    };
    if args.print {
        let geometry = volume.superblock().geometry();
        let bytes = safe(&volume, volume.least_bytes(0)).min(geometry.volume_bytes());
        let blocks = bytes / u64::from(geometry.block_size());
        line(format!(
            "Estimated minimum size of the filesystem: {blocks}"
        ));
        image::close(volume, &mut report);
        return report.exit_code();
    }
    let block = volume.superblock().block_size();
    let wish = wish(args, &volume);
    image::close(volume, &mut report);
    let done = match wish {
        Ok(Wish::Nothing(why)) => {
            complain_best_effort(why);
            return report.exit_code();
        }
        Ok(Wish::Larger(bytes)) => {
            announce(&args.img, bytes, block);
            let Some(volume) = image::open_for_writing(&args.img, global, &mut report) else {
                return report.exit_code();
            };
            let given = args.size.as_ref().map(|_| bytes);
            let how = (!args.progress, &mut report);
            larger(global, (volume, &args.img), given, how).map(Some)
        }
        Ok(Wish::Width(wide)) => {
            line(format!("Converting the filesystem to {}-bit.", bits(wide)));
            let Some(volume) = image::open_for_writing(&args.img, global, &mut report) else {
                return report.exit_code();
            };
            let now = shown(&volume, volume.superblock().geometry().volume_bytes());
            let size = u64::from(block);
            let done = with_progress((!args.progress, &mut report), size, |progress| {
                volume.set_64bit(wide, progress)
            });
            done.map(|()| Some(now)).map_err(Reason::from)
        }
        Ok(Wish::Smaller(bytes)) => {
            announce(&args.img, bytes, block);
            let mut target = |_: &Volume| Ok(bytes);
            in_rounds(
                global,
                (&args.img, !args.progress),
                &mut report,
                &mut target,
            )
        }
        Ok(Wish::Least) => {
            let mut target = |volume: &Volume| Ok(volume.least_bytes(0));
            let how = (&*args.img, !args.progress);
            in_rounds(global, how, &mut report, &mut target)
                .and_then(|done| squeezed(global, how, &mut report, (done, &|_| Ok(0))))
        }
        Err(why) => Err(why),
    };
    match done {
        Ok(Some(shown)) => line(now(&args.img, &shown)),
        Ok(None) => {}
        Err(why) => report.image(why),
    }
    report.exit_code()
}

/// What the command line wants of this volume.
fn wish(args: &ResizeArgs, volume: &Volume) -> Result<Wish, Reason> {
    let sb = volume.superblock();
    let now = sb.geometry().volume_bytes();
    let size = u64::from(sb.block_size());
    if args.to_64bit || args.to_32bit {
        return width(args.to_64bit, volume);
    }
    if sb.has_error_state() && !args.force {
        let img = &args.img;
        return Err(Reason::new(format!("Please run 'e2fsck -f {img}' first.")));
    }
    if args.minimum {
        return Ok(Wish::Least);
    }
    let wanted = match &args.size {
        Some(text) => bytes_of(text, size)?,
        None => volume.device().geometry().size,
    };
    let wanted = wanted - wanted % size;
    if wanted == now {
        let (blocks, unit) = (now / size, unit(sb.block_size()));
        return Ok(Wish::Nothing(format!(
            "The filesystem is already {blocks} ({unit}) blocks long.  Nothing to do!\n"
        )));
    }
    if wanted > now {
        return Ok(Wish::Larger(wanted));
    }
    let least = volume.tightest_bytes(0);
    if wanted < least && !args.force {
        let blocks = least / size;
        return Err(Reason::new(format!(
            "New size smaller than minimum ({blocks})"
        )));
    }
    Ok(Wish::Smaller(wanted))
}

/// Whether 64bit can be switched, as resize2fs answers.
fn width(wide: bool, volume: &Volume) -> Result<Wish, Reason> {
    let sb = volume.superblock();
    let incompat = sb.features().incompat;
    if incompat.has(Incompat::BIT64) == wide {
        let why = format!("The filesystem is already {}-bit.\n", bits(wide));
        return Ok(Wish::Nothing(why));
    }
    if !wide && sb.geometry().blocks_count() > u64::from(u32::MAX) {
        return Err(Reason::new(
            "Cannot change the 64bit feature on a filesystem that is larger than 2^32 blocks.",
        ));
    }
    if wide && !incompat.has(Incompat::EXTENTS) {
        return Err(Reason::new(
            "Please enable the extents feature with tune2fs before enabling the 64bit feature.",
        ));
    }
    Ok(Wish::Width(wide))
}

fn bits(wide: bool) -> u32 {
    if wide { 64 } else { 32 }
}

/// A size as resize2fs reads it: blocks, or with `s` sectors of 512 bytes, or with K, M, G or T that many bytes.
fn bytes_of(text: &str, block: u64) -> Result<u64, Reason> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match &text[digits.len()..] {
        "" => Some(block),
        "s" | "S" => Some(512),
        "k" | "K" => Some(1 << 10),
        "m" | "M" => Some(1 << 20),
        "g" | "G" => Some(1 << 30),
        "t" | "T" => Some(1 << 40),
        _ => None,
    };
    let number = digits
        .bytes()
        .all(|b| b.is_ascii_digit())
        .then(|| digits.parse::<u64>().ok());
    let bytes = unit
        .zip(number.flatten())
        .and_then(|(unit, number)| number.checked_mul(unit));
    bytes.ok_or_else(|| Reason::new(format!("Invalid new size: {text}")))
}

fn announce(img: &str, bytes: u64, block: u32) {
    let (blocks, unit) = (bytes / u64::from(block), unit(block));
    line(format!(
        "Resizing the filesystem on {img} to {blocks} ({unit}) blocks."
    ));
}

fn now(img: &str, shown: &Shown) -> String {
    let (blocks, unit) = (
        shown.after / u64::from(shown.block_size),
        unit(shown.block_size),
    );
    format!("The filesystem on {img} is now {blocks} ({unit}) blocks long.\n")
}

/// The size of blocks as in `4k`.
fn unit(block: u32) -> String {
    format!("{}k", block >> 10)
}

fn line(text: String) {
    let mut out = Out::new();
    out.line(text);
    out.finish();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_by_resize2fs() {
        let of = |text| bytes_of(text, 4096).ok();
        for (text, bytes) in [
            ("16384", Some(16384 * 4096)),
            ("200000s", Some(200_000 * 512)),
            ("5k", Some(5 << 10)),
            ("5M", Some(5 << 20)),
            ("5G", Some(5 << 30)),
            ("5T", Some(5 << 40)),
            ("99999999T", None),
            ("5P", None),
            ("5MB", None),
            ("+5M", None),
            ("-5", None),
            ("", None),
            ("M", None),
            ("nonsense", None),
        ] {
            assert_eq!(of(text), bytes, "{text}");
        }
    }
}
