//! Opens two images, one for reading and one for writing. Both may be the same image, or one may be inside the other, or both
//! inside a third.
//!
//! Input: two locators. Output: a [`Pair`]. Invariants: a volume that holds both images is opened once; only the destination
//! and the volumes that hold it are opened for writing; all volumes that were written to are closed, the innermost first.
//! Limits: the same image under two names is recognised by the host's file and the offset of the file system in it. A volume
//! that only holds others is opened without a named journal, as by a locator with `!`.

use crate::args::Global;
use crate::cmd::put::Nesting;
use crate::images::image;
use crate::images::location::{Location, Step};
use crate::output::report::Report;
use diorite::{Error, Volume};
use diorite_block::Locator;
use diorite_block::locator::FileLocator;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

/// See the module.
pub(super) struct Pair {
    pub(super) source: Volume,
    pub(super) dest: Volume,
    /// Whether the two are one image, or one is in a file of the other.
    pub(super) nesting: Nesting,
    /// The volumes that hold the destination, the outermost first.
    below: Vec<Volume>,
}

impl Pair {
    /// Opens both images; none, with messages, if that fails.
    pub(super) fn open(
        (from, to): (&str, &str),
        global: &Global,
        report: &mut Report,
    ) -> Option<Pair> {
        match common(from, to) {
            Some((base, inner)) => Pair::on_one(&base, inner, (from, to), global, report),
            None => {
                let source = opened(from, report, |report| image::open(from, global, report))?;
                let dest = image::open_for_writing(to, global, report)?;
                Some(Pair {
                    source,
                    dest,
                    nesting: Nesting::Apart,
                    below: Vec::new(),
                })
            }
        }
    }

    /// Opens images that are both in one volume, or of which one is that volume.
    fn on_one(
        base: &Locator,
        (from_inside, to_inside): (Inside, Inside),
        (from, to): (&str, &str),
        global: &Global,
        report: &mut Report,
    ) -> Option<Pair> {
        // A named journal belongs to the two images, and to no volume that only holds others.
        let holder = Global {
            journal: None,
            ..global.clone()
        };
        let of = |from_rest: &[Step], to_rest: &[Step]| match (from_rest, to_rest) {
            ([_, ..], [_, ..]) => &holder,
            _ => global,
        };
        let base = base.to_string();
        let mut level = image::open_for_writing(&base, of(&from_inside, &to_inside), report)?;
        let (mut from_inside, mut to_inside) = (&from_inside[..], &to_inside[..]);
        let mut below = Vec::new();
        while let ([a, from_rest @ ..], [b, to_rest @ ..]) = (from_inside, to_inside) {
            let inode = |step: &Step| level.resolve(&step.path, true).ok();
            if inode(a).is_none() || inode(a) != inode(b) || a.part != b.part {
                break;
            }
            (from_inside, to_inside) = (from_rest, to_rest);
            let next = inside(&level, b, true, of(from_rest, to_rest));
            below.push(level);
            level = failed(to, report, next)?;
        }
        let file = |step: &Step| level.resolve(&step.path, true).ok();
        let nesting = match (from_inside, to_inside) {
            ([], []) => Nesting::Same,
            ([], [step, ..]) => file(step).map_or(Nesting::Apart, Nesting::DestInSource),
            ([step, ..], []) => file(step).map_or(Nesting::Apart, Nesting::SourceInDest),
            _ => Nesting::Apart,
        };
        let last = |is_last: bool| if is_last { global } else { &holder };
        let mut source = level.clone();
        for (n, step) in (1..).zip(from_inside) {
            let next = inside(&source, step, false, last(n == from_inside.len()));
            source = opened(from, report, |report| failed(from, report, next))?;
        }
        let mut dest = level;
        for (n, step) in (1..).zip(to_inside) {
            let next = inside(&dest, step, true, last(n == to_inside.len()));
            below.push(dest);
            dest = failed(to, report, next)?;
        }
        Some(Pair {
            source,
            dest,
            nesting,
            below,
        })
    }
}

/// Closes both, which makes the changes durable; reports a failure.
pub(super) fn close(pair: Pair, report: &mut Report) {
    let Pair {
        source,
        dest,
        below,
        ..
    } = pair;
    drop(source);
    image::close(dest, report);
    for volume in below.into_iter().rev() {
        image::close(volume, report);
    }
}

/// Runs a function with a report whose messages are about another image.
fn opened(
    img: &str,
    report: &mut Report,
    open: impl FnOnce(&mut Report) -> Option<Volume>,
) -> Option<Volume> {
    let mut own = Report::new(super::NAME, img);
    let volume = open(&mut own);
    report.failed(u8::from(own.has_failed()));
    volume
}

fn failed(img: &str, report: &mut Report, volume: Result<Volume, Error>) -> Option<Volume> {
    volume
        .map_err(|error| image::refused(img, report, &error))
        .ok()
}

/// Opens the image in a file of a volume.
fn inside(volume: &Volume, step: &Step, write: bool, global: &Global) -> Result<Volume, Error> {
    let options = image::options(global).write(write);
    volume.open_part_inside(&step.path, &step.part, &options)
}

/// Images inside each other, the outermost first.
type Inside = Vec<Step>;

/// The image on the host that holds both, or is one of them, and the paths inside it; none if the images have nothing in
/// common.
fn common(from: &str, to: &str) -> Option<(Locator, (Inside, Inside))> {
    let split = |text: &str| Some(Location::of(Locator::parse(text).ok()?));
    let (from, to) = (split(from)?, split(to)?);
    let (Locator::File(one), Locator::File(other)) = (&from.base, &to.base) else {
        return None;
    };
    (begins(one)? == begins(other)?).then_some((to.base, (from.inside, to.inside)))
}

/// The identity of the file or device of the host, and the offset of the file system in it.
fn begins(file: &FileLocator) -> Option<(u64, u64, u64)> {
    let found = file.path.metadata().ok()?;
    let start = match file.part {
        None => 0,
        Some(number) => {
            let table = FileLocator {
                part: None,
                ..file.clone()
            };
            let table = table.partitions().ok()??;
            table.parts.iter().find(|p| p.number == number)?.start
        }
    };
    let at = file.offset.checked_add(start)?;
    Some(match found.file_type().is_block_device() {
        true => (found.rdev(), 0, at),
        false => (found.dev(), found.ino(), at),
    })
}
