//! Copies of which one end is packed: compressed, or an Android sparse image; or a stream.
//!
//! Input: what was asked for. Output: a file; a scratch file with what a stream holds. Invariants: a stream is unpacked to its end before a
//! byte that is there is changed; files are there whole or not at all. Limits: a packed DST is a file of the host.

use super::ends::of;
use super::run::Trouble;
use super::{Asked, Done};
use crate::args::{CopyArgs, Encoding};
use crate::copying::ranges::Written;
use crate::encoding::{self, Hooks, Steps, Unpacked, seen};
use crate::host::new_file::{self, IfTaken, NewFile};
use crate::images::device::{self, Opened};
use crate::images::location::{Host, Location};
use crate::output::progress::Progress;
use crate::output::report::{Reason, without_number};
use crate::targets::new_image;
use diorite_block::{Locator, check_stdin};
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::atomic::Ordering;

/// The name in TMPDIR of what is unpacked there, on a host without nameless files.
const SCRATCH: &str = "diorite-unpacked";

/// What came of a stream.
pub(super) enum Streamed {
    /// The copy.
    Done(Done),
    /// A scratch file with its bytes.
    Scratch(NewFile),
}

/// Unpacks SRC into a new DST, or else into a scratch file.
pub(super) fn unpack(asked: &Asked<'_>, hooks: &Hooks<'_>) -> Result<Streamed, Trouble> {
    check_apart(asked)?;
    super::check_output(asked.args, &asked.target)?;
    let new = new_on_host(asked);
    if let Some(path) = &new {
        new_file::target(path).map_err(|why| failed(asked.args, &why))?;
    }
    let place = match &new {
        Some(path) => path.clone(),
        None => std::env::temp_dir().join(SCRATCH),
    };
    let unmade = |errno| Reason::host(format!("{}: it cannot be made", place.display()), errno);
    let file = NewFile::make(&place).map_err(unmade)?;
    let unpacked = unpack_to(asked, &file, hooks)?;
    if new.is_none() {
        return Ok(Streamed::Scratch(file));
    }
    let named = file.finish(IfTaken::Keep);
    named.map_err(|why| failed(asked.args, &why.to_string()))?;
    Ok(Streamed::Done(Done {
        size: unpacked.size,
        written: Written {
            data: unpacked.data,
            ..Written::default()
        },
        is_new: true,
    }))
}

/// The path of a DST that is written directly: nothing is there, and nothing but the copy is asked for.
fn new_on_host(asked: &Asked<'_>) -> Option<PathBuf> {
    let args = asked.args;
    let Locator::File(file) = &asked.target else {
        return None;
    };
    let is_plain = asked.to == Encoding::Raw && !args.verify && args.bmap.is_none();
    let is_new = !args.no_create
        && asked.target == Locator::file(&file.path)
        && file.path.symlink_metadata().is_err();
    (is_plain && is_new).then(|| file.path.clone())
}

fn unpack_to(asked: &Asked<'_>, file: &NewFile, hooks: &Hooks<'_>) -> Result<Unpacked, Trouble> {
    let args = asked.args;
    let to = new_image::open(file).map_err(|e| failed(args, &e.to_string()))?;
    let write = |steps: io::Result<Steps<'_>>| encoding::unpack(steps?, &to, args.sparse, hooks);
    let one = |from: Box<dyn Read + '_>| write(Steps::new(from, asked.from, &asked.warnings));
    let unpacked = match &asked.source {
        None => stdin(asked).and_then(|(from, encoding)| {
            write(Steps::new(Box::new(from), encoding, &asked.warnings))
        }),
        Some(locator) if asked.pieces.is_empty() => {
            let opened = open(asked, &args.source, locator)?;
            let unpacked = one(Box::new(encoding::stream(&opened, hooks)));
            opened.close().map_err(|e| of(&args.source, &e))?;
            unpacked
        }
        Some(first) => {
            let names = [&args.source].into_iter().chain(&args.pieces);
            let locators = [first].into_iter().chain(&asked.pieces);
            let opened = names
                .zip(locators)
                .map(|(name, locator)| Ok((name, open(asked, name, locator)?)));
            let opened: Vec<(&String, Opened)> = opened.collect::<Result<_, Reason>>()?;
            let streams = opened.iter().map(|(name, opened)| {
                let stream: Box<dyn Read + '_> = Box::new(encoding::stream(opened, hooks));
                ((*name).clone(), stream)
            });
            let unpacked = write(Steps::pieces(streams.collect()));
            for (name, opened) in opened {
                opened.close().map_err(|e| of(name, &e))?;
            }
            unpacked
        }
    };
    unpacked.map_err(|e| stopped(hooks).unwrap_or_else(|| failed(args, &e.to_string()).into()))
}

/// Standard input, and its form; with a warning if it is no disk as it seems to be.
fn stdin(asked: &Asked<'_>) -> io::Result<(impl Read + use<>, Encoding)> {
    check_stdin()?;
    let (mut from, mut first) = (io::stdin().lock(), Vec::new());
    from.by_ref()
        .take(seen::FIRST as u64)
        .read_to_end(&mut first)?;
    if seen::is_assumed(asked.args.source_format, asked.from) {
        let seen = seen::warning(&first, &[]);
        seen.into_iter().for_each(|what| asked.warnings.add(what));
    }
    let encoding = match asked.from {
        Encoding::Auto => seen::form(&first, &[]).map_err(io::Error::other)?,
        known => known,
    };
    Ok((io::Cursor::new(first).chain(from), encoding))
}

fn open(asked: &Asked<'_>, name: &str, locator: &Locator) -> Result<Opened, Reason> {
    let opened = device::open(locator, &device::options(asked.global, false));
    opened.map_err(|e| of(name, &e))
}

/// Packs the device at `source` into DST.
pub(super) fn pack(
    asked: &Asked<'_>,
    source: &Locator,
    hooks: &Hooks<'_>,
    progress: &Progress,
) -> Result<(Done, Vec<String>), Trouble> {
    let args = asked.args;
    check_apart(asked)?;
    let path = place(asked)?;
    let source = open(asked, &args.source, source)?;
    new_image::check_unused(&path, &device::options(asked.global, true))
        .map_err(|why| failed(args, &why.to_string()))?;
    check_map_apart(args)?;
    progress.expect(Some(source.size));
    let with_map = args.bmap.as_ref().map(|_| asked.holes());
    let packed = new_image::pack(&source, &path, (asked.to, asked.level), with_map, hooks);
    let packed = packed
        .map_err(|why| stopped(hooks).unwrap_or_else(|| failed(args, &why.to_string()).into()))?;
    let done = packed_length(&packed.new_file).and_then(|data| {
        if args.verify {
            let mut file = new_image::open(&packed.new_file)?;
            encoding::check_same(&source, &mut file, asked.to, hooks)?;
        }
        Ok(Done {
            size: source.size,
            written: Written {
                data,
                ..Written::default()
            },
            is_new: true,
        })
    });
    let done =
        done.map_err(|e| stopped(hooks).unwrap_or_else(|| failed(args, &e.to_string()).into()))?;
    let (map, mut doubts) = (packed.map.clone(), source.doubts());
    doubts.extend(asked.seen(&source));
    source.close().map_err(|e| of(&args.source, &e))?;
    packed
        .finish()
        .map_err(|why| failed(args, &why.to_string()))?;
    if let Some((path, map)) = args.bmap.as_deref().zip(map) {
        new_image::map(path, &map)?;
    }
    Ok((done, doubts))
}

fn packed_length(new_file: &NewFile) -> io::Result<u64> {
    new_image::open(new_file)?.metadata().map(|meta| meta.len())
}

/// Where a packed DST is to be.
fn place(asked: &Asked<'_>) -> Result<PathBuf, Reason> {
    let name = &asked.args.target;
    let said = |why: &str| Reason::new(format!("{name}: {why}"));
    let raw = "only bytes as they are (--format raw) are written to a device, a part of a file, or a file in an image";
    let path = match &asked.target {
        Locator::File(file) if asked.target == Locator::file(&file.path) => &file.path,
        _ => return Err(said(raw)),
    };
    if asked.args.no_create && !path.exists() {
        return Err(said("No such file or directory"));
    }
    new_file::target(path).map_err(|why| said(&format!("{why}; {raw}")))
}

/// Refuses a DST that is, or holds, SRC.
fn check_apart(asked: &Asked<'_>) -> Result<(), Reason> {
    let to = Location::of(asked.target.clone());
    let mut sources = asked.source.iter().chain(&asked.pieces);
    let is_in = |source: &Locator| {
        let host = Location::of(source.clone()).host(&to);
        matches!(host, Host::Same | Host::Overlaps) && to.inside.is_empty()
    };
    match sources.any(is_in) {
        true => Err(failed(
            asked.args,
            "SRC is DST, or is in it; nothing was changed",
        )),
        false => Ok(()),
    }
}

/// Refuses a block map in the place of what SRC is on. SRC is open.
pub(super) fn check_map_apart(args: &CopyArgs) -> Result<(), Reason> {
    let Some(map) = &args.bmap else {
        return Ok(());
    };
    new_image::check_apart(&Location::of(Locator::file(map)))
        .map_err(|why| failed(args, &format!("the block map: {why}")))
}

fn failed(args: &CopyArgs, why: &str) -> Reason {
    let CopyArgs { source, target, .. } = args;
    let why = without_number(why);
    Reason::new(format!("{source} cannot be copied to {target}: {why}"))
}

fn stopped(hooks: &Hooks<'_>) -> Option<Trouble> {
    let is_set = hooks.stop.load(Ordering::Relaxed);
    is_set.then(Trouble::interrupted)
}

/// The block map of SRC.
pub(super) fn map(
    asked: &Asked<'_>,
    source: &Opened,
    hooks: &Hooks<'_>,
) -> Result<String, Trouble> {
    let map = encoding::map(source, asked.holes(), hooks);
    map.map_err(|e| stopped(hooks).unwrap_or_else(|| failed(asked.args, &e.to_string()).into()))
}
