//! Random requests against a byte-array model: each thread has a region of a file, and checks what its requests return.
//!
//! Input: a file, its contents, a region, which may reach past the end. Output: the expected region. Invariants: a thread never has
//! two requests in flight over the same bytes if one of them writes; every completion is compared, counted and matched with its
//! token. Limits: regions of different threads do not overlap.

use super::Rng;
use super::recipe::Known;
use diorite::{Completion, File, Op, Request, RequestFlags, Volume};
use diorite_block::Buf;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

/// What a buffer holds before a read. Bytes past the end of a short read must keep it, or be zero.
const UNTOUCHED: u8 = 0xEE;

struct Asked {
    op: Op,
    pos: u64,
    len: usize,
}

struct Region<'a> {
    file: &'a File,
    model: Known,
    range: Range<u64>,
    logical: u64,
    dma: usize,
}

impl Region<'_> {
    fn size(&self) -> u64 {
        self.model.bytes.len() as u64
    }

    /// A random range, in multiples of the logical block. At times it reaches a little past the end of the file.
    fn pick(&self, rng: &mut Rng) -> (u64, usize) {
        let (block, l) = (self.model.block, self.logical);
        let end = self.range.end.min(self.size() + 4 * block);
        let span = end.saturating_sub(self.range.start) / l;
        if span == 0 {
            return (self.range.start.next_multiple_of(l), 0);
        }
        let most = match rng.below(10) {
            0..=3 => block / l,
            4..=7 => 8 * block / l,
            8 => 70 * block / l,
            _ => 0,
        };
        let mut pos = self.range.start + rng.below(span) * l;
        let mut len = if most == 0 {
            0
        } else {
            (1 + rng.below(most)) * l
        };
        if rng.below(3) == 0 {
            pos -= pos % block;
            pos = pos.max(self.range.start);
            len = len.next_multiple_of(block);
        }
        (pos, len.min((end - pos) / l * l) as usize)
    }

    /// A buffer of `len` bytes, at times in several parts.
    fn buf(&self, rng: &mut Rng, len: usize) -> Buf {
        if len < 1024 || rng.below(3) != 0 {
            return Buf::zeroed(len);
        }
        let mut parts = Vec::new();
        let mut left = len;
        while left > 0 {
            // Odd sizes where the device allows them (rule G2).
            let step = self.dma.max(if self.logical == 512 && self.dma == 1 {
                1
            } else {
                512
            });
            let most = (left / step).max(1);
            let part = ((1 + rng.below(most as u64) as usize) * step).min(left);
            parts.push(Buf::zeroed(part));
            left -= part;
        }
        Buf::from_parts(parts)
    }

    fn check(&self, asked: &Asked, done: &Completion) {
        let Asked { op, pos, len } = *asked;
        let path = &self.model.path;
        assert_eq!(
            (done.op, done.pos, done.buf.len()),
            (op, pos, len),
            "{path}"
        );
        let bytes: Vec<u8> = done.buf.parts().flatten().copied().collect();
        match op {
            Op::Read => {
                let expect = (self.size().saturating_sub(pos) as usize).min(len);
                assert!(
                    matches!(done.result, Ok(n) if n == expect),
                    "{path}: read {pos}+{len}: {:?}, expected {expect}",
                    done.result
                );
                let want = &self.model.bytes[pos.min(self.size()) as usize..][..expect];
                if let Some(at) = (0..expect).find(|i| bytes[*i] != want[*i]) {
                    panic!(
                        "{path}: read {pos}+{len}: byte {at} is {:#x}, not {:#x}",
                        bytes[at], want[at]
                    );
                }
                assert!(
                    bytes[expect..].iter().all(|b| *b == UNTOUCHED || *b == 0),
                    "{path}: read {pos}+{len}: bytes past the end are somebody's"
                );
            }
            Op::Write | Op::WriteAtomic | Op::Append => {
                let ok = matches!(&done.result, Ok(n) if *n == len);
                assert!(ok, "{path}: write {pos}+{len}: {:?}", done.result);
            }
            Op::Sync | Op::DataSync | Op::SyncVolume | Op::Truncate | Op::Fallocate(_) => {
                assert!(matches!(done.result, Ok(0)), "{:?}", done.result)
            }
        }
    }
}

/// Runs `requests` random requests over `range` of the file with several queues and blocking calls. Returns the model.
pub fn storm(
    volume: &Volume,
    file: &File,
    known: &Known,
    range: Range<u64>,
    requests: u64,
    rng: &mut Rng,
) -> Known {
    let geometry = volume.device().geometry();
    let mut region = Region {
        file,
        model: known.clone(),
        range,
        logical: u64::from(geometry.logical),
        dma: geometry.dma_align as usize,
    };
    let mut asked = 0;
    while asked < requests {
        let now = (1 + rng.below(400)).min(requests - asked);
        if rng.below(8) == 0 {
            blocking(&mut region, now.min(20), rng);
        } else {
            queued(volume, &mut region, now, rng);
        }
        asked += now;
    }
    region.model
}

fn fill(buf: &mut Buf, bytes: &[u8]) {
    buf.copy_in(0, bytes);
}

fn blocking(region: &mut Region<'_>, requests: u64, rng: &mut Rng) {
    for _ in 0..requests {
        let (pos, len) = region.pick(rng);
        let op = if rng.below(2) == 0 {
            Op::Read
        } else {
            Op::Write
        };
        let asked = Asked { op, pos, len };
        let mut buf = region.buf(rng, len);
        let mut bytes = vec![UNTOUCHED; len];
        if op == Op::Write {
            rng.fill(&mut bytes);
        }
        fill(&mut buf, &bytes);
        let (buf, result) = region.file.call(op, pos, buf, RequestFlags::default());
        let done = Completion {
            token: 0,
            op,
            pos,
            buf,
            result,
        };
        region.check(&asked, &done);
        if op == Op::Write && len > 0 && done.result.is_ok() {
            region.model.write(pos, &bytes);
        }
    }
}

fn queued(volume: &Volume, region: &mut Region<'_>, requests: u64, rng: &mut Rng) {
    let depth = [1, 2, 3, 16, 64, 200][rng.below(6) as usize];
    let queue = volume.queue(depth).unwrap();
    let id = queue.attach(region.file).unwrap();
    let mut flying: HashMap<u64, (Asked, Vec<u8>)> = HashMap::new();
    let (mut batch, mut done) = (VecDeque::new(), Vec::new());
    let (mut token, mut ended) = (0, 0);
    while ended < requests {
        while token < requests && flying.len() < 2 * depth as usize && rng.below(20) != 0 {
            let (pos, len) = region.pick(rng);
            let op = match rng.below(40) {
                0 => {
                    if rng.below(2) == 0 {
                        Op::DataSync
                    } else {
                        Op::Sync
                    }
                }
                1..=20 => Op::Read,
                _ => Op::Write,
            };
            let len = if matches!(op, Op::Sync | Op::DataSync) {
                0
            } else {
                len
            };
            let end = pos + len as u64;
            // A read that reaches the end of the file may see either size while a write moves it, so the two do not run together.
            let moves = |op, end| op == Op::Write && end > region.size();
            let meets = |op, end| op == Op::Read && end > region.size();
            let clash = flying.values().any(|(a, _)| {
                let a_end = a.pos + a.len as u64;
                let overlap = a.pos < end && pos < a_end;
                (a.op == Op::Write || op == Op::Write) && overlap
                    || moves(a.op, a_end) && meets(op, end)
                    || meets(a.op, a_end) && moves(op, end)
            });
            if clash {
                break;
            }
            let mut buf = region.buf(rng, len);
            let mut bytes = vec![UNTOUCHED; len];
            if op == Op::Write {
                rng.fill(&mut bytes);
            }
            fill(&mut buf, &bytes);
            let flags = RequestFlags::default().dsync(rng.below(8) == 0);
            let request = Request {
                op,
                file: id,
                pos,
                buf,
                len: 0,
                token,
                flags,
            };
            batch.push_back(request);
            flying.insert(token, (Asked { op, pos, len }, bytes));
            token += 1;
        }
        queue.submit(&mut batch);
        let min = if flying.is_empty() {
            0
        } else {
            rng.below(3) as usize
        };
        queue.reap(
            &mut done,
            min.min(queue.in_use()),
            Some(Duration::from_secs(30)),
        );
        for done in done.drain(..) {
            let (asked, bytes) = flying
                .remove(&done.token)
                .expect("rule G5: once, and only what was asked");
            region.check(&asked, &done);
            if asked.op == Op::Write && asked.len > 0 && done.result.is_ok() {
                region.model.write(asked.pos, &bytes);
            }
            ended += 1;
        }
    }
    assert_eq!((queue.in_use(), flying.len()), (0, 0));
}
