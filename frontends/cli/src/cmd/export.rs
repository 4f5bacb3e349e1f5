//! `diorite export`: the files of an image as a tar archive, in a directory, or in another image.
//!
//! Input: an image, or a directory in it; where to. Output: what was asked for; a line or a JSON object. Invariants: an archive or an
//! image that is a file is there whole or not at all, and SIGINT leaves nothing of it; a directory was empty before. Limits: those of the
//! format; `get` copies to a directory, `import` into an image.

use crate::args::{Encoding, ExportArgs, ExportWord, GetArgs, Global};
use crate::cmd::{get, import};
use crate::encoding::{Level, compress_zstd};
use crate::host::new_file::{self, IfTaken, NewFile};
use crate::host::process;
use crate::images::image;
use crate::images::location::{Host, Location};
use crate::output::progress::Progress;
use crate::output::report::{Reason, Report};
use crate::output::{Out, check_open, printed};
use crate::targets::new_image;
use diorite::Volume;
use diorite_block::uncached::InOrder;
use diorite_block::{Locator, reported_at_close};
use diorite_image::export::{Exported, to_tar};
use flate2::write::GzEncoder;
use serde_json::json;
use std::fs::{self, OpenOptions};
use std::io::{self, BufWriter, Read, StdoutLock, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Builder;

/// Bytes that are written at once.
const PIECE: usize = 1 << 18;
/// Pieces on their way to a compressor.
const QUEUED: usize = 16;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &ExportArgs) -> ExitCode {
    let (img, dir) = match args.img.rfind(":/") {
        Some(at) => (&args.img[..at], &args.img[at + 1..]),
        None => (&args.img[..], "/"),
    };
    let both = Locator::parse(img).and_then(|img| Ok((img, Locator::parse(&args.dest)?)));
    if let Ok((from, to)) = both
        && Location::of(from).host(&Location::of(to)) != Host::Apart
    {
        let mut report = Report::new("export", img);
        report.host(format_args!("{}: the files come from there", args.dest));
        return report.exit_code();
    }
    match kind(args) {
        Ok(ExportWord::Archive) => to_archive(global, args, img, dir),
        Ok(ExportWord::Directory) => to_directory(global, args, img, dir),
        Ok(ExportWord::Image) => to_image(global, args),
        Err(why) => {
            let mut report = Report::new("export", img);
            report.host(why);
            report.exit_code()
        }
    }
}

/// Ends of names of images, behind which `.gz` and `.zst` may be.
const IMAGES: [&str; 7] = [".img", ".raw", ".ext2", ".ext3", ".ext4", ".qcow2", ".simg"];

/// What DEST is: what was said, what is there, or what its name says.
fn kind(args: &ExportArgs) -> Result<ExportWord, Reason> {
    if let Some(kind) = args.kind {
        return Ok(kind);
    }
    let found = fs::metadata(&args.dest).ok();
    if args.dest.ends_with('/') || found.as_ref().is_some_and(fs::Metadata::is_dir) {
        return Ok(ExportWord::Directory);
    }
    let lower = args.dest.to_lowercase();
    let unpacked = lower.strip_suffix(".gz").or(lower.strip_suffix(".zst"));
    let unpacked = unpacked.unwrap_or(&lower);
    let is_device = found.is_some_and(|meta| meta.file_type().is_block_device());
    if is_device || IMAGES.iter().any(|end| unpacked.ends_with(end)) {
        return Ok(ExportWord::Image);
    }
    match packing(&args.dest) {
        Some(_) => Ok(ExportWord::Archive),
        None => Err(Reason::new(format!(
            "{}: its name does not say what it is to be: .tar, .tar.gz or .tar.zst is an archive, .img an image, and a / at its end a \
             directory; or --as archive, --as image, --as directory",
            args.dest
        ))),
    }
}

/// A directory, which gets what is in the image's.
fn to_directory(global: &Global, args: &ExportArgs, img: &str, dir: &str) -> ExitCode {
    let mut report = Report::new("export", img);
    let about = |why: String| format!("{}: {why}", args.dest);
    let dest = Path::new(&args.dest);
    if dest.symlink_metadata().is_err()
        && let Err(why) = new_file::check_not_among_devices(dest)
    {
        report.host(about(why));
        return report.exit_code();
    }
    let new = fs::create_dir(dest);
    let is_new = new.is_ok();
    let made = match new {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => fs::read_dir(&args.dest)
            .map_err(|e| about(e.to_string()))
            .and_then(|mut names| match names.next() {
                None => Ok(()),
                Some(_) => Err(about(
                    "it is not empty: 'diorite get' adds to what is there".to_owned(),
                )),
            }),
        done => done.map_err(|e| about(e.to_string())),
    };
    if let Err(why) = made {
        report.host(why);
        return report.exit_code();
    }
    let get = GetArgs {
        recursive: true,
        same_owner: false,
        no_same_owner: false,
        chmod: None,
        no_xattrs: false,
        verbose: false,
        quiet: args.quiet,
        img: img.to_owned(),
        // What is in the directory, and not itself.
        paths: vec![format!("{}/.", dir.trim_end_matches('/')).into()],
        dest: args.dest.clone().into(),
    };
    let code = get::run_as(("export", ""), global, &get);
    if is_new && code != ExitCode::SUCCESS {
        // It stays if there is anything in it.
        let _ = fs::remove_dir(&args.dest);
    }
    if args.json.on && code == ExitCode::SUCCESS {
        let mut out = Out::new();
        out.json(&json!({ "directory": args.dest }));
        out.finish();
    }
    code
}

/// Another image.
fn to_image(global: &Global, args: &ExportArgs) -> ExitCode {
    let source = format!("image:{}", args.img);
    let mut words = vec![&source[..], &args.dest];
    if args.quiet {
        words.insert(0, "--quiet");
    }
    if args.json.on {
        words.insert(0, "--json");
    }
    if args.force {
        words.insert(0, "--force");
    }
    let level = args.level.map(|level| format!("--level={level}"));
    if let Some(level) = &level {
        words.insert(0, level);
    }
    words.insert(words.len() - 2, "--");
    match import::of_words(&words) {
        Ok(import) => import::run_as("export", global, &import),
        Err(why) => {
            let mut report = Report::new("export", &args.img);
            report.host(why);
            report.exit_code()
        }
    }
}

fn to_archive(global: &Global, args: &ExportArgs, img: &str, dir: &str) -> ExitCode {
    let mut report = Report::new("export", img);
    let Some(volume) = image::open(img, global, &mut report) else {
        return report.exit_code();
    };
    let done = process::watch().and_then(|stop| {
        let progress = Progress::new(args.quiet, &mut report);
        let top = image::find(&volume, dir.as_bytes(), true);
        progress.expect(top.ok().and_then(|top| get::bytes_in(&volume, &top)));
        let done = export(&volume, dir, args, &|done| {
            progress.entry(done.bytes);
            !stop.load(Ordering::Relaxed)
        });
        progress.finish();
        if done.is_err() && stop.load(Ordering::Relaxed) {
            report.failed(process::interrupted());
        }
        done
    });
    match done {
        Ok(done) => show(args, &done, &mut report),
        Err(why) => report.image(why),
    }
    report.exit_code()
}

/// Standard output. Who has closed it wants no message.
struct Stdout(InOrder<StdoutLock<'static>>);

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                printed(Err(error));
                Ok(bytes.len())
            }
            done => done,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// How an archive of that name is packed, if it is one of an archive.
fn packing(name: &str) -> Option<Encoding> {
    let lower = name.to_lowercase();
    let ends = |all: &[&str]| all.iter().any(|end| lower.ends_with(end));
    match () {
        () if name == "-" || ends(&[".tar"]) => Some(Encoding::Raw),
        () if ends(&[".tar.gz", ".tgz"]) => Some(Encoding::Gzip),
        () if ends(&[".tar.zst", ".tzst"]) => Some(Encoding::Zstd),
        () => None,
    }
}

fn export(
    volume: &Volume,
    dir: &str,
    args: &ExportArgs,
    progress: &dyn Fn(&Exported) -> bool,
) -> Result<Exported, Reason> {
    // With --as archive the name need not say so.
    let packing = packing(&args.dest).unwrap_or(Encoding::Raw);
    let packing = (
        packing,
        Level::new(args.level, packing).map_err(Reason::new)?,
    );
    if args.dest == "-" {
        check_open().map_err(|errno| Reason::host("standard output", errno))?;
        let done = to(
            volume,
            dir,
            packing,
            Stdout(InOrder(io::stdout().lock())),
            progress,
        )?;
        printed(reported_at_close(io::stdout()).map_err(io::Error::from));
        return Ok(done);
    }
    let failed = |errno| Reason::host(format!("{}: it cannot be made", args.dest), errno);
    let at = new_file::target(Path::new(&args.dest));
    let at = at.map_err(|why| Reason::new(format!("{}: {why}", args.dest)))?;
    let apart = new_image::check_apart(&Location::of(Locator::file(&at)));
    apart.map_err(|why| Reason::new(format!("{}: {why}", args.dest)))?;
    let new_file = NewFile::make(&at).map_err(failed)?;
    let file = OpenOptions::new().write(true).open(new_file.path());
    let file = file.map_err(|e| Reason::new(format!("{}: {e}", args.dest)))?;
    let done = to(volume, dir, packing, InOrder(file), progress)?;
    let named = new_file.finish(IfTaken::Replace);
    named.map_err(|why| Reason::new(format!("{}: {why}", args.dest)))?;
    Ok(done)
}

fn to(
    volume: &Volume,
    dir: &str,
    (packing, level): (Encoding, Level),
    out: impl Write,
    progress: &dyn Fn(&Exported) -> bool,
) -> Result<Exported, Reason> {
    let mut out = BufWriter::with_capacity(PIECE, out);
    let said = |e: diorite_image::Error| Reason::new(e.to_string());
    let ended = |e: io::Error| Reason::new(e.to_string());
    match packing {
        Encoding::Gzip => {
            let mut packed = GzEncoder::new(out, level.of_gzip());
            let done = to_tar(volume, dir, &mut packed, progress).map_err(said)?;
            packed
                .finish()
                .and_then(|mut out| out.flush())
                .map_err(ended)?;
            Ok(done)
        }
        Encoding::Zstd => to_zstd(volume, dir, level, &mut out, progress),
        _ => to_tar(volume, dir, &mut out, progress).map_err(said),
    }
}

/// The compressor reads, and the archive is written: a thread makes the archive.
fn to_zstd(
    volume: &Volume,
    dir: &str,
    level: Level,
    out: &mut impl Write,
    progress: &dyn Fn(&Exported) -> bool,
) -> Result<Exported, Reason> {
    let (sender, receiver) = sync_channel(QUEUED);
    let (counts, shown) = sync_channel(1);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stopped = &stop;
        let writer = Builder::new().spawn_scoped(scope, move || {
            let mut out = BufWriter::with_capacity(PIECE, Pieces(sender));
            let result = to_tar(volume, dir, &mut out, &|done| {
                // Only the newest count matters.
                let _ = counts.try_send(*done);
                !stopped.load(Ordering::Relaxed)
            });
            result.map_err(|e| Reason::new(e.to_string()))
        });
        let writer =
            writer.map_err(|e| Reason::new(format!("cannot start a thread that writes: {e}")))?;
        let mut reader = Joined {
            pieces: receiver,
            piece: Vec::new(),
            at: 0,
            looked: Box::new(|| {
                if let Ok(done) = shown.try_recv() {
                    stop.fetch_or(!progress(&done), Ordering::Relaxed);
                }
            }),
        };
        let compressed = compress_zstd(&mut reader, &mut *out, level, None);
        drop(reader);
        let flushed = compressed.map_err(|e| Reason::new(e.to_string()));
        let panicked = |_| Err(Reason::new("a part of diorite panicked"));
        let done = writer.join().unwrap_or_else(panicked)?;
        flushed.map(|()| done)
    })
}

/// Sends what is written to another thread.
struct Pieces(SyncSender<Vec<u8>>);

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.0.send(bytes.to_vec());
        sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What another thread sends, as a stream.
struct Joined<'j> {
    pieces: Receiver<Vec<u8>>,
    piece: Vec<u8>,
    at: usize,
    /// Called for each piece.
    looked: Box<dyn FnMut() + 'j>,
}

impl Read for Joined<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.at == self.piece.len() {
            (self.looked)();
            self.piece = match self.pieces.recv() {
                Ok(piece) => piece,
                Err(_) => return Ok(0),
            };
            self.at = 0;
        }
        let rest = &self.piece[self.at..];
        let count = rest.len().min(out.len());
        out[..count].copy_from_slice(&rest[..count]);
        self.at += count;
        Ok(count)
    }
}

fn show(args: &ExportArgs, done: &Exported, report: &mut Report) {
    if done.sockets > 0 {
        report.warn(format_args!(
            "{} sockets were left out: an archive has no form for them",
            done.sockets
        ));
    }
    if args.dest == "-" {
        return;
    }
    let mut out = Out::new();
    if args.json.on {
        out.json(&json!({
            "archive": args.dest,
            "files": done.files,
            "bytes": done.bytes,
            "sockets_left_out": done.sockets,
        }));
    } else if !args.quiet {
        out.line(format_args!(
            "{}: {} files with {} bytes",
            args.dest, done.files, done.bytes
        ));
    }
    out.finish();
}
