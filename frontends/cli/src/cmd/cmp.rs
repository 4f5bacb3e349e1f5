//! `diorite cmp`: compares a file of an image with a file of the host, byte for byte, with the messages of cmp(1).
//!
//! Input: an image, a path in it, a file of the host or standard input. Output: the place of the first difference. Invariant:
//! nothing after it is read, except requests already in flight. Limits: regular files of the image.

use crate::args::{CmpArgs, Global};
use crate::copying::in_order::Reader;
use crate::images::image::{self, bytes};
use crate::output::Out;
use crate::output::report::{Reason, Report, without_number};
use diorite::Volume;
use diorite_block::check_stdin;
use serde_json::json;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::process::ExitCode;

/// Exit codes: the files differ; they could not be compared.
const DIFFERENT: u8 = 1;
const TROUBLE: u8 = 2;

/// How many bytes of the host's file are read at once.
const CHUNK: usize = 256 << 10;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &CmpArgs) -> ExitCode {
    let mut report = Report::new("cmp", &args.img);
    if let Some(volume) = image::open(&args.img, global, &mut report) {
        match compare(&volume, args) {
            Ok(found) if args.json.on => {
                show(args, &found);
                if !matches!(found, Found::Same) {
                    report.failed(DIFFERENT);
                }
                return report.exit_code();
            }
            Ok(Found::Same) => {}
            Ok(found) => {
                tell(args, &found, &mut report);
                report.failed(DIFFERENT);
                return report.exit_code();
            }
            Err(Trouble::Image(reason)) => report.file(bytes(&args.path), reason),
            Err(Trouble::Host(error)) => {
                let why = without_number(&error.to_string());
                report.host(format_args!("{}: {why}", Path::new(&args.file).display()));
            }
        }
    }
    if report.has_failed() {
        report.failed(TROUBLE);
    }
    report.exit_code()
}

enum Trouble {
    Image(Reason),
    Host(io::Error),
}

/// The result of a comparison.
enum Found {
    Same,
    /// The byte and the line of the first difference, counted from 1.
    Differ {
        byte: u64,
        line: u64,
    },
    /// One of them ends first.
    Ends {
        image: bool,
        at: Place,
    },
}

/// The bytes and lines that were equal so far.
#[derive(Clone, Copy, Default)]
struct Place {
    bytes: u64,
    lines: u64,
    /// The last byte was not a newline.
    is_inside: bool,
}

impl Place {
    fn pass(&mut self, same: &[u8]) {
        self.bytes += same.len() as u64;
        self.lines += same.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.is_inside = same.last().map_or(self.is_inside, |byte| *byte != b'\n');
    }
}

fn compare(volume: &Volume, args: &CmpArgs) -> Result<Found, Trouble> {
    let of_image = |error: diorite::Error| Trouble::Image(error.into());
    let file = image::find(volume, bytes(&args.path), true).map_err(of_image)?;
    let inode = file.metadata();
    if !inode.is_file() {
        let what = crate::words::inode_fields::type_word(inode.file_type);
        return Err(Trouble::Image(Reason::new(format!(
            "Not a regular file ({what})"
        ))));
    }
    let mut other = open(&args.file).map_err(Trouble::Host)?;
    let limit = args.limit.unwrap_or(u64::MAX);
    let (mut place, mut found, mut failed) = (Place::default(), None, None);
    let mut reader = Reader::new(volume).map_err(of_image)?;
    let read = reader.copy(&file, &mut |ours| {
        let left = usize::try_from(limit - place.bytes).unwrap_or(usize::MAX);
        let ours = &ours[..ours.len().min(left)];
        match beside(ours, &mut *other, &mut place) {
            Ok(None) if place.bytes < limit => return Ok(()),
            Ok(None) => found = Some(Found::Same),
            Ok(differ) => found = differ,
            Err(error) => failed = Some(error),
        }
        // The error ends the reading.
        Err(Reason::new("enough was read"))
    });
    match (failed, found, read) {
        (Some(error), ..) => Err(Trouble::Host(error)),
        (_, Some(found), _) => Ok(found),
        (.., Err(reason)) => Err(Trouble::Image(reason)),
        (.., Ok(())) if place.bytes >= limit => Ok(Found::Same),
        (.., Ok(())) => match fill(&mut *other, &mut [0]).map_err(Trouble::Host)? {
            0 => Ok(Found::Same),
            _ => Ok(Found::Ends {
                image: true,
                at: place,
            }),
        },
    }
}

/// Reads the same number of bytes of the other file and compares them.
fn beside(ours: &[u8], other: &mut dyn Read, place: &mut Place) -> io::Result<Option<Found>> {
    let mut theirs = vec![0; CHUNK];
    for ours in ours.chunks(CHUNK) {
        let got = fill(other, &mut theirs[..ours.len()])?;
        let theirs = &theirs[..got];
        let same = ours.iter().zip(theirs).take_while(|(a, b)| a == b).count();
        place.pass(&ours[..same]);
        if same < got {
            return Ok(Some(Found::Differ {
                byte: place.bytes + 1,
                line: place.lines + 1,
            }));
        }
        if got < ours.len() {
            return Ok(Some(Found::Ends {
                image: false,
                at: *place,
            }));
        }
    }
    Ok(None)
}

fn open(file: &OsStr) -> io::Result<Box<dyn Read>> {
    if file == "-" {
        check_stdin()?;
        return Ok(Box::new(io::stdin().lock()));
    }
    Ok(Box::new(File::open(file)?))
}

/// Fills a buffer; returns how many bytes there were before the end.
fn fill(from: &mut dyn Read, to: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < to.len() {
        match from.read(&mut to[got..]) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

/// Prints the result as JSON: the first difference, or which of the two ends first and after how many bytes.
fn show(args: &CmpArgs, found: &Found) {
    let (byte, line, ends) = match *found {
        Found::Same => (None, None, None),
        Found::Differ { byte, line } => (Some(byte), Some(line), None),
        Found::Ends { image, at } => {
            let name = if image { "image" } else { "host" };
            (None, None, Some(json!({"which": name, "bytes": at.bytes})))
        }
    };
    let mut out = Out::new();
    out.json(&json!({
        "image": args.img, "path": args.path.to_string_lossy(), "host": args.file.to_string_lossy(),
        "same": matches!(found, Found::Same), "byte": byte, "line": line, "ends": ends,
    }));
    out.finish();
}

fn tell(args: &CmpArgs, found: &Found, report: &mut Report) {
    if args.silent {
        return;
    }
    let (image, host) = (
        format!("{}:{}", args.img, Path::new(&args.path).display()),
        Path::new(&args.file).display().to_string(),
    );
    match *found {
        Found::Same => {}
        Found::Differ { byte, line } => {
            let mut out = Out::new();
            out.line(format_args!(
                "{image} {host} differ: byte {byte}, line {line}"
            ));
            out.finish();
        }
        Found::Ends { image: first, at } => {
            let name = if first { image } else { host };
            let place = match (at.bytes, at.is_inside) {
                (0, _) => "which is empty".to_owned(),
                (byte, true) => format!("after byte {byte}, in line {}", at.lines + 1),
                (byte, false) => format!("after byte {byte}, line {}", at.lines),
            };
            report.host(format_args!("EOF on {name} {place}"));
        }
    }
}
