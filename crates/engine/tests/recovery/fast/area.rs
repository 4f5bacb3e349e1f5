//! Finds the fast commits of each step by parsing tags and lengths, up to the last tail of the current transaction.
//!
//! Input: images of the same volume, one after each step. Output: the blocks of each step, and images in which the fast commits
//! from some step on are invalid. Invariants: a step that also made a full commit is never the first one that is made invalid.
//! Limits: journals inside the volume.

use crate::common::Rng;
use crate::common::log::{Log, MAGIC};
use std::ops::Range;

/// The type of a commit block.
const COMMIT: u32 = 2;

pub(super) struct Area {
    block: usize,
    /// The offset in the image of each block of the fast commit area.
    places: Vec<usize>,
    /// The offset of each block of the normal log.
    log: Vec<usize>,
    /// The transaction of the newest head tag.
    head: u32,
    /// For each step, the blocks that it wrote; None if it wrote none.
    spans: Vec<Option<Range<usize>>>,
    /// The first step since the last full commit.
    first: usize,
}

impl Area {
    pub(super) fn of(log: &Log, bytes: &[u8]) -> Area {
        let be32 = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        let sb = log.byte_of(0);
        let (maxlen, blocks) = (be32(sb + 0x10), be32(sb + 0x54));
        let blocks = if blocks == 0 { 256 } else { blocks };
        let places = (maxlen - blocks + 1..maxlen)
            .map(|n| log.byte_of(n))
            .collect();
        Area {
            block: log.block,
            places,
            log: (1..maxlen - blocks).map(|n| log.byte_of(n)).collect(),
            head: 0,
            spans: Vec::new(),
            first: 0,
        }
    }

    /// Records the end of a step.
    pub(super) fn note(&mut self, image: &[u8]) {
        let step = self.spans.len();
        let le32 = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap());
        let head = le32(self.places[0] + 8);
        let before = self.spans.last().cloned().flatten();
        let from = before
            .filter(|_| head == self.head)
            .map_or(0, |span| span.end);
        if from == 0 {
            self.first = step;
        }
        let is_over = self.log.iter().any(|at| {
            let be32 = |n: usize| u32::from_be_bytes(image[at + n..at + n + 4].try_into().unwrap());
            be32(0) == MAGIC && be32(4) == COMMIT && be32(8) >= head
        });
        // After a later full commit none of the fast commits is valid.
        let end = if is_over { from } else { self.end(image, head) };
        self.head = head;
        self.spans.push((from < end).then_some(from..end));
        if from >= end {
            self.first = step + 1;
        }
    }

    /// One past the last block with a tail of this transaction.
    fn end(&self, image: &[u8], head: u32) -> usize {
        let mut end = 0;
        for (n, at) in self.places.iter().enumerate() {
            let block = &image[*at..*at + self.block];
            let number = |at: usize, len: usize| {
                (0..len)
                    .rev()
                    .fold(0u32, |sum, n| sum << 8 | u32::from(block[at + n]))
            };
            let mut at = 0;
            while at + 8 <= block.len() {
                match number(at, 2) {
                    0 => return end,
                    8 if number(at + 4, 4) == head => end = n + 1,
                    8 => return end,
                    _ => {}
                }
                at += 4 + number(at + 2, 2) as usize;
            }
        }
        end
    }

    pub(super) fn has_some(&self) -> bool {
        self.spans.last().is_some_and(Option::is_some)
    }

    /// Makes the fast commits from some recent step on invalid, or leaves all as they are. Returns what was done, and the last step
    /// that is still valid.
    pub(super) fn spoil(&self, image: &mut [u8], rng: &mut Rng) -> (String, usize) {
        let last = self.spans.len() - 1;
        let steps: Vec<usize> = (self.first + 1..=last)
            .filter(|n| self.spans[*n].is_some())
            .collect();
        if steps.is_empty() || rng.below(4) == 0 {
            return ("whole".into(), last);
        }
        let step = steps[rng.below(steps.len() as u64) as usize];
        let span = self.spans[step].clone().unwrap();
        let all = &self.places[span.start..];
        let at = self.places[span.start];
        let how = match rng.below(5) {
            0 => {
                all.iter()
                    .for_each(|at| image[*at..*at + self.block].fill(0));
                "zeros from"
            }
            1 => {
                image[at..at + self.block].fill(0);
                "a hole at"
            }
            2 => {
                let bit = rng.below(12 * 8) as usize;
                image[at + bit / 8] ^= 1 << (bit % 8);
                "a bit turned at"
            }
            3 => {
                all.iter()
                    .for_each(|at| rng.fill(&mut image[*at..*at + self.block]));
                "noise from"
            }
            _ => {
                // The first sector of the first block was not written.
                image[at..at + 512.min(self.block)].fill(0);
                "a torn block at"
            }
        };
        (format!("{how} step {step}"), step - 1)
    }

    /// Replaces the first fast commit by one with a record whose tag is unknown.
    pub(super) fn add_unknown_tag(&self, image: &mut [u8]) {
        let at = self.places[0];
        let mut block = image[at..at + 12].to_vec();
        let tid = block[8..12].to_vec();
        block.extend([0x42, 0, 3, 0, 1, 2, 3]);
        let rest = (self.block - block.len() - 4) as u16;
        block.extend([8, 0]);
        block.extend(rest.to_le_bytes());
        block.extend(&tid);
        let sum = diorite_format::csum::crc32c(0, &block);
        block.extend(sum.to_le_bytes());
        block.resize(self.block, 0);
        image[at..at + self.block].copy_from_slice(&block);
    }
}
