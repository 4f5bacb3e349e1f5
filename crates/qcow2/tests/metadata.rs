//! Files whose tables contradict their counts: they are refused for writing, by name, and no byte of them changes.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Image, SEED, at, be64, buf, open, qemu, qemu_says};
use diorite_block::{Bio, BioList, BioOp, Blocking, Buf, QueueOptions};
use std::fs;
use std::path::Path;
use xtask::rng::{Rng, seed_or};

const SIZE: u64 = 4 << 20;

/// A disk with data in some clusters; false if qemu-img is not installed.
fn made(path: &Path, text: &str, options: &str) -> bool {
    let _ = fs::remove_file(path);
    let size = SIZE.to_string();
    let args = ["create", "-q", "-f", "qcow2", "-o", options, text, &size];
    if qemu(&args).is_none() {
        return false;
    }
    let blocking = Blocking::new(open(path, "", false).unwrap());
    for n in 0..6 {
        let written = blocking.run(Bio::write(n * (SIZE / 8), buf(4096, 7), 0));
        written.result.unwrap();
    }
    true
}

/// Opening for writing is refused with a word; the file is as it was; reading is possible, if it is.
fn refused(path: &Path, bytes: &[u8], word: &str, reads: bool) {
    fs::write(path, bytes).unwrap();
    let error = open(path, "", false).err();
    let error = error.unwrap_or_else(|| panic!("{word}: it is opened"));
    let error = error.to_string();
    assert!(error.contains(word), "{word:?} is not in {error:?}");
    assert!(error.contains("qemu-img check"), "no help in {error:?}");
    assert!(fs::read(path).unwrap() == bytes, "{word}: bytes changed");
    let read = open(path, "", true).ok().and_then(|device| {
        let read = Blocking::new(device).read(0, Buf::zeroed(4096));
        read.ok().map(|buf| buf.as_slice() == [7; 4096])
    });
    assert_eq!(read, reads.then_some(true), "{word}");
}

/// The defect: a cluster in use whose count was 0 was given to the next writer, whatever it held: the header, tables, data.
#[test]
fn counts_of_zero_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (path, text) = at(&dir, "disk");
    for options in ["cluster_size=64k", "cluster_size=4k,compat=0.10"] {
        if !made(&path, &text, options) {
            return;
        }
        let good = Image::read(&path);
        let [counts, block, l1, l2, entry] = good.places();
        let data = be64(&good.bytes, entry) & 0x00ff_ffff_ffff_fe00;
        for (offset, word) in [
            (0, "its header"),
            (counts, "its table of reference counts"),
            (block, "a block of reference counts"),
            (l1, "its first table of clusters"),
            (l2, "a table of clusters"),
            (data, "data"),
        ] {
            let mut odd = good.bytes.clone();
            let count = good.count_of(offset);
            odd[count..count + 2].fill(0);
            fs::write(&path, &odd).unwrap();
            let before = qemu_says(&["check", "-f", "qcow2", &text]);
            refused(&path, &odd, word, true);
            let after = qemu_says(&["check", "-f", "qcow2", &text]);
            assert_eq!(before, after, "{word}");
        }
        fs::write(&path, &good.bytes).unwrap();
        qemu(&["check", "-q", "-f", "qcow2", &text]);
        drop(open(&path, "", false).unwrap());
    }
}

/// Entries that lead between clusters, out of the file, to tables or twice to the same cluster, and counts that differ from what an entry
/// says.
#[test]
fn entries_that_cannot_be_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (path, text) = at(&dir, "disk");
    if !made(&path, &text, "cluster_size=64k") {
        return;
    }
    let good = Image::read(&path);
    let [counts, block, l1, l2, entry] = good.places();
    let copied = 1_u64 << 63;
    let data = be64(&good.bytes, entry) as u64 & !copied;
    let (end, table) = (good.bytes.len() as u64, l2 as u64);
    let later = entry + 100 * 8;
    for (place, value, word, reads) in [
        (later, copied | (data + 512), "between two clusters", false),
        (later, copied | (1 << 40), "out of the file", true),
        (
            later,
            copied | end.next_multiple_of(65536),
            "out of the file",
            true,
        ),
        (later, copied | data, "used twice", true),
        (later, copied | table, "used twice", true),
        (later, copied, "unknown bits", true),
        (later, data | 4 | copied, "unknown bits", false),
        (later, 1 << 62 | 3 << 40, "out of the file", true),
        (l1, copied | (1 << 40), "out of the file", false),
        (l1, copied | (table + 512), "between two clusters", false),
        (l1, copied | table | 2, "unknown bits", false),
        (counts + 8, 1 << 40, "out of the file", true),
        (counts + 8, block as u64, "used twice", true),
        (counts, block as u64 + 512, "between two clusters", true),
    ] {
        let mut odd = good.bytes.clone();
        odd[place..place + 8].copy_from_slice(&value.to_be_bytes());
        refused(&path, &odd, word, reads);
    }
    // A count of two, of what an entry says is counted once.
    for offset in [l2 as u64, data] {
        let mut odd = good.bytes.clone();
        let count = good.count_of(offset as usize);
        odd[count..count + 2].copy_from_slice(&[0, 2]);
        refused(&path, &odd, "counted once", true);
    }
    // The next free cluster is far behind the end.
    let mut odd = good.bytes.clone();
    let from = good.count_of(0);
    for count in odd[from..from + good.cluster].chunks_exact_mut(2) {
        count[1] = 1;
    }
    refused(&path, &odd, "far behind", true);
    // Clusters that nobody uses, and entries that say nothing of their count, are no reason.
    let mut odd = good.bytes.clone();
    let count = good.count_of(end as usize - 1) + 2;
    odd[count..count + 2].copy_from_slice(&[0, 1]);
    odd[entry..entry + 8].copy_from_slice(&data.to_be_bytes());
    fs::write(&path, &odd).unwrap();
    let blocking = Blocking::new(open(&path, "", false).unwrap());
    blocking.run(Bio::write(0, buf(512, 9), 0)).result.unwrap();
    drop(blocking);
    let said = qemu_says(&["check", "-f", "qcow2", &text]);
    assert!(!said.contains("ERROR"), "{said}");
}

/// The defect: data behind the end of a file was read as zeros: a file of which a part is missing looked like one with holes.
#[test]
fn data_behind_the_end_is_no_hole() {
    let dir = tempfile::tempdir().unwrap();
    let (path, text) = at(&dir, "disk");
    if !made(&path, &text, "cluster_size=64k") {
        return;
    }
    let good = Image::read(&path);
    let last = (0..6).map(|n| {
        be64(
            &good.bytes,
            good.places()[3] + n * (SIZE as usize / 8 / 65536) * 8,
        )
    });
    let last = last
        .map(|entry| entry & 0x00ff_ffff_ffff_fe00)
        .max()
        .unwrap();
    fs::write(&path, &good.bytes[..last]).unwrap();
    let blocking = Blocking::new(open(&path, "", true).unwrap());
    let failed = (0..6).filter(|n| blocking.read(n * (SIZE / 8), Buf::zeroed(4096)).is_err());
    assert_eq!(failed.count(), 1, "the one that is missing");
    let error = open(&path, "", false).err().unwrap().to_string();
    assert!(error.contains("out of the file"), "{error}");
}

/// The defect: the repair of a file that was not closed counted a cluster behind the end, and left the file too short for it.
#[test]
fn a_repaired_file_is_as_long_as_its_tables_say() {
    let dir = tempfile::tempdir().unwrap();
    let (path, text) = at(&dir, "disk");
    if !made(&path, &text, "cluster_size=64k") {
        return;
    }
    let good = Image::read(&path);
    let places = (0..6).map(|n| good.places()[3] + n * (SIZE as usize / 8 / 65536) * 8);
    let last = places.map(|at| be64(&good.bytes, at) & 0x00ff_ffff_ffff_fe00);
    let last = last.max().unwrap();
    let mut cut = good.bytes[..last - 4096].to_vec();
    cut[79] = 1;
    fs::write(&path, &cut).unwrap();
    let blocking = Blocking::new(open(&path, "", false).unwrap());
    let read = |n: u64| blocking.read(n * (SIZE / 8), Buf::zeroed(4096)).unwrap();
    let kept = (0..6).filter(|n| read(*n).as_slice() == [7; 4096]);
    assert_eq!(kept.count(), 5);
    drop(blocking);
    let said = qemu_says(&["check", "-f", "qcow2", &text]);
    assert!(said.contains("No errors were found"), "{said}");
    // One that is far away is no such thing.
    let far = good.places()[3] + 100 * 8;
    cut[far..far + 8].copy_from_slice(&(1 << 63 | 1_u64 << 40).to_be_bytes());
    fs::write(&path, &cut).unwrap();
    let error = open(&path, "", false).err().unwrap().to_string();
    assert!(error.contains("out of the file"), "{error}");
    assert!(fs::read(&path).unwrap() == cut);
}

/// What else lies in a file stays: compressed clusters; the bitmaps of qemu become out of date; a file with snapshots is only read.
#[test]
fn other_contents_stay() {
    let dir = tempfile::tempdir().unwrap();
    let ((path, text), (_, other)) = (at(&dir, "disk"), at(&dir, "other"));
    if !made(&path, &text, "cluster_size=64k") {
        return;
    }
    let check = |text: &str| qemu(&["check", "-q", "-f", "qcow2", text]);
    let write = |path: &Path, pos: u64| {
        let blocking = Blocking::new(open(path, "", false).unwrap());
        blocking
            .run(Bio::write(pos, buf(4096, 3), 0))
            .result
            .unwrap();
    };
    qemu(&["bitmap", "--add", "-f", "qcow2", &text, "marks"]);
    write(&path, 4096);
    let said = qemu_says(&["check", "-f", "qcow2", &text]);
    assert!(!said.contains("ERROR"), "{said}");
    // They are out of date, so nothing leads to them any more.
    assert!(said.contains("leaked clusters"), "{said}");
    assert!(made(&path, &text, "cluster_size=64k"));
    qemu(&["convert", "-c", "-f", "qcow2", "-O", "qcow2", &text, &other]);
    for n in 0..6 {
        write(Path::new(&other), n * (SIZE / 8) + 8192);
        check(&other);
    }
    qemu(&["snapshot", "-c", "one", &text]);
    let before = fs::read(&path).unwrap();
    let error = open(&path, "", false).err().unwrap().to_string();
    assert!(error.contains("internal snapshots"), "{error}");
    assert!(fs::read(&path).unwrap() == before);
    qemu(&["snapshot", "-d", "one", &text]);
    write(&path, 0);
    check(&text);
}

/// What qemu-img check counts: errors and leaks.
fn faults(text: &str) -> usize {
    let said = qemu_says(&["check", "-f", "qcow2", "--output=json", text]);
    let number = |name: &str| {
        let rest = said.split(&format!("\"{name}\": ")).nth(1);
        let digits = rest.map(|rest| {
            rest.chars()
                .take_while(char::is_ascii_digit)
                .collect::<String>()
        });
        digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
    };
    match said.contains("check-errors") {
        true => number("corruptions") + number("check-errors") * 1000,
        // It is not even opened.
        false => usize::MAX,
    }
}

/// Any bytes of the tables changed: the file is refused, or writing to it makes it no worse, and it grows by what was written.
#[test]
fn tables_changed_by_chance() {
    let dir = tempfile::tempdir().unwrap();
    let (path, text) = at(&dir, "disk");
    let mut dice = Rng::new(seed_or("metadata", SEED));
    let rounds = std::env::var("DIORITE_STEPS")
        .ok()
        .and_then(|s| s.parse().ok());
    let (mut opened, mut shut) = (0, 0);
    for options in [
        "cluster_size=4k",
        "cluster_size=64k,compat=0.10",
        "cluster_size=512,refcount_bits=1",
    ] {
        if !made(&path, &text, options) {
            return;
        }
        let good = Image::read(&path);
        let tables = good.places();
        for round in 0..rounds.unwrap_or(50) {
            let mut odd = good.bytes.clone();
            for _ in 0..=dice.below(2) {
                let table = [&[0][..], &tables[..4]].concat()[dice.below(5) as usize];
                let most = if table == 0 { 104 } else { 40 };
                let at = table
                    + [dice.below(most), dice.below(good.cluster as u64)][dice.below(2) as usize]
                        as usize;
                if let Some(byte) = odd.get_mut(at) {
                    *byte = [0, 1, 0x80, 0xff, dice.below(256) as u8][dice.below(5) as usize];
                }
            }
            fs::write(&path, &odd).unwrap();
            let before = faults(&text);
            let Ok(device) = open(&path, "", false) else {
                assert!(
                    fs::read(&path).unwrap() == odd,
                    "{options} {round}: refused, and changed"
                );
                shut += 1;
                continue;
            };
            opened += 1;
            let size = device.geometry().size.min(SIZE);
            let queue = device.open_queue(QueueOptions::new(16).unwrap()).unwrap();
            let (mut todo, mut done) = (BioList::new(), BioList::new());
            for n in 0..24 {
                let start = dice.below(size / 4096 + 1) * 4096;
                todo.push_back(match dice.below(4) {
                    0 => Bio::range(BioOp::WriteZeroes, start, 65536, n),
                    1 => Bio::read(start, Buf::zeroed(4096), n),
                    _ => Bio::write(start, buf(4096, 5), n),
                });
            }
            while done.len() < 24 {
                queue.submit(&mut todo);
                queue.wait(1, None);
                queue.reap(&mut done);
            }
            drop(queue);
            drop(device);
            let len = fs::metadata(&path).unwrap().len();
            assert!(
                len < odd.len() as u64 + (8 << 20),
                "{options} {round}: {len} bytes"
            );
            let after = faults(&text);
            assert!(
                after <= before,
                "{options} {round}: {before} faults, then {after}"
            );
        }
    }
    assert!(opened > 0 && shut > 0, "{opened} opened, {shut} refused");
}
