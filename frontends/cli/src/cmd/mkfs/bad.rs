//! Bad blocks of a device: from a list, or found by a test.
//!
//! Input: a file of badblocks(8), or a device. Output: numbers of blocks. Invariants: the read test writes nothing; the write test leaves
//! zeros. Limit: a device that corrects errors silently, or answers from a cache, passes. Source: man mke2fs (-c, -l), badblocks.

use crate::output::report::{Reason, Report};
use diorite_block::{Bio, Blocking, Buf};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of a request.
const PIECE: u64 = 1 << 20;
/// Patterns of the test of writing, as of badblocks -w.
const PATTERNS: [u8; 4] = [0xAA, 0x55, 0xFF, 0x00];

/// The blocks that a file lists, of a file system with so many.
pub(super) fn listed(path: &Path, blocks: u64, report: &mut Report) -> Result<Vec<u64>, Reason> {
    let about = |why: String| Reason::new(format!("{}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|e| about(e.to_string()))?;
    let mut all = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        let block: u64 = line
            .parse()
            .map_err(|_| about(format!("line {}: {line} is no number of a block", n + 1)))?;
        match block < blocks {
            true => all.push(block),
            // As mke2fs.
            false => report.warn(format_args!("Bad block {block} out of range; ignored.")),
        }
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

/// The blocks that cannot be read; `writes`: or that do not give back what is written.
pub(super) fn tested(
    blocking: &Blocking,
    (size, blocks): (u32, u64),
    writes: bool,
    stop: &AtomicBool,
) -> Result<Vec<u64>, Reason> {
    let test = Test {
        blocking,
        size: size.into(),
        stop,
    };
    let mut bad = Vec::new();
    match writes {
        false => test.pass(blocks, None, &mut bad)?,
        true => {
            for pattern in PATTERNS {
                test.pass(blocks, Some(pattern), &mut bad)?;
            }
        }
    }
    bad.sort_unstable();
    bad.dedup();
    Ok(bad)
}

struct Test<'t> {
    blocking: &'t Blocking,
    /// Bytes of a block.
    size: u64,
    stop: &'t AtomicBool,
}

impl Test<'_> {
    fn pass(&self, blocks: u64, pattern: Option<u8>, bad: &mut Vec<u64>) -> Result<(), Reason> {
        if let Some(byte) = pattern {
            self.each(blocks, bad, |at, count| self.write(at, count, byte))?;
            // What a cache keeps is no test of the device.
            if self.blocking.flush().is_err() {
                return Err(Reason::new("the device failed to keep what was written"));
            }
        }
        self.each(blocks, bad, |at, count| self.read(at, count, pattern))
    }

    /// Tries all blocks, many at once, and one after the other those of which some fail.
    fn each(
        &self,
        blocks: u64,
        bad: &mut Vec<u64>,
        is_good: impl Fn(u64, u64) -> Result<bool, Reason>,
    ) -> Result<(), Reason> {
        let per_piece = (PIECE / self.size).max(1);
        for at in (0..blocks).step_by(per_piece as usize) {
            self.go_on()?;
            let count = per_piece.min(blocks - at);
            if is_good(at, count)? {
                continue;
            }
            for one in at..at + count {
                if !is_good(one, 1)? {
                    bad.push(one);
                }
            }
        }
        Ok(())
    }

    fn go_on(&self) -> Result<(), Reason> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(Reason::new("the test was ended")),
            false => Ok(()),
        }
    }

    fn buf(&self, count: u64) -> Result<Buf, Reason> {
        let len = usize::try_from(count * self.size).ok();
        let buf = len.and_then(Buf::try_zeroed);
        buf.ok_or_else(|| Reason::new("there is no memory for the test of the device"))
    }

    fn write(&self, at: u64, count: u64, byte: u8) -> Result<bool, Reason> {
        let mut buf = self.buf(count)?;
        buf.as_mut_slice().fill(byte);
        let written = self.blocking.run(Bio::write(at * self.size, buf, 0));
        Ok(written.result.is_ok())
    }

    fn read(&self, at: u64, count: u64, pattern: Option<u8>) -> Result<bool, Reason> {
        let buf = self.buf(count)?;
        let Ok(read) = self.blocking.read(at * self.size, buf) else {
            return Ok(false);
        };
        Ok(pattern.is_none_or(|byte| read.as_slice().iter().all(|b| *b == byte)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diorite_block::{BioErrorKind, BioOp, Fault, FaultDevice, FaultPlan, MemDevice, When};
    use std::sync::Arc;

    /// Blocks of 4 KiB, some of which fail always.
    fn device(op: BioOp, blocks: [u64; 2]) -> Blocking {
        let always = When::Every(1);
        let fault = |n: u64| {
            Fault::new(BioErrorKind::Io, always)
                .on(op)
                .within(n * 4096..n * 4096 + 1)
        };
        let plan = FaultPlan::new(blocks.map(fault).to_vec(), 1);
        let below = Arc::new(MemDevice::new(8 << 20));
        Blocking::new(Arc::new(FaultDevice::new(below, plan)))
    }

    #[test]
    fn blocks_that_fail_are_found() {
        let stop = AtomicBool::new(false);
        let found = |op, writes| {
            let device = device(op, [700, 2047]);
            tested(&device, (4096, 2048), writes, &stop).expect("the test ends")
        };
        assert_eq!(found(BioOp::Read, false), [700, 2047]);
        assert_eq!(found(BioOp::Read, true), [700, 2047]);
        assert_eq!(found(BioOp::Write, true), [700, 2047]);
        assert!(found(BioOp::Write, false).is_empty());
        stop.store(true, Ordering::Relaxed);
        let ended = tested(&device(BioOp::Read, [1, 2]), (4096, 2048), false, &stop);
        assert!(ended.is_err(), "SIGINT ends it");
    }
}
