//! `diorite disk`: makes a disk image with a partition table, and puts images into the partitions.
//!
//! Input: words for partitions, options, the image to be made. Output: the image; a line or a JSON object. Invariants: the image is there
//! whole or not at all; holes stay holes; the same words, images and seed make the same bytes. Limits: those of
//! `diorite_block::NewTable`; no disk is changed that is there: sfdisk does that.

mod part;

use crate::args::{DiskArgs, Encoding, Global, TableWord};
use crate::cmd::copy::run::{How, Run, Trouble, Zeros};
use crate::cmd::mkfs::identity;
use crate::encoding::seen;
use crate::host::new_file;
use crate::host::process;
use crate::images::device::{self, Opened};
use crate::images::location::{Host, Location};
use crate::output::Out;
use crate::output::progress::Progress;
use crate::output::report::{Reason, Report};
use crate::targets::new_image::{self, NewImage};
use crate::words::names;
use diorite_block::locator::{ImageFormat, Part, parse_size};
use diorite_block::{
    Bio, Blocking, Buf, DiskSize, Layout, Locator, NewPartition, NewTable, PartSize, Partition,
    PartitionKind, PartitionTable, TableKind,
};
use part::Word;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// How the images are copied. What they store is stored in the disk, zeros too: somebody may make a block map of it.
const HOW: How = How {
    zeros: Zeros::AsTheyAre,
    requests: 48,
    verify: false,
};

/// Runs the command.
pub(crate) fn run(global: &Global, args: &DiskArgs) -> ExitCode {
    let mut report = Report::new("disk", &args.disk);
    match make(global, args, &mut report) {
        Ok(done) => show(args, &done),
        Err(Trouble { reason, code }) => {
            report.image(reason);
            report.failed(code);
        }
    }
    report.exit_code()
}

/// What was made.
struct Done {
    table: NewTable,
    layout: Layout,
    words: Vec<Word>,
}

fn make(global: &Global, args: &DiskArgs, report: &mut Report) -> Result<Done, Trouble> {
    let words: Result<Vec<Word>, String> = args.parts.iter().map(|p| Word::parse(p)).collect();
    let words = words.map_err(Reason::new)?;
    if args.disk == "-" {
        return Err(new_image::no_stdout().into());
    }
    let path = place(&args.disk)?;
    let images = images(global, args, &words, report)?;
    let table = table(args, &words, &images)?;
    let layout = table.lay_out().map_err(Reason::new)?;
    // From here on there is something to be removed. Before, a signal just ends the process.
    let stop = process::watch()?;
    let (format, options) = (ImageFormat::of_name(&path), device::options(global, true));
    let disk = NewImage::make(&path, format, layout.size, &options)?;
    let progress = Progress::new(args.quiet, report);
    let bytes = |image: &Option<Opened>| image.as_ref().map_or(0, |image| image.size);
    progress.expect(Some(images.iter().map(bytes).sum()));
    let mut before = 0;
    for ((image, part), word) in images.iter().zip(&layout.parts).zip(&words) {
        let Some(image) = image else { continue };
        let within = window(&disk.opened, args.sector, Some(part), &args.disk)?;
        let name = word.image.as_deref().unwrap_or_default();
        let run = Run {
            how: HOW,
            names: (name, &args.disk),
            source: image,
            target: &within,
            is_new: true,
            stop: &stop,
            step: &|at| progress.entry(before + at),
        };
        let copied = run.all();
        if copied.is_err() {
            progress.finish();
        }
        copied?;
        before += image.size;
    }
    progress.finish();
    let whole = window(&disk.opened, args.sector, None, &args.disk)?;
    let device = Blocking::new(whole.device.clone());
    for (at, bytes) in &layout.table {
        let mut buf = Buf::zeroed(bytes.len());
        buf.copy_in(0, bytes);
        let written = device.run(Bio::write(*at, buf, 0)).result;
        written.map_err(|e| Reason::new(format!("the table cannot be written: {e}")))?;
    }
    drop((device, whole));
    disk.finish()?;
    Ok(Done {
        table,
        layout,
        words,
    })
}

/// Where the image is to be: what a link leads to.
fn place(disk: &str) -> Result<PathBuf, Reason> {
    Encoding::check_written(None, Path::new(disk)).map_err(Reason::new)?;
    let locator = Locator::parse(disk).map_err(|e| Reason::new(e.to_string()))?;
    match &locator {
        Locator::File(file) if !Encoding::of_name(&file.path).is_device() => Err(Reason::new(
            "a disk is made raw or as qcow2, and 'diorite copy' packs it",
        )),
        Locator::File(file) if locator == Locator::file(&file.path) => new_file::target(&file.path)
            .map_err(|why| {
                Reason::new(format!(
                    "{why}; a disk is made as a file, and 'diorite copy' writes it to a device"
                ))
            }),
        _ => Err(Reason::new(
            "a disk is made as a file of the host, without parameters: 'diorite copy' brings it into another image",
        )),
    }
}

/// Opens the images, none of which is in the file that is to be replaced.
fn images(
    global: &Global,
    args: &DiskArgs,
    words: &[Word],
    report: &Report,
) -> Result<Vec<Option<Opened>>, Reason> {
    let disk = Location::of(Locator::file(&args.disk));
    let open = |word: &Word| {
        let Some(name) = &word.image else {
            return Ok(None);
        };
        let of = |why: &dyn std::fmt::Display| Reason::new(format!("{name}: {why}"));
        let locator = Locator::parse(name).map_err(|e| of(&e))?;
        let encoding = Encoding::of(None, &locator);
        let packed = "it is packed: 'diorite copy' unpacks it";
        if !encoding.is_device() {
            return Err(of(&packed));
        }
        Encoding::check_known(None, Path::new(name)).map_err(Reason::new)?;
        if Location::of(locator.clone()).host(&disk) != Host::Apart {
            return Err(of(&format_args!(
                "it is in {}, which would be replaced",
                args.disk
            )));
        }
        let opened = device::open(&locator, &device::options(global, false))
            .map_err(|e| crate::cmd::copy::ends::of(name, &e))?;
        let is_named = matches!(&locator, Locator::File(file) if file.format.is_some());
        if Encoding::is_auto(&locator) && encoding == Encoding::Raw {
            let form = seen::form_of_device(&opened).map_err(|why| of(&why))?;
            if form != Encoding::Raw {
                return Err(of(&packed));
            }
        }
        let is_assumed = !is_named && seen::is_assumed(None, encoding);
        let seen = is_assumed.then(|| seen::of_device(&opened)).flatten();
        let seen = seen.map(|what| format!("{what}: 'diorite copy' has that option"));
        for doubt in opened.doubts().into_iter().chain(seen) {
            report.warn(format_args!("{name}: {doubt}"));
        }
        Ok(Some(opened))
    };
    words.iter().map(open).collect()
}

/// A partition of the disk, or all of it, in its sectors.
fn window(
    disk: &Opened,
    sector: u32,
    part: Option<&Partition>,
    name: &str,
) -> Result<Opened, Reason> {
    let finer = disk.device.geometry().logical > sector;
    let within = Part {
        offset: part.map_or(0, |part| part.start),
        size: part.map(|part| part.size),
        sector: finer.then_some(sector),
        ..Part::default()
    };
    let device = within.of_device(disk.device.clone(), name.to_owned());
    let device = device.map_err(|e| Reason::new(e.to_string()))?;
    Ok(Opened {
        size: device.geometry().size,
        device,
        file: None,
        volumes: Vec::new(),
    })
}

fn table(args: &DiskArgs, words: &[Word], images: &[Option<Opened>]) -> Result<NewTable, Reason> {
    let kind = match args.table {
        TableWord::Gpt => TableKind::Gpt,
        TableWord::Mbr => TableKind::Mbr,
    };
    let seed = args.seed.as_deref().or(args.disk_id.as_deref());
    let id = |what: &str| match seed {
        Some(seed) => Ok(identity::derived(what, seed)),
        None => identity::random(),
    };
    let disk = match (&args.disk_id, kind) {
        (None, _) => id("disk"),
        (Some(text), TableKind::Gpt) => identity::parse_uuid(text),
        (Some(text), TableKind::Mbr) => disk_number(text),
    };
    let size = match &args.size[..] {
        "auto" => Ok(DiskSize::Auto),
        text => parse_size(text).map(DiskSize::Bytes),
    };
    let mut parts = Vec::new();
    for ((number, word), image) in (1..).zip(words).zip(images) {
        let part = partition(kind, word, image.as_ref().map(|image| image.size), &|| {
            id(&format!("partition {number}"))
        });
        parts.push(part.map_err(|why| Reason::new(format!("partition {number}: {why}")))?);
    }
    Ok(NewTable {
        kind,
        disk: disk.map_err(Reason::new)?,
        sector: args.sector,
        align: args.align,
        size: size.map_err(Reason::new)?,
        parts,
    })
}

fn partition(
    table: TableKind,
    word: &Word,
    image: Option<u64>,
    id: &dyn Fn() -> Result<[u8; 16], String>,
) -> Result<NewPartition, String> {
    let size = match (word.size, image) {
        (None, image) => PartSize::Bytes(image.unwrap_or(0)),
        (Some(PartSize::Bytes(size)), Some(image)) if image > size => {
            return Err(format!("its image has {image} bytes, more than {size}"));
        }
        (Some(PartSize::Rest(_)), Some(image)) => PartSize::Rest(image),
        (Some(size), _) => size,
    };
    let has_words = word.name.is_some() || word.uuid.is_some();
    if table == TableKind::Mbr && has_words {
        return Err("an MBR has no names and UUIDs of partitions: a GPT does".to_owned());
    }
    Ok(NewPartition {
        size,
        kind: PartitionKind::parse(word.kind.as_deref().unwrap_or("linux"), table)?,
        name: word.name.clone().unwrap_or_default(),
        uuid: match &word.uuid {
            Some(text) => identity::parse_uuid(text)?,
            None => id()?,
        },
        bootable: word.bootable,
    })
}

/// The number of a disk with an MBR, as sfdisk shows it: `0x1234abcd`.
fn disk_number(text: &str) -> Result<[u8; 16], String> {
    let digits = text.strip_prefix("0x").unwrap_or_default();
    let plain = digits.bytes().all(|b| b.is_ascii_hexdigit());
    let number = u32::from_str_radix(digits, 16).ok().filter(|_| plain);
    let number = number
        .ok_or_else(|| format!("{text}: the number of a disk with an MBR is written 0x1234abcd"))?;
    let mut id = [0; 16];
    id[..4].copy_from_slice(&number.to_be_bytes());
    Ok(id)
}

fn show(args: &DiskArgs, done: &Done) {
    let Done {
        table,
        layout,
        words,
    } = done;
    let mut out = Out::new();
    if args.json {
        let parts = table.parts.iter().zip(&layout.parts).zip(words);
        let parts: Vec<Value> = parts
            .map(|((new, part), word)| {
                let is_gpt = table.kind == TableKind::Gpt;
                json!({
                    "number": part.number, "start": part.start, "size": part.size,
                    "type": part.kind.code(), "type_name": part.kind.to_string(),
                    "uuid": is_gpt.then(|| names::uuid(&new.uuid)), "name": is_gpt.then_some(&new.name),
                    "bootable": new.bootable, "image": word.image,
                })
            })
            .collect();
        let id = match table.kind {
            TableKind::Gpt => names::uuid(&table.disk),
            TableKind::Mbr => Some(format!("0x{}", names::hex(&table.disk[..4]))),
        };
        out.json(&json!({
            "disk": args.disk, "table": table.kind.to_string().to_lowercase(), "id": id, "size": layout.size,
            "sector": table.sector, "partitions": parts,
        }));
    } else if !args.quiet {
        let shown = PartitionTable {
            kind: table.kind,
            parts: layout.parts.clone(),
            notes: Vec::new(),
        };
        out.line(format_args!(
            "{}: {} bytes, {shown}",
            args.disk, layout.size
        ));
    }
    out.finish();
}
