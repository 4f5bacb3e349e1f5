//! `diorite get`: copies files and whole directories out of an image, with their metadata.
//!
//! Input: an image, paths in it, a place on the host. Output: files on the host. Invariants: every host operation is relative
//! to a directory that this run opened, never follows a link that the image made, and takes one checked name, so that no image
//! can make a copy land outside DEST; a file or device that this process has open for a volume or a journal is neither replaced
//! nor written to; a directory is copied once for each PATH, so that cycles end. Limits: 76 MiB of buffers, 256 requests in
//! flight; copies made before an error stay.
//!
//! | module | takes -> gives |
//! |---|---|
//! | `place` | DEST and a PATH -> the host directory and name of the copy, or a descriptor for a file's bytes |
//! | `tree` | directories -> their entries, one after the other, on an explicit stack |
//! | `node` | one entry -> a file, directory, link or device on the host |
//! | `crate::copying::files` | ranges of files -> requests in flight |
//! | `data` | data that was read -> writes on the host |
//! | `links` | inodes with several names -> hard links |
//! | `meta` | owners, attributes, modes, times |

mod data;
mod links;
mod meta;
mod node;
mod place;
mod tree;

use crate::args::{GetArgs, Global};
use crate::copying::files::{Flow, MEMORY};
use crate::copying::in_order::Reader;
use crate::host::process::{check_memory, has_procfs};
use crate::images::image::{self, bytes};
use crate::output::printed;
use crate::output::progress::Progress;
use crate::output::report::{Reason, Report};
use crate::words::names::{above, in_quotes, last_name};
use data::Copying;
use diorite::{File, Volume};
use diorite_block::reported_at_close;
use diorite_format::Ino;
use links::Links;
use meta::Meta;
use place::Place;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::collections::HashSet;
use std::process::ExitCode;
use tree::{Dir, Names, Shown};

/// Runs the command.
pub(crate) fn run(global: &Global, args: &GetArgs) -> ExitCode {
    run_as(("get", ""), global, args)
}

/// Runs the command under another name (`cp`), with the prefix that this one prints before paths of the image.
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
    crate::host::process::prepare();
    let flow = match check_memory(MEMORY).and_then(|()| Ok(Flow::new(&volume)?)) {
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
        nameless: has_procfs(),
    };
    copier.all(args);
    copier.progress.finish();
    copier.meta.summary(&copier.report);
    copier.report.exit_code()
}

/// The state of one run.
struct Copier<'a> {
    volume: &'a Volume,
    /// The prefix of paths of the image in lines of -v; none without -v.
    prefix: Option<&'a str>,
    flow: Flow<Copying>,
    report: Report,
    progress: Progress,
    meta: Meta,
    names: Names,
    links: Links,
    /// Directories that were entered below the present PATH.
    seen: HashSet<Ino>,
    /// Whether the host can create a file without a name and name it later (O_TMPFILE).
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

    /// Copies one PATH of the command line, with everything below it. Fails if there is no place for it on the host.
    fn one(&mut self, path: &[u8], file: File, args: &GetArgs) -> Result<(), Reason> {
        // A directory that another PATH led to is copied again, to another place or over the first copy.
        self.seen.clear();
        let kind = file.metadata().file_type;
        let dest = bytes(args.dest.as_os_str()).to_vec();
        match place::choose(&args.dest, path, args.paths.len() > 1, kind)? {
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
                let name = last_name(path);
                let shown = Shown::Below(shown);
                let id = self.names.add_top(above(path), &parent, shown)?;
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

    /// Prints with -v that a copy is complete.
    fn tell(&self, path: &[u8], host: &[u8]) {
        if let Some(prefix) = self.prefix {
            let from = in_quotes(&[prefix.as_bytes(), path].concat());
            self.report
                .done(format_args!("{from} -> {}", in_quotes(host)));
        }
    }
}

/// Writes the contents of a file to a descriptor, in order. The owner, mode and times of the target do not change.
fn into(volume: &Volume, file: &File, out: &OwnedFd) -> Result<(), Reason> {
    let failed = |errno| Reason::host("cannot write the copy", errno);
    Reader::new(volume)?.copy(file, &mut |mut bytes| {
        while !bytes.is_empty() {
            match rustix::io::write(out, bytes) {
                Ok(0) => return Err(failed(Errno::IO)),
                Ok(n) => bytes = &bytes[n..],
                Err(Errno::INTR) => {}
                Err(errno) => {
                    if errno == Errno::PIPE {
                        printed(Err(errno.into()));
                    }
                    return Err(failed(errno));
                }
            }
        }
        Ok(())
    })?;
    reported_at_close(out).map_err(failed)
}

/// The number of bytes to copy, if it is known: for the root directory, the used space of the volume.
pub(crate) fn bytes_in(volume: &Volume, file: &File) -> Option<u64> {
    let (g, info) = (volume.superblock().geometry(), volume.superblock().info());
    let used = g.blocks_count().saturating_sub(g.free_blocks_count());
    let overhead = u64::from(info.overhead_clusters) * u64::from(g.cluster_ratio());
    if file.metadata().is_file() {
        return Some(file.metadata().blocks.saturating_mul(512).min(file.size()));
    }
    let blocks = used.saturating_sub(overhead);
    (file.ino() == Ino::ROOT).then(|| blocks.saturating_mul(u64::from(g.block_size())))
}
