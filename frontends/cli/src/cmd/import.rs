//! `diorite import`: an image of directories, archives and container images.
//!
//! Input: sources, options, the image to be made. Output: the image; a line or a JSON object. Invariants: the image is there whole or not
//! at all; SIGINT leaves nothing. Limits: those of the sources.

use crate::args::{Encoding, Global, ImportArgs};
use crate::cmd::mkfs::{self, identity};
use crate::encoding::{self, Holes, Hooks, Level};
use crate::host::new_file;
use crate::host::process;
use crate::images::device::{self, Opened};
use crate::images::image;
use crate::images::location::{Host, Location};
use crate::output::Out;
use crate::output::progress::Progress;
use crate::output::report::{Reason, Report};
use crate::targets::new_image::{self, NewImage};
use crate::targets::replace;
use crate::words::names;
use clap::{Args, FromArgMatches};
use diorite::mkfs::{Made, MkfsOptions};
use diorite_block::locator::{ImageFormat, parse_size};
use diorite_block::{Blocking, Buf, Device, Locator};
use diorite_image::{ImageBuilder, OwnerMap, Rules, Size, Source};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes that are read at once for the digest.
const PIECE: usize = 1 << 20;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &ImportArgs) -> ExitCode {
    run_as("import", global, args)
}

/// The options of words that follow the command's name.
pub(crate) fn of_words(words: &[&str]) -> Result<ImportArgs, clap::Error> {
    let command = ImportArgs::augment_args(clap::Command::new("import"));
    let words = std::iter::once("import").chain(words.iter().copied());
    ImportArgs::from_arg_matches(&command.try_get_matches_from(words)?)
}

/// Runs the command under another name.
pub(crate) fn run_as(name: &'static str, global: &Global, args: &ImportArgs) -> ExitCode {
    let img = args.paths.last().cloned().unwrap_or_default();
    let mut report = Report::new(name, &img);
    let done = make(global, args, &img, &mut report);
    match done {
        Ok(done) => show(args, &img, &done),
        Err(why) => report.image(why),
    }
    report.exit_code()
}

/// What was made.
struct Done {
    made: Made,
    files: u64,
    bytes: u64,
    size: u64,
    uuid: [u8; 16],
    /// Of the image's bytes, and of the file that they are in.
    sums: Option<[String; 2]>,
}

fn said(error: diorite_image::Error) -> Reason {
    Reason::new(error.to_string())
}

fn make(
    global: &Global,
    args: &ImportArgs,
    img: &str,
    report: &mut Report,
) -> Result<Done, Reason> {
    let place = Place::find(img, args.encoding)?;
    let level = Level::new(args.level, place.encoding()).map_err(Reason::new)?;
    let (size, assumed) = match (&place, &args.size[..]) {
        // All of it.
        (Place::Device(_, bytes, _), "auto") => {
            let bytes = bytes - bytes % mkfs::PAGE;
            (Wanted::Bytes(bytes), bytes)
        }
        (_, word) => size(word)?,
    };
    let (mut options, beside) = mkfs::options(&args.format, (assumed, place.sector()), report)?;
    if !matches!(size, Wanted::Bytes(_)) && args.format.inode_ratio.is_none() {
        // As many inodes as there are files, and those of the headroom by the ratio of -T.
        let ratio = options.inode_ratio.take();
        options.headroom_ratio = ratio.unwrap_or(options.headroom_ratio);
    }
    if beside.offset != 0 {
        return Err(Reason::new(
            "an image begins at its beginning: -E offset= is for mkfs",
        ));
    }
    if beside.journal_device.is_some() {
        return Err(Reason::new(
            "an image with its journal elsewhere is made by mkfs: -J device= is for that",
        ));
    }
    options.is_new = matches!(place, Place::File(..));
    let uuid = options.uuid;
    let mut rules = rules(args, &options, place.path())?;
    if let Some(text) = beside.labels() {
        rules.read_labels(&text).map_err(said)?;
    }
    let mut builder = ImageBuilder::new(options);
    builder.set_rules(rules);
    let sources = &args.paths[..args.paths.len() - 1];
    for source in sources {
        builder.add(source.parse().map_err(said)?).map_err(said)?;
    }
    for (source, note) in builder.notes() {
        image::warn_if_doubtful(source, note, report);
    }
    for warning in builder.warnings() {
        report.warn(warning);
    }
    let bytes = builder.bytes();
    let size = match size {
        Wanted::Bytes(bytes) => Size::Bytes(bytes),
        Wanted::Auto => Size::Auto { headroom: 0 },
        Wanted::AutoAnd(headroom) => Size::Auto { headroom },
        Wanted::AutoPercent(percent) => Size::AutoPercent { percent },
    };
    check_ends(global, args, &place)?;
    let files = builder.files();
    let plan = builder.plan(size).map_err(said)?;
    let size = plan.bytes();
    // From here on there is something to be removed. Before, a signal just ends the process.
    let stop = process::watch()?;
    let target = place.open(global, size)?;
    if let (Place::Device(locator, ..), Target::Device(opened)) = (&place, &target) {
        replace::ask_of_device(img, locator, opened, args.force)?;
    }
    let opened = target.opened();
    let progress = Progress::new(args.quiet, report);
    progress.expect(Some(bytes));
    let made = plan.write(&opened.device, &|done| {
        progress.entry(done);
        !stop.load(Ordering::Relaxed)
    });
    progress.finish();
    if made.is_err() && stop.load(Ordering::Relaxed) {
        report.failed(process::interrupted());
    }
    let made = made.map_err(said)?;
    let image_sum = match args.json {
        true => Some(digest(&opened.device, size)?),
        false => None,
    };
    // A file that is packed is packed now.
    let progress = Progress::new(args.quiet, report);
    progress.expect(Some(size));
    let hooks = Hooks {
        stop: &stop,
        step: &|at| progress.entry(at),
    };
    let finished = target.finish(args.bmap.as_deref(), level, &hooks, args.json);
    progress.finish();
    if finished.is_err() && stop.load(Ordering::Relaxed) {
        report.failed(process::interrupted());
    }
    let file_sum = finished?;
    Ok(Done {
        made,
        files,
        bytes,
        size,
        uuid,
        sums: image_sum.map(|sum| [sum.clone(), file_sum.unwrap_or(sum)]),
    })
}

/// Refuses a place that a source is on, and a block map in place of a file that is needed. The sources are open.
fn check_ends(global: &Global, args: &ImportArgs, place: &Place) -> Result<(), Reason> {
    let (img, sources) = args.paths.split_last().expect("there are two at least");
    if let Place::Device(locator, ..) = place {
        let device = Location::of(locator.clone());
        for word in sources {
            let on_host = match word.parse().map_err(said)? {
                Source::Volume { locator, .. } => Locator::parse(&locator).ok(),
                Source::Directory(_) => None,
                Source::OciLayout(path) if path.is_dir() => None,
                Source::Tar(path)
                | Source::Stream(path)
                | Source::OciLayout(path)
                | Source::DockerArchive(path, _)
                | Source::Manifest(path) => Some(match path == Path::new("-") {
                    true => Locator::file("/dev/stdin"),
                    false => Locator::file(path),
                }),
            };
            if on_host.is_some_and(|source| Location::of(source).host(&device) != Host::Apart) {
                return Err(Reason::new(format!(
                    "{word} is on it, and would be overwritten while it is read; nothing was changed"
                )));
            }
        }
    }
    let on_host = match place {
        Place::Device(locator, ..) => locator.clone(),
        Place::File(path, _) => Locator::file(path),
    };
    new_image::check_apart(&Location::of(on_host))?;
    let Some(map) = &args.bmap else {
        return Ok(());
    };
    let target = match place {
        Place::File(_, Encoding::Qcow2) => return Err(new_image::no_map()),
        Place::File(path, _) => path.clone(),
        Place::Device(..) => PathBuf::from(img),
    };
    let others = sources.iter().map(PathBuf::from).chain([target]);
    new_image::check_map(map, others, &device::options(global, true))
}

/// Where the image is to be.
enum Place {
    /// A file of the host, which is replaced when the image is whole, and how it is written.
    File(PathBuf, Encoding),
    /// A block device with so many bytes, and those of a sector.
    Device(Locator, u64, u32),
}

impl Place {
    /// Bytes of a sector; 0: it is no device.
    fn sector(&self) -> u32 {
        match self {
            Place::Device(_, _, sector) => *sector,
            Place::File(..) => 0,
        }
    }

    fn path(&self) -> &Path {
        match self {
            Place::File(path, _) => path,
            Place::Device(Locator::File(file), ..) => &file.path,
            Place::Device(..) => Path::new(""),
        }
    }

    fn find(img: &str, asked: Option<Encoding>) -> Result<Place, Reason> {
        if img == "-" {
            return Err(new_image::no_stdout());
        }
        Encoding::check_written(asked, Path::new(img)).map_err(Reason::new)?;
        let locator = Locator::parse(img).map_err(|e| Reason::new(e.to_string()))?;
        Encoding::check_agrees(("--format", asked), &locator).map_err(Reason::new)?;
        let Locator::File(file) = &locator else {
            let why = "an image is made on the host: 'diorite copy' brings it into another image";
            return Err(Reason::new(why));
        };
        let encoding = Encoding::of(asked, &locator);
        match file.path.metadata() {
            Ok(meta) if meta.file_type().is_block_device() => {
                if encoding != Encoding::Raw {
                    return Err(Reason::new(
                        "a device holds the bytes of an image as they are: --format raw",
                    ));
                }
                let device = diorite::open_device(&locator, &diorite::OpenOptions::default());
                let geometry = device.map_err(Reason::from)?.geometry();
                Ok(Place::Device(locator, geometry.size, geometry.logical))
            }
            _ => {
                new_image::check_parameters(file).map_err(Reason::new)?;
                // What a link leads to is replaced, and not the link.
                let path = new_file::target(&file.path).map_err(Reason::new)?;
                Ok(Place::File(path, encoding))
            }
        }
    }

    fn encoding(&self) -> Encoding {
        match self {
            Place::File(_, encoding) => *encoding,
            Place::Device(..) => Encoding::Raw,
        }
    }

    fn open(&self, global: &Global, size: u64) -> Result<Target, Reason> {
        let options = device::options(global, true);
        match self {
            Place::Device(_, bytes, _) if size > *bytes => Err(Reason::new(format!(
                "the device has {bytes} bytes: {} fewer than the image needs",
                size - bytes
            ))),
            Place::Device(locator, ..) => {
                let opened = device::open(locator, &options).map_err(Reason::from)?;
                Ok(Target::Device(opened))
            }
            Place::File(path, Encoding::Raw) => {
                NewImage::make(path, ImageFormat::Raw, size, &options).map(Target::New)
            }
            Place::File(path, encoding) => {
                new_image::check_unused(path, &options)?;
                let raw = NewImage::scratch(path, size, &options)?;
                Ok(Target::Packed(raw, path.clone(), *encoding))
            }
        }
    }
}

/// The place, open.
enum Target {
    Device(Opened),
    New(NewImage),
    /// The image, which gets no name, and the file that it is packed into.
    Packed(NewImage, PathBuf, Encoding),
}

impl Target {
    fn opened(&self) -> &Opened {
        match self {
            Target::Device(opened) => opened,
            Target::New(new) | Target::Packed(new, ..) => &new.opened,
        }
    }

    /// Gives the image its place. Returns the SHA-256 of the file, if it is `summed` and not the image's bytes.
    fn finish(
        self,
        bmap: Option<&Path>,
        level: Level,
        hooks: &Hooks<'_>,
        summed: bool,
    ) -> Result<Option<String>, Reason> {
        let mut sum = None;
        let with_map = bmap.map(|_| Holes::Unwritten);
        let map = match &self {
            Target::Packed(raw, path, encoding) => {
                let packed =
                    new_image::pack(&raw.opened, path, (*encoding, level), with_map, hooks)?;
                let map = packed.map.clone();
                if summed {
                    sum = Some(file_digest(&packed)?);
                }
                packed.finish()?;
                map
            }
            _ => with_map
                .map(|holes| encoding::map(self.opened(), holes, hooks))
                .transpose()
                .map_err(|e| Reason::new(e.to_string()))?,
        };
        match self {
            Target::Device(opened) => opened.close().map_err(Reason::from)?,
            Target::New(new) => new.finish()?,
            Target::Packed(..) => {}
        }
        if let Some((path, map)) = bmap.zip(map) {
            new_image::map(path, &map)?;
        }
        Ok(sum)
    }
}

enum Wanted {
    Bytes(u64),
    Auto,
    AutoAnd(u64),
    AutoPercent(u32),
}

/// The size that was asked for, and the one by which defaults are chosen.
fn size(word: &str) -> Result<(Wanted, u64), Reason> {
    // Blocks of 4 KiB, as for anything that may grow.
    const USUAL: u64 = 1 << 30;
    if word == "auto" {
        return Ok((Wanted::Auto, USUAL));
    }
    let wanted = match word.strip_prefix("auto+") {
        Some(more) => match more.strip_suffix('%') {
            Some(percent) => {
                let percent = percent.parse().ok().filter(|percent| *percent <= 10_000);
                percent
                    .map(Wanted::AutoPercent)
                    .ok_or_else(|| format!("{word}: no percentage"))
            }
            None => parse_size(more).map(Wanted::AutoAnd),
        },
        None => {
            let bytes = parse_size(word).map_err(Reason::new)?;
            return Ok((Wanted::Bytes(bytes), bytes));
        }
    };
    Ok((wanted.map_err(Reason::new)?, USUAL))
}

fn rules(args: &ImportArgs, options: &MkfsOptions, img: &Path) -> Result<Rules, Reason> {
    let beside = img.parent().filter(|dir| !dir.as_os_str().is_empty());
    let exclude = args
        .exclude
        .iter()
        .map(|pattern| pattern.parse())
        .collect::<Result<_, _>>();
    let mut rules = Rules::default()
        .exclude(exclude.map_err(said)?)
        .leave_out(img.metadata().ok().map(|meta| (meta.dev(), meta.ino())))
        .newest(identity::is_fixed().then_some(options.time))
        .no_attributes(args.no_xattrs)
        .spool_in(beside.unwrap_or(Path::new(".")).to_owned())
        .uids(maps(&args.uid_map)?)
        .gids(maps(&args.gid_map)?);
    if let Some(owner) = args.owner {
        let both = owner.uid.zip(owner.gid);
        rules.owner = Some(
            both.ok_or_else(|| Reason::new("--owner needs both: UID:GID, as in '--owner 0:0'"))?,
        );
    }
    if let Some(path) = &args.file_contexts {
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|e| Reason::new(format!("{}: {e}", path.display())))?;
        let read = rules.read_labels(&text);
        read.map_err(|e| Reason::new(format!("{}: {e}", path.display())))?;
    }
    Ok(rules)
}

fn maps(words: &[String]) -> Result<Vec<OwnerMap>, Reason> {
    let one = |word: &String| {
        let numbers: Option<Vec<u32>> = word.split(':').map(|part| part.parse().ok()).collect();
        let (from, to, count) = match numbers.as_deref() {
            Some(&[from, to]) => (from, to, 1),
            Some(&[from, to, count]) => (from, to, count),
            _ => return Err(Reason::new(format!("{word}: no FROM:TO[:COUNT]"))),
        };
        // The largest number is that of nobody at all.
        match from.max(to).checked_add(count) {
            Some(_) => Ok(OwnerMap { from, to, count }),
            None => Err(Reason::new(format!(
                "{word}: there are no owners above 4294967294"
            ))),
        }
    };
    words.iter().map(one).collect()
}

/// The SHA-256 of the device's bytes.
fn digest(device: &Arc<dyn Device>, size: u64) -> Result<String, Reason> {
    let blocking = Blocking::new(device.clone());
    let (mut sum, mut at) = (Sha256::new(), 0);
    while at < size {
        let len = (size - at).min(PIECE as u64) as usize;
        let padded = len.next_multiple_of(device.geometry().logical as usize);
        let read = blocking.read(at, Buf::zeroed(padded));
        let buf = read.map_err(|e| Reason::new(format!("it cannot be read back: {e}")))?;
        sum.update(&buf.as_slice()[..len]);
        at += len as u64;
    }
    Ok(names::hex(&sum.finalize()))
}

/// The SHA-256 of a file that was packed, as sha256sum has it.
fn file_digest(packed: &new_image::Packed) -> Result<String, Reason> {
    let unread = |e| Reason::new(format!("it cannot be read back: {e}"));
    let mut file = new_image::open(&packed.new_file).map_err(unread)?;
    let (mut sum, mut piece) = (Sha256::new(), vec![0; PIECE]);
    loop {
        match file.read(&mut piece).map_err(unread)? {
            0 => return Ok(names::hex(&sum.finalize())),
            count => sum.update(&piece[..count]),
        }
    }
}

fn show(args: &ImportArgs, img: &str, done: &Done) {
    let mut out = Out::new();
    if args.json {
        out.json(&json!({
            "image": img,
            "size": done.size,
            "files": done.files,
            "bytes": done.bytes,
            "block_size": done.made.block_size,
            "blocks": done.made.blocks,
            "free_blocks": done.made.free_blocks,
            "available_blocks": done.made.available_blocks,
            "inodes": done.made.inodes,
            "free_inodes": done.made.free_inodes,
            "journal_blocks": done.made.journal_blocks,
            "uuid": names::uuid(&done.uuid),
            "sha256": done.sums.as_ref().map(|sums| &sums[1]),
            "image_sha256": done.sums.as_ref().map(|sums| &sums[0]),
        }));
    } else if !args.quiet {
        out.line(format_args!(
            "{img}: {} files with {} bytes in {} bytes, {} of {} blocks free",
            done.files, done.bytes, done.size, done.made.free_blocks, done.made.blocks
        ));
    }
    out.finish();
}
