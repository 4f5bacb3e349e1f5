use super::*;
use diorite_format::FsBlock;

const BITS: u32 = 11;
const SECTOR: u64 = 512;
const BLOCKS: u64 = 4;

fn len_of(piece: &Piece) -> u32 {
    match piece {
        Piece::Data { len, .. } | Piece::Zero { len } => *len,
        Piece::Pad { .. } => 0,
    }
}

/// Every state of a block on a small file: hole, unwritten, written behind its predecessor, written elsewhere.
fn blocks(code: u64) -> Vec<MappingState> {
    let mut next = 100;
    (0..BLOCKS)
        .map(|i| {
            let state = match code >> (2 * i) & 3 {
                0 => MappingState::Hole,
                1 => MappingState::Unwritten(FsBlock::new(next)),
                2 => MappingState::Written(FsBlock::new(next)),
                _ => {
                    next += 50;
                    MappingState::Written(FsBlock::new(next))
                }
            };
            next += 1;
            state
        })
        .collect()
}

/// Where a byte of the file is on the device, if it is.
fn place(blocks: &[MappingState], byte: u64) -> Option<u64> {
    match blocks[(byte >> BITS) as usize] {
        MappingState::Written(b) => Some((b.get() << BITS) + byte % (1 << BITS)),
        _ => None,
    }
}

fn mappings(
    blocks: &[MappingState],
    first: u64,
) -> impl Iterator<Item = Result<Mapping, NotLoaded>> + '_ {
    (first..BLOCKS).map(|i| {
        Ok(Mapping {
            start: i,
            len: 1,
            state: blocks[i as usize],
        })
    })
}

/// Every range of sectors over every file of four blocks: each byte goes where a naive look-up says (rules G4, B8).
#[test]
fn every_small_file_and_range() {
    let mut pieces = Vec::new();
    for code in 0..1 << (2 * BLOCKS) {
        let blocks = blocks(code);
        let sectors = (BLOCKS << BITS) / SECTOR;
        for from in 0..sectors {
            for to in from + 1..=sectors {
                for max in [512u32, 1536, 1 << 20] {
                    check(
                        &blocks,
                        from * SECTOR,
                        ((to - from) * SECTOR) as u32,
                        max,
                        &mut pieces,
                    );
                }
            }
        }
    }
}

fn check(blocks: &[MappingState], pos: u64, len: u32, max: u32, pieces: &mut Vec<Piece>) {
    let end_block = ((pos + u64::from(len) - 1) >> BITS) + 1;
    let covering = || mappings(blocks, pos >> BITS).take((end_block - (pos >> BITS)) as usize);
    let written = plan(Purpose::Read, covering(), (pos, len), BITS, max, pieces)
        .expect("a read can always be planned");
    let mut at = pos;
    for piece in pieces.iter() {
        assert!(len_of(piece) > 0);
        match *piece {
            Piece::Pad { .. } => panic!("a read writes nothing"),
            Piece::Zero { len } => {
                (at..at + u64::from(len)).for_each(|b| assert_eq!(place(blocks, b), None))
            }
            Piece::Data { at: dev, len } => {
                assert!(len <= max && u64::from(len) % SECTOR == 0);
                (0..u64::from(len))
                    .step_by(512)
                    .for_each(|o| assert_eq!(place(blocks, at + o), Some(dev + o)));
            }
        }
        at += u64::from(len_of(piece));
    }
    assert_eq!(at, pos + u64::from(len));
    let adjacent = |w: &[Piece]| match (w[0], w[1]) {
        (Piece::Data { at: a, len: l }, Piece::Data { at: b, .. }) => {
            a + u64::from(l) == b && l < max
        }
        (Piece::Zero { .. }, Piece::Zero { .. }) => true,
        _ => false,
    };
    assert!(!pieces.windows(2).any(adjacent), "neighbours are merged");

    let all_written = covering().all(|m| {
        matches!(
            m,
            Ok(Mapping {
                state: MappingState::Written(_),
                ..
            })
        )
    });
    let overwrite = plan(
        Purpose::Overwrite,
        covering(),
        (pos, len),
        BITS,
        max,
        pieces,
    );
    assert_eq!(overwrite.is_ok(), all_written);
    if all_written {
        assert_eq!(overwrite, Ok(written));
    }
    if covering().all(|m| {
        !matches!(
            m,
            Ok(Mapping {
                state: MappingState::Hole,
                ..
            })
        )
    }) {
        check_fill(blocks, covering(), (pos, len), max, pieces);
    }
}

/// A write into a file without holes: every sector of the request goes to its place, every other sector of a block that was not written
/// becomes zeros, once, and no sector of a written block does (rules B4, B5, B8).
fn check_fill(
    blocks: &[MappingState],
    covering: impl Iterator<Item = Result<Mapping, NotLoaded>>,
    (pos, len): (u64, u32),
    max: u32,
    pieces: &mut Vec<Piece>,
) {
    let end = pos + u64::from(len);
    plan(Purpose::Fill, covering, (pos, len), BITS, max, pieces).expect("nothing is in the way");
    let (mut data, mut pads) = (Vec::new(), Vec::new());
    for piece in pieces.iter() {
        match *piece {
            Piece::Data { at, len } => data.extend((at..at + u64::from(len)).step_by(512)),
            Piece::Pad { at, len } => pads.extend((at..at + u64::from(len)).step_by(512)),
            Piece::Zero { .. } => panic!("a write of zeros goes to the device"),
        }
    }
    let sector = |byte: u64| match blocks[(byte >> BITS) as usize] {
        MappingState::Written(b) | MappingState::Unwritten(b) => {
            (b.get() << BITS) + byte % (1 << BITS)
        }
        MappingState::Hole => unreachable!("there are none"),
    };
    let asked: Vec<u64> = (pos..end).step_by(512).map(sector).collect();
    assert_eq!(data, asked);
    let around = (pos >> BITS << BITS)..end.next_multiple_of(1 << BITS);
    let mut rest: Vec<u64> = around
        .step_by(512)
        .filter(|b| !(pos..end).contains(b))
        .filter(|b| matches!(blocks[(b >> BITS) as usize], MappingState::Unwritten(_)))
        .map(sector)
        .collect();
    rest.sort_unstable();
    pads.sort_unstable();
    assert_eq!(pads, rest);
}
