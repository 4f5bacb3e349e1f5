//! A device against a byte array: many requests in flight, never two over the same bytes.

use crate::devices::Subject;
use crate::open;
use diorite_block::{Bio, BioList, BioOp, Buf, DeviceQueue};
use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

const SPACE: u64 = 1 << 20;
const DEPTH: u32 = 24;

pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }
}

struct Model {
    bytes: Vec<u8>,
    /// Bytes that a discard has made undefined.
    undefined: Vec<bool>,
    flying: HashMap<u64, Range<usize>>,
}

pub(crate) fn compare(subject: &Subject, seed: u64, requests: u64) {
    let queue = open(subject, DEPTH);
    let block = u64::from(subject.device.geometry().logical);
    let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut model = Model {
        bytes: vec![0; SPACE as usize],
        undefined: vec![false; SPACE as usize],
        flying: HashMap::new(),
    };
    for token in 0..requests {
        let bio = loop {
            match model.draw(&mut rng, block, token, subject) {
                Some(bio) => break bio,
                None => model.reap(&*queue, seed, subject),
            }
        };
        let mut list = BioList::from([bio]);
        queue.submit(&mut list);
        while !list.is_empty() {
            model.reap(&*queue, seed, subject);
            queue.submit(&mut list);
        }
    }
    while !model.flying.is_empty() {
        model.reap(&*queue, seed, subject);
    }
}

impl Model {
    /// A random request that overlaps nothing in flight, already applied to the array; none if it overlaps.
    fn draw(&mut self, rng: &mut Rng, block: u64, token: u64, subject: &Subject) -> Option<Bio> {
        let blocks = 1 + rng.below(32);
        let start = rng.below(SPACE / block - blocks) * block;
        let range = start as usize..(start + blocks * block) as usize;
        let op = rng.below(16);
        if op == 0 {
            self.flying.insert(token, 0..0);
            return Some(Bio::flush(token));
        }
        let meets = |r: &Range<usize>| r.start < range.end && range.start < r.end;
        if self.flying.values().any(meets) {
            return None;
        }
        self.flying.insert(token, range.clone());
        let (pos, len) = (start, range.len());
        let geometry = subject.device.geometry();
        Some(match op {
            1 if geometry.discard => {
                self.undefined[range].fill(true);
                Bio::range(BioOp::Discard, pos, len as u64, token)
            }
            2 | 3 if geometry.write_zeroes => {
                self.set(range, 0);
                let op = if op == 2 {
                    BioOp::WriteZeroes
                } else {
                    BioOp::WriteZeroesUnmap
                };
                Bio::range(op, pos, len as u64, token)
            }
            4..=9 => {
                let byte = token as u8;
                self.set(range, byte);
                let mut buf = Buf::zeroed(len);
                buf.as_mut_slice().fill(byte);
                let mut bio = Bio::write(pos, buf, token);
                bio.flags.fua = rng.below(4) == 0;
                bio
            }
            _ => Bio::read(pos, Buf::zeroed(len), token),
        })
    }

    fn set(&mut self, range: Range<usize>, byte: u8) {
        self.bytes[range.clone()].fill(byte);
        self.undefined[range].fill(false);
    }

    fn reap(&mut self, queue: &dyn DeviceQueue, seed: u64, subject: &Subject) {
        let mut out = BioList::new();
        if queue.reap(&mut out) == 0 {
            queue.wait(1, Some(Duration::from_secs(10)));
        }
        for bio in out {
            let place = format!("{}, seed {seed}, request {}", subject.name, bio.token);
            assert!(
                bio.result.is_ok(),
                "{place}, {:?}: {:?}",
                bio.op,
                bio.result
            );
            let range = self.flying.remove(&bio.token).expect("it ends once");
            if bio.op == BioOp::Read {
                let differs = range
                    .clone()
                    .zip(bio.buf.as_slice())
                    .find(|(at, byte)| !self.undefined[*at] && self.bytes[*at] != **byte);
                assert_eq!(differs, None, "{place}: the first byte that differs");
            }
        }
    }
}
