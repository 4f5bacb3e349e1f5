//! The NBD server beside qemu-nbd and nbdkit, at Unix sockets, with clients of others: fio and nbdcopy.
//!
//! | file | what |
//! |---|---|
//! | `server` | the servers as programs: this one, qemu-nbd, nbdkit |
//! | `empty` | a server that does nothing: the most that the client and the socket permit |
//!
//! Input: files in memory, made here. Output: `nbd-qemu`, `nbd-nbdkit`, the same for writes, `nbd-of-empty`; `nbdcopy-qemu`,
//! `nbdcopy-nbdkit`; `nbd-inside`; each `-of-empty` too. Invariants: all servers serve the same file, one at a time, since each locks it; a
//! run starts a server and ends it, and only the client's own time counts. Limits: what is not installed is skipped.

mod empty;
mod server;

use super::super::args::Options;
use super::super::bed::{FILE, Image, Scratch, make_image, write_random};
use super::super::drive::Run;
use super::super::failure::Failure;
use super::super::job::{Job, Rw};
use super::super::peer::Peer;
use super::super::report::Report;
use super::super::rounds::{Arm, interleave};
use super::super::targets::least;
use super::super::{fio, tool};
use super::Experiment;
use empty::Nothing;
use server::{Program, Server};
use std::fs::{self, File};
use std::path::Path;
use std::time::Instant;

/// The copied image at most; half of it is holes.
const COPIED: u64 = 4 << 30;
/// Its pieces, data and holes in turn.
const PIECE: u64 = 1 << 20;
const LABEL: &str = "file on tmpfs";
const INSIDE: &str = "image on tmpfs";

pub(in super::super) const EXPERIMENT: Experiment = Experiment {
    name: "nbd",
    about: "The NBD server, against qemu-nbd, nbdkit and a server that does nothing: fio and nbdcopy as clients",
    goals: &[
        least(
            "nbd-qemu",
            3.0,
            "4k random read over a Unix socket, fio at depth 64: diorite / qemu-nbd, io_uring, no cache",
        ),
        least("nbd-qemu-write", 3.0, "4k random writes, the same two"),
        least("nbd-nbdkit", 2.0, "4k random read, diorite / nbdkit file"),
        least("nbd-nbdkit-write", 2.0, "4k random writes, the same two"),
        least(
            "nbdcopy-qemu",
            1.5,
            "nbdcopy of 4 GiB, half of it holes, to null: diorite / qemu-nbd",
        ),
        least("nbdcopy-nbdkit", 1.2, "the same, diorite / nbdkit file"),
        least(
            "nbd-inside",
            5.0,
            "4k random read of a file in an ext4 image, 4 connections: diorite / nbdkit's ext2 filter",
        ),
    ],
    own: None,
    run,
};

fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    if options.image.is_some() {
        return Err(Failure::usage(
            "this experiment makes files of its own: --image is not for it",
        ));
    }
    let dir = Scratch::in_memory()?;
    report.device(LABEL, "fio and nbdcopy over a Unix socket")?;
    let parts: [(&str, Part); 3] = [
        ("nbd", requests),
        ("nbdcopy", copies),
        ("nbd-inside", inside),
    ];
    for (id, part) in parts {
        let done = part(options, &dir, report);
        report.unless_skipped(id, done)?;
    }
    Ok(())
}

type Part = fn(&Options, &Scratch, &mut Report) -> Result<(), Failure>;

/// fio at depth 64 on one connection.
fn requests(options: &Options, dir: &Scratch, report: &mut Report) -> Result<(), Failure> {
    let path = dir.path().join("disk");
    write_random(&path, options.file_size, false)?;
    let empty = Nothing::new(&dir.path().join("empty.sock"), options.file_size)?;
    let disk = path.display().to_string();
    for (suffix, rw) in [("", Rw::Randread), ("-write", Rw::Randwrite)] {
        let job = options.job(rw, 4096, 64);
        report.heading(&format!("4k {}, depth 64", rw.word()))?;
        let by_fio = |uri: &str, job: &Job| by_fio(uri, options.file_size, job);
        let arm = |program| served(program, &job, (dir, &disk), by_fio);
        let nothing = (&empty).arm(&job, |uri, job| by_fio(uri, job));
        let arms = [
            arm(Program::Diorite),
            arm(Program::Qemu),
            arm(Program::NbdKit),
            nothing,
        ];
        let rounds = interleave(&arms, options.plan())?;
        report.rows(&rounds, LABEL)?;
        for (id, under) in [("qemu", 1), ("nbdkit", 2), ("of-empty", 3)] {
            let id = format!("nbd-{id}{suffix}");
            report.ratio(&id, &rounds.ratio(0, under), LABEL, true)?;
        }
    }
    fs::remove_file(&path).map_err(|e| Failure::host("cannot remove the served file", e))
}

/// A client's run on what a program serves.
fn served<'a>(
    program: Program,
    job: &Job,
    (dir, path): (&'a Scratch, &'a str),
    client: impl Fn(&str, &Job) -> Result<Run, Failure> + 'a,
) -> Arm<'a> {
    let dir = dir.path();
    let server = Server { program, dir, path };
    server.arm(job, move |served, job| client(&served.uri(), job))
}

fn by_fio(uri: &str, len: u64, job: &Job) -> Result<Run, Failure> {
    Ok(Run::of_rate(fio::run_nbd(uri, len, job)?, job))
}

/// nbdcopy of a sparse image to nowhere.
fn copies(options: &Options, dir: &Scratch, report: &mut Report) -> Result<(), Failure> {
    let size = COPIED.min(4 * options.file_size);
    let path = dir.path().join("sparse");
    half_sparse(&path, size)?;
    let disk = path.display().to_string();
    let job = Job {
        calls: Some(format!("nbdcopy of {} MiB, half of it holes", size >> 20)),
        ..Job::new(Rw::Read, 4096, 1)
    };
    report.heading("nbdcopy to null:")?;
    let arm = |program| served(program, &job, (dir, &disk), |uri, _| copy(uri));
    let arms = [Program::Diorite, Program::Qemu, Program::NbdKit].map(arm);
    let rounds = interleave(&arms, options.plan())?;
    report.rows(&rounds, LABEL)?;
    for (id, under) in [("nbdcopy-qemu", 1), ("nbdcopy-nbdkit", 2)] {
        report.ratio(id, &rounds.ratio(0, under), LABEL, size == COPIED)?;
    }
    fs::remove_file(&path).map_err(|e| Failure::host("cannot remove the served file", e))
}

/// Copies a second.
fn copy(uri: &str) -> Result<Run, Failure> {
    let started = Instant::now();
    tool::run("nbdcopy", [uri, "null:"])?;
    Ok(Run::of_calls(1.0 / started.elapsed().as_secs_f64()))
}

/// A file whose pieces are data and holes in turn.
fn half_sparse(path: &Path, size: u64) -> Result<(), Failure> {
    let context = |e| Failure::host(format_args!("cannot make {}", path.display()), e);
    write_random(path, size, false)?;
    let file = File::options().write(true).open(path).map_err(context)?;
    let punch = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    for at in (PIECE..size).step_by(2 * PIECE as usize) {
        rustix::fs::fallocate(&file, punch, at, PIECE).map_err(|e| context(e.into()))?;
    }
    Ok(())
}

/// fio on a file inside an image, four connections.
fn inside(options: &Options, dir: &Scratch, report: &mut Report) -> Result<(), Failure> {
    let len = options.file_size.min(256 << 20);
    let image = make_image(dir, Image::with_file(2 * len + (64 << 20), len))?;
    let path = format!("{}!{FILE}", image.display());
    let job = options.job(Rw::Randread, 4096, 16).jobs(4);
    report.heading("4k randread of a file in an ext4 image, 4 connections, depth 16 each")?;
    let by_many = |uri: &str, job: &Job| by_many(uri, len, job);
    let arm = |program| served(program, &job, (dir, &path), by_many);
    let empty = Nothing::new(&dir.path().join("empty-inside.sock"), len)?;
    let nothing = (&empty).arm(&job, |uri, job| by_many(uri, job));
    let arms = [arm(Program::Diorite), arm(Program::NbdKitExt2), nothing];
    let rounds = interleave(&arms, options.plan())?;
    report.rows(&rounds, INSIDE)?;
    report.ratio("nbd-inside", &rounds.ratio(0, 1), INSIDE, true)?;
    report.ratio("nbd-inside-of-empty", &rounds.ratio(0, 2), INSIDE, true)
}

/// Every thread reads as much as the file has.
fn by_many(uri: &str, len: u64, job: &Job) -> Result<Run, Failure> {
    Ok(Run::of_rate(fio::run_nbd_many(uri, len, len, job)?, job))
}
