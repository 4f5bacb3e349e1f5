//! Files behind an image: who may write them meanwhile, their two bits, and version 2, judged by QEMU's tools.
#![allow(clippy::unwrap_used)]

mod common;

use common::{at, buf, open, qemu};
use diorite_block::device::DeviceErrorKind;
use diorite_block::{
    Bio, Blocking, Buf, Device, Locator, MARKED_CORRUPT, OpenOptions, Stored, WRITER_PRESENT,
    locator,
};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Output;
use std::sync::Arc;

const SIZE: u64 = 4 << 20;
const BITS_AT: u64 = 79;

/// Makes a raw file of sevens, a qcow2 image over it and one over that; false if there is no tool.
fn made(dir: &tempfile::TempDir, options: &str) -> bool {
    fs::write(dir.path().join("raw"), vec![7; SIZE as usize]).unwrap();
    [("raw", "raw", "base"), ("base", "qcow2", "over")]
        .iter()
        .all(|(below, format, name)| {
            let (_, text) = at(dir, name);
            qemu(&[
                "create", "-q", "-f", "qcow2", "-o", options, "-b", below, "-F", format, &text,
            ])
            .is_some()
        })
}

fn qemu_io(format: &str, command: &str, path: &Path) -> Output {
    let mut tool = xtask::run::tool("qemu-io");
    if command.starts_with("read") {
        tool.arg("-r");
    }
    tool.args(["-f", format, "-c", command]).arg(path);
    tool.output().unwrap()
}

fn said(out: &Output) -> String {
    [&out.stdout[..], &out.stderr[..]]
        .map(String::from_utf8_lossy)
        .concat()
}

fn raw(path: &Path, read_only: bool) -> Arc<dyn Device> {
    let options = OpenOptions::default().read_only(read_only);
    locator::open(&Locator::file(path), &options).unwrap()
}

fn read(device: &Arc<dyn Device>, at: u64) -> u8 {
    let read = Blocking::new(device.clone()).read(at, Buf::zeroed(4096));
    read.unwrap().as_slice()[0]
}

fn write(device: &Arc<dyn Device>, at: u64, byte: u8) {
    let written = Blocking::new(device.clone()).run(Bio::write(at, buf(4096, byte), 0));
    written.result.unwrap();
}

/// The defect: a file behind an image was written while the image was read or written, and the reverse.
#[test]
fn nobody_writes_behind_an_open_image() {
    let dir = tempfile::tempdir().unwrap();
    if !made(&dir, "cluster_size=64k") {
        return;
    }
    let has_io = xtask::run::tool("qemu-io").arg("-V").output().is_ok();
    let [raw_file, base, over] = ["raw", "base", "over"].map(|name| at(&dir, name).0);
    // Whoever reads or writes the image lets nobody write what is behind it, at any depth.
    for read_only in [true, false] {
        let image = open(&over, "&backing", read_only).unwrap();
        let of_base = open(&base, "&backing", false).map(drop);
        let of_raw = locator::open(&Locator::file(&raw_file), &OpenOptions::default()).map(drop);
        for (refused, file) in [(of_base, &base), (of_raw, &raw_file)] {
            let error = refused.expect_err("an open image leads to it");
            assert_eq!(error.kind, DeviceErrorKind::Held);
            let me = format!("this process (pid {})", std::process::id());
            for word in [
                &me[..],
                "backing file of an open image",
                file.to_str().unwrap(),
            ] {
                assert!(error.what.contains(word), "{word}: {error}");
            }
        }
        for (format, file) in [("qcow2", &base), ("raw", &raw_file)] {
            if has_io {
                let wrote = said(&qemu_io(format, "write 0 4k", file));
                assert!(wrote.contains("\"write\" lock"), "{wrote}");
            }
            // Readers are let in, and are told of nobody.
            drop(raw(file, true));
        }
        let beside = open(&base, "&backing", true).unwrap();
        assert_eq!(beside.report().fallbacks, Vec::<String>::new());
        assert_eq!(read(&image, 0), 7);
    }
    // Of a writer that was first a reader of the image is told, and no writer of it is let in.
    let by_us = |file: &Path| match file == raw_file {
        true => raw(file, false),
        false => open(file, "&backing", false).unwrap(),
    };
    for file in [&raw_file, &base] {
        let writer = by_us(file);
        let error = open(&over, "&backing", false)
            .map(drop)
            .expect_err("written");
        assert_eq!(error.kind, DeviceErrorKind::Held);
        let named = format!("backing file \"{}\"", file.display());
        for word in [&named[..], "this process", "over?", "?ro", "--ignore-lock"] {
            assert!(error.what.contains(word), "{word}: {error}");
        }
        let image = open(&over, "&backing", true).unwrap();
        let notes = image.report().fallbacks;
        assert!(notes[0].starts_with(WRITER_PRESENT), "{notes:?}");
        assert!(notes[0].contains(&named), "{notes:?}");
        if has_io {
            let is_let_in = qemu_io("qcow2", "read 0 4k", &over).status.success();
            // Of what is behind an image, QEMU looks for the writers of qcow2 files.
            assert_eq!(is_let_in, file == &raw_file);
        }
        // Who is only read beside a writer does not stand in its way.
        drop(writer);
        drop(by_us(file));
        drop(image);
        let forced = OpenOptions::default().force(true);
        let writer = by_us(file);
        let text = format!("{}?format=qcow2&backing", over.display());
        let image = locator::open(&Locator::parse(&text).unwrap(), &forced).unwrap();
        assert!(image.report().fallbacks[0].contains(&named));
        drop((writer, image));
    }
    drop(open(&over, "&backing", false).unwrap());
}

/// Says so of a file, and nothing else of it is changed.
fn mark(path: &Path, bits: u8) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.write_all_at(&[bits], BITS_AT).unwrap();
}

fn bits(path: &Path) -> u8 {
    fs::read(path).unwrap()[BITS_AT as usize]
}

/// The defect: each of three readers had a rule of its own for the dirty bit. Now as QEMU: a reader needs no counts; a writer repairs the
/// file that it writes, and no other; of a file that is marked as corrupt nothing is written, and it is read, with a word.
#[test]
fn bits_of_files_are_for_their_writers() {
    const DIRTY: u8 = 1;
    const CORRUPT: u8 = 2;
    for options in [
        "lazy_refcounts=on",
        "cluster_size=512",
        "compression_type=zstd",
        "extended_l2=on,cluster_size=16k",
    ] {
        let dir = tempfile::tempdir().unwrap();
        if !made(&dir, options) {
            return;
        }
        let [base, over] = ["base", "over"].map(|name| at(&dir, name).0);
        let is_written = !options.contains("zstd") && !options.contains("extended");
        for (file, bit) in [
            (&base, DIRTY),
            (&over, DIRTY),
            (&base, CORRUPT),
            (&over, CORRUPT),
        ] {
            mark(file, bits(file) | bit);
            let image = open(&over, "&backing", true).unwrap();
            assert_eq!(read(&image, 64 << 10), 7, "{options}");
            let warned = image.report().fallbacks;
            let is_warned = warned.iter().any(|note| note.starts_with(MARKED_CORRUPT));
            assert_eq!(is_warned, bit == CORRUPT, "{warned:?}");
            assert_eq!(bits(file), bits(file) | bit, "it was only read");
            drop(image);
            if is_written {
                let writer = open(&over, "&backing", false);
                match (bit == CORRUPT, file == &over) {
                    (true, true) => {
                        let why = writer.map(drop).unwrap_err().to_string();
                        assert!(why.contains("marked as corrupt"), "{why}");
                    }
                    (_, is_over) => {
                        let image = writer.unwrap();
                        write(&image, 0, 9);
                        assert_eq!((read(&image, 0), read(&image, 1 << 20)), (9, 7));
                        drop(image);
                        let left = if is_over { 0 } else { bit };
                        assert_eq!(bits(file), left);
                    }
                }
            }
            // The feature of zstd is one of the same byte.
            let clean = bits(file) & !(DIRTY | CORRUPT);
            mark(file, clean);
        }
        for name in ["base", "over"] {
            qemu(&["check", "-q", "-f", "qcow2", &at(&dir, name).1]).unwrap();
        }
    }
}

/// The defect: the format of a backing file was not read from the header of version 2, so such images were refused.
#[test]
fn version_2_names_the_format_of_what_is_behind_it() {
    for options in ["compat=0.10", "compat=0.10,cluster_size=512"] {
        let dir = tempfile::tempdir().unwrap();
        if !made(&dir, options) {
            return;
        }
        let [(over, text), (model, model_text)] = ["over", "model"].map(|name| at(&dir, name));
        let mut disk = vec![7; SIZE as usize];
        let image = open(&over, "&backing", false).unwrap();
        for n in 0..200_u64 {
            let pos = (n * 7919 * 4096) % SIZE;
            write(&image, pos, n as u8);
            disk[pos as usize..][..4096].fill(n as u8);
        }
        let runs = image.stored(0..SIZE, 100).unwrap();
        assert!(runs.iter().all(|run| run.stored == Stored::Data));
        drop(image);
        fs::write(&model, &disk).unwrap();
        qemu(&["check", "-q", "-f", "qcow2", &text]).unwrap();
        qemu(&[
            "compare",
            "-q",
            "-f",
            "raw",
            "-F",
            "qcow2",
            &model_text,
            &text,
        ])
        .unwrap();
        let image = open(&over, "&backing", true).unwrap();
        let whole = Blocking::new(image).read(0, Buf::zeroed(SIZE as usize));
        assert!(whole.unwrap().as_slice() == disk, "{options}");
        // Its header still says so.
        let info = qemu(&["info", "-f", "qcow2", &text]).unwrap();
        assert!(info.contains("backing file format: qcow2"), "{info}");
        // As of a writer that knew no extensions: the name comes first, and the format is not known.
        let mut header = fs::read(&over).unwrap();
        header[8..20].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 72, 0, 0, 0, 4]);
        header[72..76].copy_from_slice(b"base");
        fs::write(&over, &header).unwrap();
        let why = open(&over, "&backing", true)
            .map(drop)
            .unwrap_err()
            .to_string();
        assert!(why.contains("does not say the format"), "{why}");
    }
}

/// What is stored where is known of the files behind an image, too: whoever copies it leaves out what nobody wrote.
#[test]
fn holes_behind_an_image_are_known() {
    let dir = tempfile::tempdir().unwrap();
    let ((_, base), (over, text)) = (at(&dir, "base"), at(&dir, "over"));
    if qemu(&["create", "-q", "-f", "qcow2", &base, "1M"]).is_none() {
        return;
    }
    let image = open(Path::new(&base), "", false).unwrap();
    write(&image, 512 << 10, 5);
    drop(image);
    qemu(&[
        "create", "-q", "-f", "qcow2", "-b", &base, "-F", "qcow2", &text,
    ])
    .unwrap();
    for read_only in [true, false] {
        let image = open(&over, "&backing", read_only).unwrap();
        let runs = image.stored(0..1 << 20, 100).unwrap();
        let seen: Vec<_> = runs.iter().map(|run| (run.stored, run.len >> 10)).collect();
        assert_eq!(
            seen,
            [(Stored::Hole, 512), (Stored::Data, 64), (Stored::Hole, 448)]
        );
    }
}
