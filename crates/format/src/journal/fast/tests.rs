//! Areas built record by record, as the kernel makes them, and the effect of each damaged byte.

use super::*;

const BLOCK: usize = 1024;
const TID: u32 = 7;

/// An area under construction.
#[derive(Default)]
struct Area {
    bytes: Vec<u8>,
    /// Where the current fast commit begins.
    from: usize,
}

impl Area {
    fn new() -> Area {
        let mut area = Area::default();
        area.record(HEAD, &[0u32.to_le_bytes(), TID.to_le_bytes()].concat());
        area
    }

    fn record(&mut self, tag: u16, value: &[u8]) -> &mut Area {
        let len = u16::try_from(value.len()).unwrap();
        self.bytes.extend(tag.to_le_bytes());
        self.bytes.extend(len.to_le_bytes());
        self.bytes.extend(value);
        self
    }

    /// The rest of the block.
    fn left(&self) -> usize {
        BLOCK - self.bytes.len() % BLOCK
    }

    fn pad(&mut self) -> &mut Area {
        let len = self.left() - PREFIX;
        self.record(PAD, &vec![0; len])
    }

    fn tail(&mut self, tid: u32) -> &mut Area {
        let mut value = vec![0; self.left() - PREFIX];
        value[..4].copy_from_slice(&tid.to_le_bytes());
        let at = self.bytes.len();
        self.record(TAIL, &value);
        let sum = csum::crc32c(0, &self.bytes[self.from..at + 8]);
        self.bytes[at + 8..at + 12].copy_from_slice(&sum.to_le_bytes());
        self.from = self.bytes.len();
        self
    }

    fn scan(&self) -> Result<Vec<FastCommit>> {
        scan(&self.bytes)
    }
}

fn scan(bytes: &[u8]) -> Result<Vec<FastCommit>> {
    let mut scan = FastScan::new(Tid::new(TID));
    for block in bytes.chunks(BLOCK) {
        if !scan.block(block)? {
            break;
        }
    }
    Ok(scan.finish().commits)
}

fn numbers(all: &[u32]) -> Vec<u8> {
    all.iter().flat_map(|n| n.to_le_bytes()).collect()
}

fn named(name: &[u8]) -> Vec<u8> {
    [&numbers(&[2, 17]), name].concat()
}

fn whole() -> Area {
    let mut area = Area::new();
    let raw = [&numbers(&[17])[..], &[0x11; 160]].concat();
    area.record(INODE, &raw)
        .record(ADD_RANGE, &numbers(&[17, 3, 20 | 1 << 16, 8450]))
        .record(CREATE, &named(b"a"))
        .pad()
        .record(ADD_RANGE, &numbers(&[17, 23, 32768 + 9, 9000]))
        .record(DEL_RANGE, &numbers(&[17, 7, 0x7FFF_FFFF]))
        .tail(TID)
        .record(LINK, &named(b"b"))
        .record(UNLINK, &named(b"a"))
        .tail(TID);
    area
}

#[test]
fn every_record() {
    let all = whole().scan().unwrap();
    let name = |name: &[u8]| FastName {
        parent: Ino::new(2),
        ino: Ino::new(17),
        name: name.to_vec(),
    };
    let (ino, raw) = (Ino::new(17), vec![0x11; 160]);
    assert_eq!(all.len(), 2);
    assert_eq!(all[0][0], FastRecord::Inode { ino, raw });
    let FastRecord::AddRange { extent, .. } = &all[0][1] else {
        panic!("{:?}", all[0][1]);
    };
    assert_eq!(
        (extent.block.get(), extent.len, extent.unwritten),
        (3, 20, false)
    );
    assert_eq!(extent.start.get(), 1 << 32 | 8450);
    assert_eq!(all[0][2], FastRecord::Create(name(b"a")));
    let FastRecord::AddRange { extent, .. } = &all[0][3] else {
        panic!("{:?}", all[0][3]);
    };
    assert_eq!(
        (extent.block.get(), extent.len, extent.unwritten),
        (23, 9, true)
    );
    let (start, len) = (7, 0x7FFF_FFFF);
    assert_eq!(all[0][4], FastRecord::RemoveRange { ino, start, len });
    let (put, gone) = (FastRecord::Link(name(b"b")), FastRecord::Unlink(name(b"a")));
    assert_eq!(all[1], [put, gone]);
}

/// A changed bit invalidates the fast commit that contains it and those after it, and nothing else. After the checksum of a
/// tail it has no effect.
#[test]
fn every_bit_counts() {
    let good = whole();
    let all = good.scan().unwrap();
    // The first fast commit has two blocks, the second one.
    for at in 0..good.bytes.len() {
        let mut bytes = good.bytes.clone();
        bytes[at] ^= 1 << (at % 8);
        let found = scan(&bytes).unwrap_or_else(|e| panic!("byte {at}: {e}"));
        let before = if at < 2 * BLOCK { &all[..0] } else { &all[..1] };
        assert!(found == all || found == before, "byte {at}: {found:?}");
    }
}

#[test]
fn an_area_cut_anywhere() {
    let good = whole();
    let all = good.scan().unwrap();
    for len in 0..good.bytes.len() {
        let found = scan(&good.bytes[..len]).unwrap();
        let mut zeros = good.bytes.clone();
        zeros[len..].fill(0);
        let with_zeros = scan(&zeros).unwrap();
        assert!(found.len() <= 1 && found == all[..found.len()], "{len}");
        assert!(with_zeros.len() <= 2 && with_zeros == all[..with_zeros.len()]);
    }
}

#[test]
fn fast_commits_of_another_transaction_do_not_count() {
    let mut area = Area::new();
    area.record(LINK, &named(b"b")).tail(TID - 1);
    assert!(area.scan().unwrap().is_empty());
    let mut scan = FastScan::new(Tid::new(TID + 1));
    assert!(!scan.block(&whole().bytes[..BLOCK]).unwrap());
    assert!(scan.finish().commits.is_empty());
}

/// A record that is not understood is refused by name if it counts, and ends the area otherwise.
#[test]
fn records_that_are_not_understood() {
    let long = [b'x'; 256];
    let wrong: [(u16, Vec<u8>, &str); 11] = [
        (0x42, vec![1; 9], "fast commit records with tag 66"),
        (HEAD, numbers(&[0, TID]), "fast commit records with tag 9"),
        (TAIL, vec![1; 7], "fast commit records with tag 8"),
        (ADD_RANGE, numbers(&[17, 3, 1]), "an added range"),
        (ADD_RANGE, numbers(&[17, 3, 0, 99]), "an added range"),
        (ADD_RANGE, numbers(&[17, u32::MAX, 1, 99]), "an added range"),
        (DEL_RANGE, numbers(&[17, 3]), "a removed range"),
        (CREATE, named(b""), "a name"),
        (LINK, named(b"a/b"), "a name"),
        (UNLINK, named(&long), "a name"),
        (INODE, vec![0; 131], "an inode"),
    ];
    for (tag, value, why) in wrong {
        let mut area = Area::new();
        area.record(tag, &value);
        let mut torn = area.bytes.clone();
        torn.resize(BLOCK, 0);
        assert!(scan(&torn).unwrap().is_empty(), "{why}");
        area.tail(TID);
        let said = area.scan().unwrap_err().to_string();
        assert!(said.contains(why), "{said}");
    }
    let mut area = Area::default();
    area.record(HEAD, &numbers(&[4, TID])).tail(TID);
    let said = area.scan().unwrap_err().to_string();
    assert!(said.contains("fast commit features 0x4"), "{said}");
}
