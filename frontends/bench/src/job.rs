//! A load described with fio's options: direction, block size, depth, number of threads, time.
//!
//! Input: the command line and the experiments. Output: [`Job`]s for the driver. Invariant: a job that passed [`Job::check`]
//! can run. Limits: one region per job, block sizes of at most 1 GiB.

use super::failure::Failure;
use clap::ValueEnum;
use std::time::Duration;

/// Direction and order of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Rw {
    /// Sequential reads.
    Read,
    /// Sequential overwrites.
    Write,
    /// Random reads.
    Randread,
    /// Random overwrites.
    Randwrite,
    /// Random reads and overwrites, half and half.
    Randrw,
}

impl Rw {
    pub(super) fn writes(self) -> bool {
        !matches!(self, Rw::Read | Rw::Randread)
    }

    pub(super) fn is_random(self) -> bool {
        !matches!(self, Rw::Read | Rw::Write)
    }

    /// The value of fio's option `rw`.
    pub(super) fn word(self) -> &'static str {
        match self {
            Rw::Read => "read",
            Rw::Write => "write",
            Rw::Randread => "randread",
            Rw::Randwrite => "randwrite",
            Rw::Randrw => "randrw",
        }
    }
}

/// How a request is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// Through a queue, many at once.
    Queue,
    /// A blocking call, one at a time.
    Blocking,
}

/// One load.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) rw: Rw,
    /// Bytes per request.
    pub(super) bs: u32,
    pub(super) iodepth: u32,
    /// Threads, each with a queue of its own.
    pub(super) numjobs: u32,
    pub(super) runtime: Duration,
    pub(super) ramp_time: Duration,
    /// The first so many bytes of the target only.
    pub(super) size: Option<u64>,
    pub(super) seed: u64,
    pub(super) verify: bool,
    /// Requests per submission at most.
    pub(super) batch_submit: u32,
    /// Completions to wait for at a time.
    pub(super) batch_complete: u32,
    /// Every write is durable when it is acknowledged.
    pub(super) dsync: bool,
    /// Every write is durable with its times when it is acknowledged.
    pub(super) sync: bool,
    /// Every write is there as a whole after a power cut, or not at all; in files of an image only.
    pub(super) atomic: bool,
    /// Bytes from one block to the next: the block size, or more to leave gaps.
    pub(super) stride: u64,
    pub(super) call: Call,
    /// Waits look for completions for as long before they sleep.
    pub(super) polled: Option<Duration>,
    /// All threads of this process on one CPU.
    pub(super) one_cpu: bool,
    /// Every block once, the threads taking turns; the run ends after the last one.
    pub(super) once: bool,
    /// Writes go to the end of the file, wherever that is.
    pub(super) append: bool,
    /// Every write is followed by an fsync before it counts; blocking calls only.
    pub(super) fsync: bool,
    /// Writes zeros instead of random bytes.
    pub(super) zeros: bool,
    /// A description of the calls, if the load has no reads and writes.
    pub(super) calls: Option<String>,
}

impl Job {
    /// A load of `bs` bytes, `iodepth` deep, one thread, batches of 32 or half the depth.
    pub(super) fn new(rw: Rw, bs: u32, iodepth: u32) -> Job {
        let batch = (iodepth / 2).clamp(1, 32);
        Job {
            rw,
            bs,
            iodepth,
            numjobs: 1,
            runtime: Duration::from_secs(1),
            ramp_time: Duration::from_millis(100),
            size: None,
            seed: 1,
            verify: false,
            batch_submit: batch,
            batch_complete: batch,
            dsync: false,
            sync: false,
            atomic: false,
            stride: u64::from(bs),
            call: Call::Queue,
            polled: None,
            one_cpu: false,
            once: false,
            append: false,
            fsync: false,
            zeros: false,
            calls: None,
        }
    }

    /// Turns it into a load on new space: every block once, and no ramp, which would use up a part of that space.
    pub(super) fn once(self) -> Job {
        Job {
            once: true,
            ramp_time: Duration::ZERO,
            ..self
        }
    }

    /// Turns it into a load of appends.
    pub(super) fn appending(self) -> Job {
        Job {
            append: true,
            ..self.once()
        }
    }

    pub(super) fn jobs(self, numjobs: u32) -> Job {
        Job { numjobs, ..self }
    }

    pub(super) fn blocking(self) -> Job {
        Job {
            call: Call::Blocking,
            iodepth: 1,
            batch_submit: 1,
            batch_complete: 1,
            ..self
        }
    }

    pub(super) fn on_one_cpu(self) -> Job {
        Job {
            one_cpu: true,
            ..self
        }
    }

    /// Blocks of the job that lie in `len` bytes.
    pub(super) fn blocks(&self, len: u64) -> u64 {
        let len = self.size.map_or(len, |s| s.min(len));
        let first = u64::from(self.bs);
        if len < first {
            0
        } else {
            (len - first) / self.stride + 1
        }
    }

    /// Can it run over a target of `len` bytes?
    pub(super) fn check(&self, len: u64) -> Result<(), Failure> {
        let wrong = |what: String| Err(Failure::usage(what));
        if self.bs == 0 || !self.bs.is_multiple_of(512) || self.bs > 1 << 30 {
            return wrong(format!(
                "--bs {}: a multiple of 512, at most 1 GiB",
                self.bs
            ));
        }
        if !(1..=32_768).contains(&self.iodepth) || !(1..=1024).contains(&self.numjobs) {
            return wrong("--iodepth is 1 to 32768, --numjobs 1 to 1024".into());
        }
        if self.blocks(len) < u64::from(self.numjobs) {
            return wrong(format!(
                "{len} bytes are too few for {} jobs of {} bytes",
                self.numjobs, self.bs
            ));
        }
        if self.verify && !self.rw.writes() {
            return wrong("--verify checks what it wrote: use it with a --rw that writes".into());
        }
        Ok(())
    }

    /// A short description, for the head of a row.
    pub(super) fn words(&self) -> String {
        if let Some(calls) = &self.calls {
            return calls.clone();
        }
        let cpus = if self.one_cpu { ", one CPU" } else { "" };
        let call = match self.call {
            Call::Queue => format!("depth {}", self.iodepth),
            Call::Blocking => "blocking".into(),
        };
        let bs = if self.bs.is_multiple_of(1024) {
            format!("{}k", self.bs / 1024)
        } else {
            self.bs.to_string()
        };
        let word = if self.append {
            "append"
        } else {
            self.rw.word()
        };
        let durable = match (self.fsync, self.sync, self.dsync) {
            (true, _, _) => ", fsync",
            (false, true, _) => ", O_SYNC",
            (false, false, true) => ", O_DSYNC",
            (false, false, false) => "",
        };
        let whole = if self.atomic { ", atomic" } else { "" };
        format!(
            "{word} {bs}, {call}, {} jobs{durable}{whole}{cpus}",
            self.numjobs
        )
    }
}

/// `5s`, `500ms`, `2m`; plain numbers are seconds, as in fio.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: f64 = digits
        .parse()
        .map_err(|_| format!("{text:?} is not a time"))?;
    let scale = match &text[digits.len()..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        unit => return Err(format!("{unit:?} is not a unit of time: us, ms, s, m, h")),
    };
    Duration::try_from_secs_f64(number * scale).map_err(|e| format!("{text:?}: {e}"))
}

/// `4k`, `1g`: bytes with a binary suffix.
pub(super) fn parse_bytes(text: &str) -> Result<u64, String> {
    diorite_block::locator::parse_size(text)
}

/// As [`parse_bytes`], for block sizes.
pub(super) fn parse_block(text: &str) -> Result<u32, String> {
    u32::try_from(parse_bytes(text)?).map_err(|_| format!("{text:?} is too large for a block"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_blocks() {
        assert_eq!(parse_duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert!(parse_duration("-1").is_err() && parse_duration("5x").is_err());
        assert_eq!(parse_block("4k"), Ok(4096));
    }

    #[test]
    fn blocks_with_gaps() {
        let job = Job {
            stride: 8192,
            ..Job::new(Rw::Randread, 4096, 1)
        };
        assert_eq!(job.blocks(4096), 1);
        assert_eq!(job.blocks(8192), 1);
        assert_eq!(job.blocks(12_288), 2);
        assert_eq!(job.blocks(100), 0);
    }
}
