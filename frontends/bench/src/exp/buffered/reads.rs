//! Buffered reads: of what is cached, against the kernel's, and of a cold file from end to end, against the raw device.
//!
//! Input: a bed, and disks of a known bandwidth. Output: `buf-cached`, `buf-seqread`; the latter also on memory, without a target.
//! Invariants: a run of cached reads begins with all bytes cached; none of what a run of cold ones reads is cached. Limits: the cached
//! range is half of diorite's budget, or 8 MiB.

use super::super::super::args::Options;
use super::super::super::bed::{Bed, BedOptions};
use super::super::super::calls::{until_end, within};
use super::super::super::drive::{Run, drive};
use super::super::super::failure::Failure;
use super::super::super::job::{Job, Rw};
use super::super::super::load::Rng;
use super::super::super::peer::{Kernel, Peer};
use super::super::super::raw::RawTarget;
use super::super::super::report::Report;
use super::super::super::rounds::{Arm, interleave};
use super::super::rows;
use diorite::{File, PageCache};
use diorite_block::buf::copy;
use diorite_block::{Buf, Shared};
use std::os::unix::fs::FileExt;

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;
/// Where large pieces of memory of the C library's allocator begin, behind a page boundary.
const MALLOC: usize = 16;
/// Memory in huge pages, as folios have it.
const PIECE: u64 = 2 * MIB;
/// A disk of 2 GB/s.
const SIM: &str = "latency=20us,parallel=4096,bandwidth=2000000000,seed=1";
/// Bytes per call of the cold reader.
const CALL: u64 = 128 << 10;

/// Random reads of what is cached, of one thread: of more than a processor caches, where memory takes most of the time, and of
/// less; into memory on a page boundary, and as an allocator gives it.
pub(super) fn cached(options: &Options, bed: &Bed, report: &mut Report) -> Result<(), Failure> {
    let most = PageCache::process().cache_bytes() / 2;
    within_range("buf-cached", (most, 0), options, bed, report)?;
    within_range("buf-cached-8m", (8 * MIB, 0), options, bed, report)?;
    within_range(
        "buf-cached-8m-malloc",
        (8 * MIB, MALLOC),
        options,
        bed,
        report,
    )
}

fn within_range(
    id: &str,
    (most, offset): (u64, usize),
    options: &Options,
    bed: &Bed,
    report: &mut Report,
) -> Result<(), Failure> {
    let region = bed.open(false)?.region;
    let len = region.len.min(most);
    let what = format!(
        "read 4k at random, {} MiB cached, 1 thread, into memory {offset} bytes behind a page",
        len / MIB
    );
    report.heading(&what)?;
    let job = Job {
        calls: Some(what),
        ..options.job(Rw::Randread, BLOCK as u32, 1)
    };
    let diorite = Arm::new("diorite, buffered", job.clone(), |job| {
        let open = bed.open(false)?;
        read_all(&open.file, region.file_pos, len)?;
        random(job, (len, offset), |pos, block| {
            Ok(open.file.read_bytes(region.file_pos + pos, block)?)
        })
    });
    if !options.asks_for_kernel(id, report)? {
        rows(report, &interleave(&[diorite], options.short_plan())?, bed)?;
        return Ok(());
    }
    let kernel = Kernel {
        name: "kernel's ext4, buffered",
        bed,
    };
    let kernel = kernel.arm(&job, |mounted, job| {
        let path = mounted.file(bed.file());
        let failed = |e| Failure::host(path.display(), e);
        let file = std::fs::File::open(&path).map_err(failed)?;
        let mut chunk = vec![0; MIB as usize];
        for pos in (0..len).step_by(chunk.len()) {
            file.read_at(&mut chunk, region.file_pos + pos)
                .map_err(failed)?;
        }
        random(job, (len, offset), |pos, block| {
            file.read_at(block, region.file_pos + pos).map_err(failed)
        })
    });
    let copy = Arm::new(
        "a copy of memory",
        options.job(Rw::Randread, BLOCK as u32, 1),
        |job| {
            let pieces = (0..len.div_ceil(PIECE)).map(|_| Shared::try_zeroed(PIECE as usize));
            let mut pieces: Vec<Shared> = pieces.collect::<Option<_>>().ok_or_else(no_memory)?;
            // Each byte is written once, so that the host has given the memory.
            let all = pieces.iter_mut().filter_map(Shared::bytes_mut);
            all.for_each(|bytes| bytes.fill(1));
            random(job, (len, offset), |pos, block| {
                let (piece, at) = (&pieces[(pos / PIECE) as usize], (pos % PIECE) as usize);
                copy(block, &piece.bytes()[at..at + block.len()]);
                Ok(std::hint::black_box(block).len())
            })
        },
    );
    let rounds = interleave(&[diorite, kernel, copy], options.plan());
    let Some(rounds) = report.unless_skipped(id, rounds)? else {
        return Ok(());
    };
    rows(report, &rounds, bed)?;
    report.ratio(id, &rounds.ratio(0, 1), bed.label(), bed.counts)?;
    // No read through a cache is faster than that.
    let bound = format!("{id}-of-copy");
    report.ratio(&bound, &rounds.ratio(0, 2), bed.label(), bed.counts)
}

fn no_memory() -> Failure {
    Failure::failed("the host has no memory for a copy")
}

fn random(
    job: &Job,
    (len, offset): (u64, usize),
    mut read: impl FnMut(u64, &mut [u8]) -> Result<usize, Failure>,
) -> Result<Run, Failure> {
    // Where it lies decides how fast the kernel copies.
    let mut memory = Buf::zeroed(2 * BLOCK as usize);
    let block = &mut memory.as_mut_slice()[offset..offset + BLOCK as usize];
    let mut rng = Rng::new(job.seed);
    within(job, || match read(rng.below(len / BLOCK) * BLOCK, block)? {
        done if done == block.len() => Ok(()),
        done => Err(Failure::failed(format!(
            "only {done} of 4096 bytes were read"
        ))),
    })
}

/// Reads a range through the cache.
pub(super) fn read_all(file: &File, from: u64, len: u64) -> Result<(), Failure> {
    let mut chunk = vec![0; CALL as usize];
    for pos in (0..len).step_by(chunk.len()) {
        let want = (len - pos).min(CALL) as usize;
        let done = file.read_bytes(from + pos, &mut chunk[..want])?;
        if done < want {
            return Err(Failure::failed(format!(
                "only {done} of {want} bytes were read at {}",
                from + pos
            )));
        }
    }
    Ok(())
}

/// Cold sequential reads beside the raw device: of the second half of a file, after a first half that fills the budget. The first use of
/// memory costs what the host takes for it, which is no part of reading.
pub(super) fn sequential(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let most = 4 * PageCache::process().cache_bytes();
    let small = BedOptions {
        file_size: options.file_size.min(most),
        ..options.bed_options()
    };
    let disk = Bed::sim(SIM, &small)?;
    beside_raw("buf-seqread", options, &disk, report)?;
    drop(disk);
    beside_raw("buf-seqread-mem", options, &Bed::mem(&small)?, report)
}

fn beside_raw(id: &str, options: &Options, bed: &Bed, report: &mut Report) -> Result<(), Failure> {
    let open = bed.open(false)?;
    report.device(bed.label(), &open.io_engine())?;
    report.heading("the cold half of a file, behind another half")?;
    let (start, len) = (open.region.file_pos, open.region.len / 2 / MIB * MIB);
    let job = options.job(Rw::Read, CALL as u32, 1).blocking();
    let buffered = Arm::new("diorite, buffered", job, |_| {
        let open = bed.open(false)?;
        read_all(&open.file, start, len)?;
        let calls = len.div_ceil(CALL);
        let run = until_end(&[()], calls, |()| read_all(&open.file, start + len, len))?;
        Ok(rate(run, len, calls))
    });
    // Direct reads, each block once.
    let raw = Job {
        batch_submit: 4,
        batch_complete: 1,
        ..options.job(Rw::Read, MIB as u32, 4).once()
    };
    let target = open.raw();
    let target = RawTarget {
        base: target.base + len,
        len,
        ..target
    };
    let raw = Arm::new("raw device", raw, |job| {
        let calls = job.blocks(len);
        Ok(rate(drive(&target, job)?, calls * MIB, calls))
    });
    let rounds = interleave(&[buffered, raw], options.plan())?;
    rows(report, &rounds, bed)?;
    report.ratio(id, &rounds.ratio(0, 1), bed.label(), bed.counts)
}

/// As rates of 128 KiB, whatever the length of a call was.
fn rate(run: Run, bytes: u64, calls: u64) -> Run {
    let bytes_per_second = run.iops * bytes as f64 / calls as f64;
    Run {
        iops: bytes_per_second / CALL as f64,
        bytes_per_second,
        ..run
    }
}
