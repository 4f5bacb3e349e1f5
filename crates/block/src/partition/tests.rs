//! Partition tables as sfdisk makes them, and invalid ones.

use super::*;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

fn disk(bytes: usize) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("disk");
    std::fs::write(&path, vec![0; bytes]).expect("the test's own file");
    (dir, path)
}

fn look(path: &Path, sector: u32, number: u32) -> Result<Partition, DeviceError> {
    let file = std::fs::File::open(path).expect("the test's own file");
    let size = file.metadata().expect("it is open").len();
    let fd = OwnedFd::from(file);
    find(
        Source::new(&fd, 0, size, 512),
        sector,
        number,
        ("disk", false),
    )
}

/// Writes a table with sfdisk; false if it is not installed.
fn sfdisk(path: &Path, script: &str, args: &[&str]) -> bool {
    let child = xtask::run::tool("sfdisk")
        // Without this option sfdisk waits for all file systems of the machine.
        .arg("--no-tell-kernel")
        .args(args)
        .arg(path)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn();
    let Ok(mut child) = child else {
        xtask::skip::skipped("sfdisk is not installed");
        return false;
    };
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(script.as_bytes()).expect("sfdisk listens");
    drop(stdin);
    assert!(child.wait().expect("our own child").success());
    true
}

#[test]
fn gpt_by_sfdisk() {
    let (_dir, path) = disk(16 << 20);
    let script = "label: gpt\nstart=2048, size=4096\nsize=8192\n9: size=2048\n";
    if !sfdisk(&path, script, &[]) {
        return;
    }
    let want = Partition {
        number: 2,
        kind: PartitionKind::Gpt(
            *b"\xaf\x3d\xc6\x0f\x83\x84\x72\x47\x8e\x79\x3d\x69\xd8\x47\x7d\xe4",
        ),
        start: 6144 * 512,
        size: 8192 * 512,
    };
    assert_eq!(look(&path, 512, 2).expect("it is there"), want);
    // An image of a disk with 512-byte sectors on a host with larger ones.
    assert_eq!(look(&path, 4096, 2).expect("it is there"), want);
    let error = look(&path, 512, 3).expect_err("there is none");
    assert!(
        error
            .what
            .contains("its GPT has 1 (Linux filesystem, 2 MiB), 2 (Linux filesystem, 4 MiB)"),
        "{error}"
    );
    assert_eq!(look(&path, 512, 9).expect("it is there").size, 1 << 20);
}

#[test]
fn the_backup_gpt_is_used_when_the_first_is_broken() {
    let (_dir, path) = disk(16 << 20);
    if !sfdisk(&path, "label: gpt\nstart=2048, size=4096\n", &[]) {
        return;
    }
    let mut bytes = std::fs::read(&path).expect("the test's own file");
    bytes[512 + 40] ^= 1;
    std::fs::write(&path, &bytes).expect("the test's own file");
    assert_eq!(look(&path, 512, 1).expect("from the backup").start, 1 << 20);
    let end = bytes.len();
    bytes[end - 512 + 40] ^= 1;
    std::fs::write(&path, &bytes).expect("the test's own file");
    let error = look(&path, 512, 1).expect_err("both are broken");
    assert!(error.what.contains("checksum"), "{error}");
}

/// A later MBR counts, as for sfdisk and the kernel, although the GPT before it is whole.
#[test]
fn a_gpt_that_the_mbr_does_not_announce_is_of_the_past() {
    let (_dir, path) = disk(16 << 20);
    let (_other, newer) = disk(16 << 20);
    if !sfdisk(&path, "label: gpt\nstart=2048, size=4096\n", &[])
        || !sfdisk(&newer, "label: dos\nstart=4096, size=2048, type=83\n", &[])
    {
        return;
    }
    let mut bytes = std::fs::read(&path).expect("the test's own file");
    let mbr = std::fs::read(&newer).expect("the test's own file");
    bytes[..512].copy_from_slice(&mbr[..512]);
    std::fs::write(&path, &bytes).expect("the test's own file");
    assert_eq!(look(&path, 512, 1).expect("of the MBR").start, 2 << 20);
}

#[test]
fn mbr_by_sfdisk_with_logical_partitions() {
    let (_dir, path) = disk(32 << 20);
    let script = "label: dos\nstart=2048, size=4096, type=83\nsize=40000, type=5\n\
                  size=4096, type=83\nsize=6000, type=83\nsize=1000, type=82\n";
    // Lines after the extended partition become logical partitions only if their numbers say so.
    let script = script.replace(
        "size=4096, type=83\nsize=6000",
        "5: size=4096, type=83\n6: size=6000",
    );
    let script = script.replace("size=1000", "7: size=1000");
    if !sfdisk(&path, &script, &[]) {
        return;
    }
    let listed = xtask::run::tool("sfdisk")
        .args(["--dump"])
        .arg(&path)
        .output()
        .expect("installed");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let number = |text: &str, key: &str| -> u64 {
        let rest = text
            .split(key)
            .nth(1)
            .expect("sfdisk names it")
            .trim_start();
        rest.split(',')
            .next()
            .and_then(|n| n.trim().parse().ok())
            .expect("a number")
    };
    let lines: Vec<&str> = listed.lines().filter(|l| l.contains("start=")).collect();
    for (line, n) in lines.iter().zip([1, 2, 5, 6, 7]) {
        let part = look(&path, 512, n).expect("it is there");
        let want = (number(line, "start=") * 512, number(line, "size=") * 512);
        assert_eq!((part.start, part.size), want, "{line}");
    }
    assert_eq!(lines.len(), 5, "{listed}");
}

/// Types by name, sizes with one decimal; unknown types are shown as numbers.
#[test]
fn partitions_in_words() {
    let part = |number, kind, size| {
        let start = 0;
        Partition {
            number,
            kind,
            start,
            size,
        }
        .to_string()
    };
    let shown = [
        (
            part(1, PartitionKind::Mbr(0x83), 3 << 30),
            "1 (Linux, 3 GiB)",
        ),
        (
            part(2, PartitionKind::Mbr(0x42), (3 << 29) + 512),
            "2 (type 0x42, 1.5 GiB)",
        ),
        (part(3, PartitionKind::Mbr(0xef), 512), "3 (EFI, 512 bytes)"),
        (
            part(4, PartitionKind::Gpt([0x11; 16]), 4096),
            "4 (type 11111111-1111-1111-1111-111111111111, 4 KiB)",
        ),
    ];
    for (shown, want) in shown {
        assert_eq!(shown, want);
    }
    assert!(PartitionKind::Mbr(0x83).is_linux() && !PartitionKind::Mbr(0x82).is_linux());
}

#[test]
fn no_table_is_said_so() {
    let (_dir, path) = disk(1 << 20);
    let error = look(&path, 512, 1).expect_err("there is none");
    assert!(error.what.contains("no partition table"), "{error}");
}

/// A boot record: its sector, and the type, the first sector and the length of each entry.
type BootRecord<'a> = (usize, &'a [(u8, u32, u32)]);

/// A disk with these boot records.
fn records(path: &Path, records: &[BootRecord<'_>]) {
    let mut bytes = vec![0; 1 << 20];
    for (sector, entries) in records {
        let record = &mut bytes[sector * 512..][..512];
        for ((kind, first, sectors), at) in entries.iter().zip(record[446..].chunks_mut(16)) {
            at[4] = *kind;
            at[8..12].copy_from_slice(&first.to_le_bytes());
            at[12..].copy_from_slice(&sectors.to_le_bytes());
        }
        record[510..].copy_from_slice(&[0x55, 0xaa]);
    }
    std::fs::write(path, bytes).expect("the test's own file");
}

/// The first sectors of the partitions, by number, as sfdisk sees them.
fn starts_of_sfdisk(path: &Path) -> Option<Vec<(u32, u64)>> {
    let Ok(out) = xtask::run::tool("sfdisk").arg("-d").arg(path).output() else {
        xtask::skip::skipped("sfdisk is not installed");
        return None;
    };
    let text = String::from_utf8(out.stdout).expect("text");
    let name = path.display().to_string();
    let line = |line: &str| {
        let (number, rest) = line.strip_prefix(&name)?.split_once(" : start=")?;
        let start = rest.split(',').next()?.trim().parse().ok()?;
        Some((number.trim_start_matches('p').parse().ok()?, start))
    };
    Some(text.lines().filter_map(line).collect())
}

/// The defects: a logical partition behind the link in its record, or without a type, was not seen, so the next one had its number; a chain
/// that is broken or has no end made all partitions unusable.
#[test]
fn logical_partitions_are_those_of_sfdisk() {
    let (_dir, path) = disk(1 << 20);
    let extended: &[(u8, u32, u32)] = &[(0x83, 10, 20), (5, 64, 1000)];
    let data: &[(u8, u32, u32)] = &[(0x83, 1, 30)];
    for (links, why) in [
        (
            &[(64, &[(5, 100, 50), (0x83, 1, 20)][..]), (164, data)][..],
            "",
        ),
        (&[(64, &[(0, 1, 20), (5, 100, 50)]), (164, data)], ""),
        (&[(64, &[(0, 0, 0), (5, 100, 50)]), (164, data)], ""),
        (&[(64, &[(0x83, 1, 20), (5, 1 << 20, 50)])], "is broken"),
    ] {
        let all: Vec<_> = [(0, extended)]
            .into_iter()
            .chain(links.iter().copied())
            .collect();
        records(&path, &all);
        let Some(known) = starts_of_sfdisk(&path) else {
            return;
        };
        let table = table_of(&path);
        let found = table
            .parts
            .iter()
            .map(|part| (part.number, part.start / 512));
        assert_eq!(found.collect::<Vec<_>>(), known);
        let notes = oddities(&path).join("; ");
        assert_eq!(
            notes.contains("logical partitions is broken"),
            !why.is_empty(),
            "{notes}"
        );
    }
    let looped: &[(u8, u32, u32)] = &[(0x83, 1, 20), (5, 0, 1000)];
    records(&path, &[(0, extended), (64, looped)]);
    assert_eq!(
        look(&path, 512, 1)
            .expect("it is no part of the chain")
            .start,
        5120
    );
    assert_eq!(
        look(&path, 512, 5).expect("it is in the chain").start,
        65 * 512
    );
    let notes = oddities(&path).join("; ");
    assert!(notes.contains("comes back to sector 64"), "{notes}");
}

/// The defect: one entry that makes no sense made a whole GPT unusable.
#[test]
fn a_wrong_entry_of_a_gpt_is_left_out() {
    let (_dir, path) = disk(16 << 20);
    let script = "label: gpt\nstart=2048, size=4096\nsize=8192\n";
    if !sfdisk(&path, script, &[]) {
        return;
    }
    change(&path, 1024 + 32, &u64::MAX.to_le_bytes());
    look(&path, 512, 1).expect_err("it ends before it starts");
    assert_eq!(look(&path, 512, 2).expect("it is whole").size, 8192 * 512);
    let notes = oddities(&path).join("; ");
    assert!(notes.contains("partition 1 is from sector"), "{notes}");
}

/// A header with these fields and a valid checksum.
fn header(entries_at: u64, count: u32, size: u32) -> Vec<u8> {
    let mut header = vec![0; 512];
    header[..8].copy_from_slice(b"EFI PART");
    header[12..16].copy_from_slice(&92u32.to_le_bytes());
    header[24] = 1;
    header[72..80].copy_from_slice(&entries_at.to_le_bytes());
    header[80..84].copy_from_slice(&count.to_le_bytes());
    header[84..88].copy_from_slice(&size.to_le_bytes());
    let crc = gpt::crc32(&header[..92]);
    header[16..20].copy_from_slice(&crc.to_le_bytes());
    header
}

#[test]
fn absurd_gpt_fields_are_errors() {
    assert_eq!(gpt::crc32(b"123456789"), 0xcbf4_3926);
    let absurd = [
        (2, u32::MAX, 128),
        (2, 128, 0),
        (2, 128, 127),
        (2, 2, 1 << 31),
        (u64::MAX, 128, 128),
        (u64::MAX / 512, 128, 128),
        (2047, 128, 128),
    ];
    for (at, count, size) in absurd {
        let (_dir, path) = disk(1 << 20);
        let mut bytes = vec![0; 1 << 20];
        bytes[512..1024].copy_from_slice(&header(at, count, size));
        std::fs::write(&path, bytes).expect("the test's own file");
        let error = look(&path, 512, 1).expect_err("absurd");
        assert!(error.what.contains("its GPT is broken"), "{error}");
    }
}

/// Flips bits of valid tables: every result is accepted, but no panic.
#[test]
fn mutated_tables_never_panic() {
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    eprintln!("seed {seed:#x}");
    let mut draw = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let labels = [
        "label: gpt\nsize=1024\nsize=2048\n",
        "label: dos\nsize=1024\nsize=3000,type=5\n5: size=100\n",
    ];
    for label in labels {
        let (_dir, path) = disk(4 << 20);
        if !sfdisk(&path, label, &[]) {
            return;
        }
        let good = std::fs::read(&path).expect("the test's own file");
        for _ in 0..100 {
            let mut bytes = good.clone();
            for _ in 0..=draw() % 8 {
                let at = match draw() % 3 {
                    0 => 446 + draw() as usize % 66,
                    1 => 512 + draw() as usize % 92,
                    _ => draw() as usize % bytes.len(),
                };
                bytes[at] = draw() as u8;
            }
            std::fs::write(&path, bytes).expect("the test's own file");
            for number in [1, 5, 128] {
                let _ = look(&path, 512, number);
            }
        }
    }
}

fn table_of(path: &Path) -> PartitionTable {
    let file = std::fs::File::open(path).expect("the test's own file");
    let size = file.metadata().expect("it is open").len();
    list(Source::new(&OwnedFd::from(file), 0, size, 512), 512).expect("a table")
}

fn oddities(path: &Path) -> Vec<String> {
    let size = std::fs::metadata(path).expect("it is there").len();
    table_of(path).oddities(size)
}

/// Changes the file, and makes the checksums of the GPT's primary table right again.
fn change(path: &Path, at: usize, bytes: &[u8]) {
    let mut all = std::fs::read(path).expect("the test's own file");
    all[at..at + bytes.len()].copy_from_slice(bytes);
    let sum = gpt::crc32(&all[1024..1024 + 128 * 128]);
    all[600..604].copy_from_slice(&sum.to_le_bytes());
    all[528..532].fill(0);
    let sum = gpt::crc32(&all[512..604]);
    all[528..532].copy_from_slice(&sum.to_le_bytes());
    std::fs::write(path, all).expect("the test's own file");
}

/// What `sfdisk --verify` warns of is said, and more; a partition that shares bytes with another is not opened.
#[test]
fn tables_that_are_odd_are_told_from_others() {
    let (_dir, path) = disk(16 << 20);
    let script = "label: gpt\nstart=2048, size=4096\nsize=8192\n";
    if !sfdisk(&path, script, &[]) {
        return;
    }
    assert_eq!(oddities(&path), [""; 0]);
    let whole = std::fs::read(&path).expect("the test's own file");
    let cases: [(usize, &[u8], &str, bool); 5] = [
        // The last sector of the first partition; the first of the second; the last of the second.
        (
            1024 + 40,
            &6144u64.to_le_bytes(),
            "partitions 1 and 2 overlap",
            false,
        ),
        (
            1024 + 128 + 32,
            &2048u64.to_le_bytes(),
            "partitions 1 and 2 overlap",
            false,
        ),
        (
            1024 + 128 + 40,
            &99_999u64.to_le_bytes(),
            "partition 2 ends behind the disk",
            true,
        ),
        (
            1024 + 32,
            &1u64.to_le_bytes(),
            "partition 1 lies outside",
            true,
        ),
        // The first entry of the MBR covers only the GPT's; another one is a partition.
        (
            446 + 16 + 4,
            &[0x83, 0, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0],
            "its MBR has partitions of its own",
            true,
        ),
    ];
    for (at, bytes, says, opens) in cases {
        std::fs::write(&path, &whole).expect("the test's own file");
        change(&path, at, bytes);
        let said = oddities(&path);
        assert!(
            said.iter().any(|what| what.starts_with(says)),
            "{says}: {said:?}"
        );
        assert_eq!(look(&path, 512, 1).is_ok(), opens, "{says}");
        let told = xtask::run::tool("sfdisk")
            .args(["--verify"])
            .arg(&path)
            .output()
            .expect("sfdisk");
        let text = [told.stdout, told.stderr].concat();
        let is_minded = says.starts_with("its MBR")
            || says.contains("lies outside")
            || !String::from_utf8_lossy(&text).contains("No errors detected");
        assert!(is_minded, "{says}: {}", String::from_utf8_lossy(&text));
    }
    for (at, says) in [
        (
            512 + 30,
            "its GPT is broken: the header's checksum is wrong; this is the backup",
        ),
        (512, "its GPT is not there; this is the backup"),
        (
            (16 << 20) - 512 + 30,
            "its backup GPT is broken: the header's checksum is wrong",
        ),
        ((16 << 20) - 512, "it has no backup GPT at the end"),
    ] {
        let mut bytes = whole.clone();
        bytes[at] ^= 0xff;
        std::fs::write(&path, bytes).expect("the test's own file");
        let said = oddities(&path);
        assert!(
            said.len() == 1 && said[0].starts_with(says),
            "{says}: {said:?}"
        );
        assert_eq!(table_of(&path).parts.len(), 2);
    }
}

/// An extended partition holds its logical ones; that is no overlap. Two logical ones at one place are.
#[test]
fn logical_partitions_lie_in_the_extended_one() {
    let (_dir, path) = disk(16 << 20);
    let script = "label: dos\nstart=2048, size=2048\nstart=4096, type=5\nstart=6144, size=2048\nstart=10240, size=2048\n";
    if !sfdisk(&path, script, &[]) {
        return;
    }
    assert_eq!(oddities(&path), [""; 0]);
    look(&path, 512, 5).expect("it is there");
    // The first partition reaches into the extended one.
    let mut all = std::fs::read(&path).expect("the test's own file");
    all[446 + 12..446 + 16].copy_from_slice(&5000u32.to_le_bytes());
    std::fs::write(&path, all).expect("the test's own file");
    assert!(oddities(&path).contains(&"partitions 1 and 2 overlap".to_owned()));
    assert!(
        look(&path, 512, 1)
            .is_err_and(|e| e.to_string().contains("'?offset=1048576&size=2560000'"))
    );
    look(&path, 512, 6).expect("nobody reaches into it");
}
