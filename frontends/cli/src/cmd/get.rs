//! `diorite get`: files and whole directories out of an image, as they are in it.
//!
//! Input: an image, paths in it, a place on the host. Output: files on the host. Invariants: every host operation is relative to a
//! directory that this run opened, never follows a link that the image made, and takes one checked name, so no image makes a copy land
//! outside DEST; nothing that this process has open as a volume, a journal or below one is replaced or written to; a directory is copied
//! once for each PATH, so circles end. Limits: 76 MiB of buffers, 256 requests in flight; what was copied before an error stays.
//!
//! | module | takes -> gives |
//! |---|---|
//! | `place` | DEST and a PATH -> the host directory and the name to begin with, or what takes a file's bytes |
//! | `tree` | directories -> their entries, one after the other, on an explicit stack |
//! | `node` | one entry -> a file, directory, link, device |
//! | `crate::flow` | ranges of files -> requests in flight |
//! | `data` | what was read -> writes on the host |
//! | `links` | inodes with several names -> hard links |
//! | `meta` | owners, attributes, modes, times |

mod data;
mod links;
mod meta;
mod node;
mod place;
mod tree;

use crate::args::{GetArgs, Global};
use crate::flow::Flow;
use crate::image::{self, bytes};
use crate::names::{base_name, in_quotes};
use crate::progress::Progress;
use crate::report::{Reason, Report};
use crate::stream::Reader;
use data::Copying;
use diorite::{File, Volume};
use diorite_format::Ino;
use links::Links;
use meta::Meta;
use place::Place;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::collections::HashSet;
use std::path::Path;
use std::process::ExitCode;
use tree::{Dir, Names, Shown};

/// Runs the command.
pub(crate) fn run(global: &Global, args: &GetArgs) -> ExitCode {
    run_as(("get", ""), global, args)
}

/// Runs it for a command of another name, with what that writes before paths of the image.
pub(crate) fn run_as(
    (name, prefix): (&'static str, &str),
    global: &Global,
    args: &GetArgs,
) -> ExitCode {
    let mut report = Report::new(name, &args.img);
    let Some(volume) = image::open(&args.img, global, &mut report) else {
        return report.exit_code();
    };
    let _journal = global.journal.as_deref().and_then(image::keep);
    crate::process::prepare();
    let flow = match Flow::new(&volume) {
        Ok(flow) => flow,
        Err(error) => {
            report.image(error);
            return report.exit_code();
        }
    };
    let progress = Progress::new(args.quiet || place::is_stdout(&args.dest), &mut report);
    let mut copier = Copier {
        volume: &volume,
        prefix: args.verbose.then_some(prefix),
        flow,
        report,
        progress,
        meta: Meta::new(args),
        names: Names::default(),
        links: Links::of(args.paths.len()),
        seen: HashSet::new(),
        nameless: Path::new("/proc/self/fd").exists(),
    };
    copier.all(args);
    copier.progress.finish();
    copier.meta.summary(&copier.report);
    copier.report.exit_code()
}

/// Everything that one run shares.
struct Copier<'a> {
    volume: &'a Volume,
    /// What stands before paths of the image in lines of -v; none if there are none.
    prefix: Option<&'a str>,
    flow: Flow<Copying>,
    report: Report,
    progress: Progress,
    meta: Meta,
    names: Names,
    links: Links,
    /// Directories that this PATH led to.
    seen: HashSet<Ino>,
    /// A file that is open can be given a name.
    nameless: bool,
}

impl Copier<'_> {
    fn all(&mut self, args: &GetArgs) {
        for path in args.paths.iter().map(|p| bytes(p)) {
            match image::find(self.volume, path, false) {
                Ok(file) => {
                    self.progress.expect(bytes_in(self.volume, &file));
                    if let Err(reason) = self.one(path, file, args) {
                        self.report.host(reason);
                    }
                }
                Err(error) => self.report.file(path, error),
            }
            self.finish_all();
        }
    }

    /// One PATH of the command line, with everything below it. Fails if the host has no place for it.
    fn one(&mut self, path: &[u8], file: File, args: &GetArgs) -> Result<(), Reason> {
        // What another PATH led to is copied again: to another place, or over itself.
        self.seen.clear();
        let is_dir = file.metadata().is_dir();
        let dest = bytes(args.dest.as_os_str()).to_vec();
        match place::choose(&args.dest, path, args.paths.len() > 1, is_dir)? {
            Place::Whole(fd) => {
                let id = self.names.add_top(path, &fd, Shown::Itself(dest))?;
                let top = Dir::new(fd, id, None, Some(file.metadata().as_ref().clone()));
                self.walk(top, file.ino());
            }
            Place::Inside {
                parent,
                host,
                shown,
            } => {
                let name = base_name(path);
                let before = match name {
                    b"" => path,
                    name => &path[..path.len() - name.len()],
                };
                let id = self.names.add_top(before, &parent, Shown::Below(shown))?;
                let base = Dir::new(parent, id, None, None);
                if let Some(top) = self.item(&base, &host, name, &file) {
                    self.walk(top, file.ino());
                }
            }
            Place::Into(fd) => {
                if !file.metadata().is_file() {
                    let what = "only the contents of a file can be written into a device or a pipe";
                    return Err(Reason::new(format!("{}: {what}", args.dest.display())));
                }
                match into(self.volume, &file, &fd) {
                    Ok(()) if place::is_stdout(&args.dest) => {}
                    Ok(()) => self.tell(path, &dest),
                    Err(reason) => self.report.file(path, reason),
                }
            }
        }
        Ok(())
    }

    /// Says that a copy is there, if somebody wants to know.
    fn tell(&self, path: &[u8], host: &[u8]) {
        if let Some(prefix) = self.prefix {
            let from = in_quotes(&[prefix.as_bytes(), path].concat());
            self.report
                .done(format_args!("{from} -> {}", in_quotes(host)));
        }
    }
}

/// Writes the contents of a file into what takes bytes one after the other. Owner, mode and times stay those of that.
fn into(volume: &Volume, file: &File, out: &OwnedFd) -> Result<(), Reason> {
    Reader::new(volume)?.copy(file, &mut |mut bytes| {
        while !bytes.is_empty() {
            match rustix::io::write(out, bytes) {
                Ok(0) => return Err(Reason::host("cannot write the copy", Errno::IO)),
                Ok(n) => bytes = &bytes[n..],
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Reason::host("cannot write the copy", errno)),
            }
        }
        Ok(())
    })
}

/// How much is going to be copied, as far as that is known: of the root it is what the volume uses.
fn bytes_in(volume: &Volume, file: &File) -> Option<u64> {
    let (g, info) = (volume.superblock().geometry(), volume.superblock().info());
    let used = g.blocks_count().saturating_sub(g.free_blocks_count());
    let overhead = u64::from(info.overhead_clusters) * u64::from(g.cluster_ratio());
    if file.metadata().is_file() {
        return Some(file.metadata().blocks.saturating_mul(512).min(file.size()));
    }
    let blocks = used.saturating_sub(overhead);
    (file.ino() == Ino::ROOT).then(|| blocks.saturating_mul(u64::from(g.block_size())))
}
