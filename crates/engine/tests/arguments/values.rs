//! Arguments that callers may pass: numbers at every edge, buffers of every shape, paths of every kind.
//!
//! Input: seeded randomness. Output: arguments. Most are valid, so that the code after the checks is reached, too. Invariants: none
//! of its own. Limits: one buffer in some hundreds is larger than 1 MiB, so that a run does not spend its time on clearing memory.

use crate::common::Rng;
use diorite::policy::PRESETS;
use diorite::{Buf, Fallocate, Op, OpenFlags, Policy, RequestFlags};

/// Sizes and offsets at which behaviour changes.
const EDGES: [u64; 20] = [
    0,
    512,
    1024,
    4096,
    8192,
    16384,
    65536,
    100_001,
    1 << 20,
    1 << 30,
    1 << 31,
    1 << 32,
    (1 << 32) * 1024,
    (1 << 32) * 4096,
    1 << 44,
    1 << 52,
    1 << 62,
    1 << 63,
    u64::MAX - 511,
    u64::MAX,
];

/// The number of edges, from the end of the list, that no valid request reaches.
const ABSURD: u64 = 12;

/// One of these.
pub fn one<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.below(of.len() as u64) as usize]
}

/// True once in `n` times.
pub fn rarely(rng: &mut Rng, n: u64) -> bool {
    rng.below(n) == 0
}

/// A byte offset or a length.
pub fn number(rng: &mut Rng) -> u64 {
    match rng.below(10) {
        0..=4 => rng.below(4096) * 512,
        5 => rng.below(2 << 20),
        6 | 7 => one(rng, &EDGES[..EDGES.len() - ABSURD as usize]),
        _ => {
            let near = [0, 1, 2, 511, 512, 513, 1023, 4095, 4096, 4097];
            let (edge, by) = (one(rng, &EDGES), one(rng, &near));
            match rng.below(3) {
                0 => edge,
                1 => edge.wrapping_add(by),
                _ => edge.wrapping_sub(by),
            }
        }
    }
}

/// The length of a range: mostly one that fits into a small volume, since a larger one first allocates all space, and frees it
/// again when it is refused.
pub fn length(rng: &mut Rng) -> u64 {
    match rarely(rng, 12) {
        true => number(rng),
        false => number(rng) % (4 << 20),
    }
}

/// Memory for a request: mostly aligned as a device requires.
pub fn buf(rng: &mut Rng) -> Buf {
    match rng.below(200) {
        0..=99 => filled(rng, &[512, 1024, 4096, 8192, 16384, 65536]),
        100..=139 => filled(rng, &[512, 1536, 2048, 3584, 4608, 66048]),
        140..=149 => filled(rng, &[0, 1, 511, 513, 4095, 4097]),
        150..=159 => {
            let skip = one(rng, &[1usize, 2, 3, 256, 511, 512, 4095]);
            Buf::zeroed(skip + 4096).split_off(skip)
        }
        160..=195 => vectored(rng),
        196 => Buf::empty(),
        197 => filled(rng, &[1 << 20, (1 << 20) + 512]),
        198 => Buf::zeroed(one(rng, &[(1 << 30) + 512, (1 << 31) - 512, 1 << 31])),
        // Longer than 32 bits can count, from parts that are not.
        _ => Buf::from_parts(vec![Buf::zeroed(1 << 31), Buf::zeroed(1 << 31)]),
    }
}

fn filled(rng: &mut Rng, sizes: &[usize]) -> Buf {
    let mut buf = Buf::zeroed(one(rng, sizes));
    let byte = rng.next() as u8;
    buf.as_mut_slice().fill(byte);
    buf
}

fn vectored(rng: &mut Rng) -> Buf {
    let mut parts: Vec<Buf> = (0..1 + rng.below(5))
        .map(|_| Buf::zeroed(one(rng, &[0usize, 1, 255, 511, 512, 513, 1024, 4096, 5000])))
        .collect();
    // Mostly whole sectors in total.
    let len: usize = parts.iter().map(Buf::len).sum();
    if !rarely(rng, 4) {
        parts.push(Buf::zeroed(len.next_multiple_of(512) - len));
    }
    Buf::from_parts(parts)
}

pub fn request_flags(rng: &mut Rng) -> RequestFlags {
    RequestFlags::none()
        .nowait(rarely(rng, 5))
        .dsync(rarely(rng, 6))
        .sync(rarely(rng, 8))
}

pub fn open_flags(rng: &mut Rng) -> OpenFlags {
    OpenFlags::default()
        .write(!rarely(rng, 5))
        .dsync(rarely(rng, 5))
        .sync(rarely(rng, 8))
        .direct(rarely(rng, 5))
}

pub fn fallocate(rng: &mut Rng) -> Fallocate {
    let keep_size = rarely(rng, 2);
    match rng.below(6) {
        0 => Fallocate::Allocate { keep_size },
        1 => Fallocate::PunchHole,
        2 => Fallocate::ZeroRange { keep_size },
        3 => Fallocate::CollapseRange,
        4 => Fallocate::InsertRange,
        _ => Fallocate::WriteZeroes { keep_size },
    }
}

pub fn op(rng: &mut Rng) -> Op {
    match rng.below(20) {
        0..=4 => Op::Read,
        5..=10 => Op::Write,
        11 | 12 => Op::Append,
        13 => Op::Sync,
        14 => Op::DataSync,
        15 => Op::SyncVolume,
        16 => Op::Truncate,
        _ => Op::Fallocate(fallocate(rng)),
    }
}

/// A preset, or a preset with one switch changed.
pub fn policy(rng: &mut Rng) -> Policy {
    let mut policy = one(rng, &PRESETS).1;
    let other = one(rng, &PRESETS).1;
    if rarely(rng, 2) {
        policy.new_space = other.new_space;
        policy.extending = other.extending;
    }
    if rarely(rng, 2) {
        policy.unaligned = other.unaligned;
    }
    policy
}

/// The name of a target, or a path that leads to none.
pub fn path(rng: &mut Rng) -> Vec<u8> {
    let name = |n: u64| format!("/t{n}").into_bytes();
    match rng.below(24) {
        0..=13 => name(rng.below(6)),
        14 => format!("/d{}", rng.below(3)).into_bytes(),
        15 | 16 => format!("/d{}/t{}", rng.below(3), rng.below(6)).into_bytes(),
        17 => [name(rng.below(6)), b"/".to_vec()].concat(),
        18 => [name(rng.below(6)), b"/x".to_vec()].concat(),
        19 => one::<&[u8]>(
            rng,
            &[b"", b"/", b"//", b".", b"/..", b"/./", b"/d0/..", b"/d0/."],
        )
        .to_vec(),
        20 => [
            b"/".to_vec(),
            vec![b'n'; one(rng, &[1, 254, 255, 256, 1000, 70_000])],
        ]
        .concat(),
        21 => one::<&[u8]>(rng, &[b"/\xff", b"/a\0b", b"/\n", b"/d0/\xfe\xff"]).to_vec(),
        _ => format!("/l{}", rng.below(3)).into_bytes(),
    }
}
