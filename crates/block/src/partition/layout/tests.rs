//! New tables, read by our own reader, which knows tables of sfdisk; sfdisk itself judges those of the command (`frontends/cli/tests`).

use super::*;
use crate::partition::{Source, list};
use rustix::fd::OwnedFd;
use std::io::{Seek, Write};

fn part(size: PartSize, number: u8) -> NewPartition {
    NewPartition {
        size,
        kind: PartitionKind::parse("linux", TableKind::Gpt).expect("a word"),
        name: format!("part {number}"),
        uuid: [number; 16],
        bootable: false,
    }
}

fn table(sizes: &[PartSize], size: DiskSize) -> NewTable {
    NewTable {
        kind: TableKind::Gpt,
        disk: [7; 16],
        sector: 512,
        align: 1 << 20,
        size,
        parts: (1..).zip(sizes).map(|(n, size)| part(*size, n)).collect(),
    }
}

fn in_mbr(mut table: NewTable) -> NewTable {
    table.kind = TableKind::Mbr;
    for part in &mut table.parts {
        part.kind = PartitionKind::Mbr(0x83);
    }
    table
}

/// What our reader finds in a disk with this table.
fn read_back(
    layout: &Layout,
    sector: u32,
    without: Option<usize>,
) -> Option<(TableKind, Vec<Partition>)> {
    let mut file = tempfile::tempfile().expect("a scratch file");
    file.set_len(layout.size).expect("it is sparse");
    for (n, (at, bytes)) in layout.table.iter().enumerate() {
        if without != Some(n) {
            file.seek(std::io::SeekFrom::Start(*at)).expect("ours");
            file.write_all(bytes).expect("ours");
        }
    }
    let fd = OwnedFd::from(file);
    let found = list(Source::new(&fd, 0, layout.size, 512), sector)?;
    Some((found.kind, found.parts))
}

/// Any table that has a layout is read as it was meant, by its backup too; partitions are aligned and share nothing.
#[test]
fn what_is_laid_out_is_read_back() {
    let mut seed = 0x5851_f42d_4c95_7f2d_u64;
    eprintln!("seed {seed:#x}");
    let mut draw = move |most: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % most
    };
    let mut made = 0;
    for round in 0..300 {
        let sizes: Vec<PartSize> = (0..draw(6))
            .map(|_| match draw(8) {
                0 => PartSize::Rest(draw(2) * draw(5 << 20)),
                _ => PartSize::Bytes(1 + draw(9 << 20)),
            })
            .collect();
        let size = match draw(2) {
            0 => DiskSize::Auto,
            _ => DiskSize::Bytes(draw(60 << 8) * 4096),
        };
        let mut table = table(&sizes, size);
        table.sector = [512, 4096][draw(2) as usize];
        table.align = u64::from(table.sector) << draw(12);
        if draw(2) == 0 {
            table = in_mbr(table);
        }
        let Ok(layout) = table.lay_out() else {
            continue;
        };
        made += 1;
        let what = format!("{round}: {table:?}");
        let back = table.back();
        let mut end = layout.table[..layout.table.len() - usize::from(back > 0)]
            .iter()
            .map(|(at, bytes)| at + bytes.len() as u64)
            .max()
            .expect("there is a table");
        for (part, new) in layout.parts.iter().zip(&table.parts) {
            assert!(
                part.start >= end && part.start.is_multiple_of(table.align),
                "{what}"
            );
            let (PartSize::Bytes(least) | PartSize::Rest(least)) = new.size;
            assert!(
                part.size >= least.max(1) && part.size.is_multiple_of(table.sector.into()),
                "{what}"
            );
            end = part.start + part.size;
        }
        assert!(end <= layout.size - back, "{what}");
        if let DiskSize::Bytes(size) = size {
            assert_eq!(layout.size, size, "{what}");
        }
        let wanted = Some((table.kind, layout.parts.clone()));
        match table.kind {
            TableKind::Gpt => {
                for without in [None, Some(0), Some(1)] {
                    assert_eq!(read_back(&layout, table.sector, without), wanted, "{what}");
                }
            }
            // A record without partitions is taken for no table.
            TableKind::Mbr if layout.parts.is_empty() => {}
            TableKind::Mbr => assert_eq!(read_back(&layout, table.sector, None), wanted, "{what}"),
        }
    }
    assert!(made > 100, "{made} of 300 had a layout");
}

/// A partition that takes the rest leaves less than an alignment free, wherever it stands.
#[test]
fn the_rest_is_taken() {
    let some = PartSize::Bytes(3_000_000);
    let rest = PartSize::Rest(0);
    for sizes in [[rest, some, some], [some, rest, some], [some, some, rest]] {
        let layout = table(&sizes, DiskSize::Bytes(64 << 20))
            .lay_out()
            .expect("room");
        let last = layout.parts.last().expect("three");
        let free = layout.size - gpt::back(512) - (last.start + last.size);
        assert!(free < 1 << 20, "{free} bytes are free: {layout:?}");
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let one = PartSize::Bytes(1 << 20);
    let rest = PartSize::Rest(0);
    let odd = |change: &dyn Fn(&mut NewTable)| {
        let mut table = table(&[one, one], DiskSize::Auto);
        change(&mut table);
        table
    };
    let cases = [
        (table(&[one; 129], DiskSize::Auto), "up to 128"),
        (in_mbr(table(&[one; 5], DiskSize::Auto)), "up to 4"),
        (
            in_mbr(table(&[PartSize::Bytes(3 << 40)], DiskSize::Auto)),
            "2^32 sectors",
        ),
        (
            table(&[rest, rest], DiskSize::Bytes(9 << 20)),
            "only one partition",
        ),
        (table(&[rest], DiskSize::Auto), "how large the disk is"),
        (
            table(&[one, rest], DiskSize::Bytes((3 << 20) - 512)),
            "nothing of the disk is left",
        ),
        (
            table(&[one, one], DiskSize::Bytes(3 << 20)),
            "they need 4194304",
        ),
        (table(&[one], DiskSize::Bytes(0)), "do not fit"),
        (table(&[PartSize::Bytes(0)], DiskSize::Auto), "has no bytes"),
        (table(&[PartSize::Bytes(u64::MAX)], DiskSize::Auto), "8 EiB"),
        (
            table(
                &[PartSize::Bytes(MOST), PartSize::Bytes(MOST)],
                DiskSize::Auto,
            ),
            "8 EiB",
        ),
        (table(&[one], DiskSize::Bytes(9_000_001)), "no multiple"),
        (odd(&|t| t.sector = 1024), "sector of 1024"),
        (odd(&|t| t.align = 700), "alignment of 700"),
        (odd(&|t| t.align = 0), "alignment of 0"),
        (odd(&|t| t.align = 1 << 63), "8 EiB"),
        (odd(&|t| t.parts[1].uuid = [1; 16]), "the same UUID"),
        (odd(&|t| t.parts[1].name = "ä".repeat(37)), "36 units"),
        (
            odd(&|t| t.parts[1].kind = PartitionKind::Mbr(0x83)),
            "no type of a GPT",
        ),
        (
            in_mbr(odd(&|t| t.parts.iter_mut().for_each(|p| p.bootable = true))),
            "is active",
        ),
    ];
    for (table, words) in cases {
        let why = table.lay_out().expect_err(words);
        assert!(why.contains(words), "{words:?} is not in {why:?}");
    }
    assert!(
        table(&[one, one], DiskSize::Bytes(4 << 20))
            .lay_out()
            .is_ok()
    );
    assert!(odd(&|t| t.parts[1].name = "ä".repeat(36)).lay_out().is_ok());
}

/// Words are those of systemd-repart and sfdisk; a GUID and a number are read as they are printed.
#[test]
fn types_are_words_or_numbers() {
    let read = |word: &str, table| PartitionKind::parse(word, table).map(|kind| kind.to_string());
    for (word, name) in [
        ("linux", "Linux filesystem"),
        ("esp", "EFI System"),
        ("root-arm64", "Linux root (ARM-64)"),
        ("C12A7328-F81F-11D2-BA4B-00A0C93EC93B", "EFI System"),
        (
            "11111111-2222-3333-4444-555555555566",
            "type 11111111-2222-3333-4444-555555555566",
        ),
    ] {
        assert_eq!(read(word, TableKind::Gpt).as_deref(), Ok(name));
    }
    for (word, name) in [
        ("linux", "Linux"),
        ("esp", "EFI"),
        ("0x42", "type 0x42"),
        ("0xc", "FAT32"),
    ] {
        assert_eq!(read(word, TableKind::Mbr).as_deref(), Ok(name));
    }
    let nobody = "00000000-0000-0000-0000-000000000000";
    for (word, table) in [
        ("", TableKind::Gpt),
        (nobody, TableKind::Gpt),
        ("0x83", TableKind::Gpt),
        ("11111111-2222-3333-4444-55555555556é", TableKind::Gpt),
        ("", TableKind::Mbr),
        ("0x00", TableKind::Mbr),
        ("0x100", TableKind::Mbr),
        ("0x+1", TableKind::Mbr),
        ("root-x86-64", TableKind::Mbr),
        ("bios", TableKind::Mbr),
    ] {
        let why = read(word, table).expect_err(word);
        assert!(why.contains("linux, "), "{why}");
    }
}
