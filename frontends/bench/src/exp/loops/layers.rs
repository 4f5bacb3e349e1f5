//! The cost of layers: one loop device on the file, and three volumes inside each other, against the file and the raw device.
//!
//! Input: a bed. Output: `loop-layer`, `loop-layer3`, the same for overwrites. Invariant: all arms touch the same blocks. Limits: reads and
//! aligned overwrites; the three volumes are made in the bed's file, which one layer's rows overwrite before.

use super::super::super::args::Options;
use super::super::super::bed::{Bed, FILE, OpenBed};
use super::super::super::drive::drive;
use super::super::super::failure::Failure;
use super::super::super::image::{FileTarget, Region};
use super::super::super::job::Rw;
use super::super::super::raw::RawTarget;
use super::super::super::report::Report;
use super::super::super::rounds::{Arm, interleave};
use super::super::super::targets::least;
use super::super::Experiment;
use super::super::{file_arm, raw_arm, rows};
use super::nest::{self, Mark};
use diorite::{LoopDevice, OpenOptions, Policy, Volume};
use diorite_block::Device;
use std::sync::Arc;

const LOADS: [(&str, Rw); 2] = [("", Rw::Randread), ("-write", Rw::Randwrite)];
const MIB: u64 = 1 << 20;

pub(in super::super::super) const EXPERIMENT: Experiment = Experiment {
    name: "loop-layer",
    about: "A loop device on a file, and three volumes inside each other, against the file itself",
    goals: &[
        least(
            "loop-layer",
            0.95,
            "4k random read, depth 64: loop device on the file / the file",
        ),
        least(
            "loop-layer-write",
            0.95,
            "4k random overwrite, depth 64: loop device on the file / the file",
        ),
        least(
            "loop-layer3",
            0.85,
            "4k random read, depth 64: loop device three volumes deep / the file of the lowest",
        ),
        least(
            "loop-layer3-write",
            0.85,
            "4k random overwrite, depth 64: loop device three volumes deep / the file of the lowest",
        ),
    ],
    own: None,
    run,
};

fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    options.on_each(report, |bed, report| on(options, bed, report))
}

/// The same, on this bed. Leaves a volume in the bed's file.
pub(super) fn on(options: &Options, bed: &Bed, report: &mut Report) -> Result<(), Failure> {
    let open = bed.open(true)?;
    report.device(bed.label(), &open.io_engine())?;
    drop(open);
    for (name, rw) in LOADS {
        one(&format!("loop-layer{name}"), rw, options, bed, report)?;
    }
    let open = bed.open(true)?;
    let nested = Nested::make(&open)?;
    for (name, rw) in LOADS {
        let id = format!("loop-layer3{name}");
        three(&id, rw, options, (bed, &open, &nested), report)?;
    }
    nested.close()?;
    Ok(open.volume.close()?)
}

fn one(id: &str, rw: Rw, options: &Options, bed: &Bed, report: &mut Report) -> Result<(), Failure> {
    let open = bed.open(true)?;
    let job = options.job(rw, 4096, 64);
    let name = format!("{}!{}", bed.label(), bed.file());
    let looped = RawTarget {
        base: open.region.file_pos,
        len: open.region.len,
        ..RawTarget::whole(Arc::new(LoopDevice::new(open.file.clone(), name)))
    };
    let arms = [
        file_arm("file in image", job.clone(), &open, Policy::DIORITE),
        Arm::new("loop device on the file", job.clone(), |job| {
            drive(&looped, job)
        }),
        raw_arm(job, &open),
    ];
    let rounds = interleave(&arms, options.plan())?;
    rows(report, &rounds, bed)?;
    report.ratio(id, &rounds.ratio(1, 0), bed.label(), bed.counts)?;
    report.ratio(
        &format!("{id}-raw"),
        &rounds.ratio(1, 2),
        bed.label(),
        bed.counts,
    )
}

/// The file of the lowest volume, and a loop device on the file of the highest of three.
fn three(
    id: &str,
    rw: Rw,
    options: &Options,
    (bed, open, nested): (&Bed, &OpenBed, &Nested),
    report: &mut Report,
) -> Result<(), Failure> {
    let job = options.job(rw, 4096, 64);
    let lowest = FileTarget {
        base: nested.lowest,
        len: nested.len,
        ..open.in_file()
    };
    let highest = RawTarget {
        base: nested.highest,
        len: nested.len,
        ..RawTarget::whole(nested.device.clone())
    };
    let arms = [
        Arm::new("file in the lowest volume", job.clone(), |job| {
            drive(&lowest, job)
        }),
        Arm::new("loop, three volumes deep", job, |job| drive(&highest, job)),
    ];
    let rounds = interleave(&arms, options.plan())?;
    rows(report, &rounds, bed)?;
    report.ratio(id, &rounds.ratio(1, 0), bed.label(), bed.counts)
}

/// Two volumes in the file of a bed's volume, one in the other, and a loop device on the highest one's file.
struct Nested {
    /// The higher ones first.
    volumes: Vec<Volume>,
    device: Arc<dyn Device>,
    /// The same bytes: their place on the device, and in the file of the lowest volume.
    highest: u64,
    lowest: u64,
    len: u64,
}

impl Nested {
    fn make(open: &OpenBed) -> Result<Nested, Failure> {
        let first = Layer::make(&open.file)?;
        let second = Layer::make(&first.file)?;
        // The second volume's bytes are those of the first one's file.
        let (place, below) = (second.region.device_pos, first.region);
        let skipped = place.checked_sub(below.file_pos).filter(|n| *n < below.len);
        let skipped = skipped.ok_or_else(|| {
            Failure::unavailable("the file of a volume in the bed's file is in several pieces")
        })?;
        Ok(Nested {
            device: nest::looped(&second.file),
            highest: second.region.file_pos,
            lowest: below.device_pos + skipped,
            len: second.region.len.min(below.len - skipped),
            volumes: vec![second.volume, first.volume],
        })
    }

    fn close(self) -> Result<(), Failure> {
        drop(self.device);
        let close = |volume: Volume| Ok(volume.close()?);
        self.volumes.into_iter().try_for_each(close)
    }
}

/// A volume in a file, with a file that takes most of it.
struct Layer {
    volume: Volume,
    file: diorite::File,
    region: Region,
}

impl Layer {
    fn make(in_file: &diorite::File) -> Result<Layer, Failure> {
        let device = nest::looped(in_file);
        nest::format(&device)?;
        let volume = Volume::open_device(device, &OpenOptions::writable())?;
        let space = volume.space();
        let len = space.available * u64::from(space.block_size) / 16 * 15 / MIB * MIB;
        if len == 0 {
            let what = "a volume in the bed's file has no room: choose a larger --file-size";
            return Err(Failure::unavailable(what));
        }
        let file = nest::marked(&volume, FILE, len, Mark { file: 0, run: 0 })?;
        let region = Region::longest(&volume, &file)?;
        Ok(Layer {
            volume,
            file,
            region,
        })
    }
}
