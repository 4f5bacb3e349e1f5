//! Describes a device whatever is on it: how it was opened, how its bytes are stored, which partitions it has.
//!
//! Input: a locator. Output: lines, or one JSON object with `image`, `size`, `stored` (`data`, `zero` and `hole` in bytes, `runs`,
//! `looked_at`), `partitions` (`[{"number", "type", "start", "size", "locator"}]`), `warnings` about the partition
//! table, and `device`. Invariants: nothing is written; the device
//! is asked for a bounded number of runs, and bytes that it was not asked for are not counted. Limits: partition tables of files and
//! devices of the host.

use super::device::{describe, text};
use crate::args::{Global, InfoArgs};
use crate::images::device::{self, Opened};
use crate::output::Out;
use crate::output::report::Report;
use diorite::Error;
use diorite_block::device::Stored;
use diorite_block::locator::FileLocator;
use diorite_block::{Device, Locator, PartitionTable};
use serde_json::{Value, json};

/// How many runs a device is asked for at once, and how often.
const RUNS: usize = 4096;
const TIMES: usize = 64;

/// See the module.
pub(super) struct Whole {
    opened: Opened,
    stored: Sum,
    /// The disk, and its partitions.
    disk: Option<(FileLocator, PartitionTable)>,
}

impl Whole {
    /// The device at a locator.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(super) fn of(img: &str, global: &Global) -> Result<Whole, Error> {
        let locator = Locator::parse(img)?;
        let opened = device::open(&locator, &device::options(global, false))?;
        let disk = match locator {
            Locator::File(file) if file.part.is_none() => {
                let table = file.partitions().ok().flatten();
                table.map(|table| (file, table))
            }
            _ => None,
        };
        Ok(Whole {
            stored: Sum::of(opened.device.as_ref()),
            opened,
            disk,
        })
    }

    /// Prints it.
    pub(super) fn show(&self, args: &InfoArgs, report: &Report) {
        for doubt in self.opened.doubts() {
            report.warn(format_args!("{}: {doubt}", args.img));
        }
        let mut out = Out::new();
        if args.json.on {
            out.json(&self.json(&args.img));
        } else {
            for line in self.lines() {
                out.line(line);
            }
        }
        out.finish();
    }

    fn lines(&self) -> Vec<String> {
        let mut lines = text(self.opened.device.as_ref());
        let padded = self.opened.device.geometry().size - self.opened.size;
        if padded > 0 {
            lines.push(format!(
                "Length:            {} bytes, and zeros to the end of the last sector",
                self.opened.size
            ));
        }
        lines.push(format!("Stored:            {}", self.stored.text()));
        let odd = self.oddities();
        lines.extend(odd.map(|what| format!("Partition table:   warning: {what}")));
        for (file, part) in self
            .disk
            .iter()
            .flat_map(|(f, t)| t.parts.iter().map(move |p| (f, p)))
        {
            lines.push(format!(
                "Partition:         {part}, at byte {}: '{}'",
                part.start,
                locator_of(file, part.number)
            ));
        }
        lines
    }

    /// What is wrong with the partition table.
    fn oddities(&self) -> impl Iterator<Item = String> {
        let of = |(_, table): &(FileLocator, PartitionTable)| table.oddities(self.opened.size);
        self.disk.as_ref().map(of).into_iter().flatten()
    }

    fn json(&self, img: &str) -> Value {
        let parts = self.disk.iter().flat_map(|(file, table)| {
            table.parts.iter().map(move |part| {
                json!({
                    "number": part.number, "type": part.kind.to_string(), "start": part.start, "size": part.size,
                    "locator": locator_of(file, part.number),
                })
            })
        });
        let Sum {
            data,
            zero,
            hole,
            runs,
            looked_at,
            ..
        } = self.stored;
        json!({
            "image": img,
            "size": self.opened.size,
            "stored": {"data": data, "zero": zero, "hole": hole, "runs": runs, "looked_at": looked_at},
            "partitions": parts.collect::<Vec<Value>>(),
            "warnings": self.oddities().collect::<Vec<String>>(),
            "device": describe(self.opened.device.as_ref()),
        })
    }
}

fn locator_of(disk: &FileLocator, number: u32) -> String {
    let part = FileLocator {
        part: Some(number),
        ..disk.clone()
    };
    Locator::File(part).to_string()
}

/// How the bytes of a device are stored.
#[derive(Debug, Default)]
struct Sum {
    data: u64,
    zero: u64,
    hole: u64,
    runs: u64,
    /// How many bytes from the beginning were counted.
    looked_at: u64,
    size: u64,
}

impl Sum {
    fn of(device: &dyn Device) -> Sum {
        let mut sum = Sum {
            size: device.geometry().size,
            ..Sum::default()
        };
        for _ in 0..TIMES {
            if sum.looked_at >= sum.size {
                break;
            }
            let some = device
                .stored(sum.looked_at..sum.size, RUNS)
                .unwrap_or_default();
            if some.is_empty() {
                break;
            }
            for run in some {
                sum.add(run.len, run.stored);
            }
        }
        sum
    }

    fn add(&mut self, len: u64, stored: Stored) {
        let len = len.min(self.size - self.looked_at);
        let kind = match stored {
            Stored::Data => &mut self.data,
            Stored::Zero => &mut self.zero,
            Stored::Hole => &mut self.hole,
        };
        *kind += len;
        self.runs += 1;
        self.looked_at += len;
    }

    fn text(&self) -> String {
        let all = match self.looked_at == self.size {
            true => String::new(),
            false => format!(", of the first {} bytes", self.looked_at),
        };
        format!(
            "{} bytes of data, {} of zeros with space, {} of holes, in {} runs{all}",
            self.data, self.zero, self.hole, self.runs
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diorite_block::MemDevice;

    #[test]
    fn the_sum_is_of_all_bytes() {
        let memory = MemDevice::new(1 << 20);
        memory.write_at(512 << 10, &[1; 100]);
        let sum = Sum::of(&memory);
        let seen = (sum.data, sum.zero, sum.hole, sum.runs, sum.looked_at);
        assert_eq!(seen, (64 << 10, 0, (1 << 20) - (64 << 10), 3, 1 << 20));
        let mut odd = Sum {
            size: 4096,
            ..Sum::default()
        };
        odd.add(u64::MAX, Stored::Hole);
        odd.add(1, Stored::Data);
        assert_eq!((odd.hole, odd.data, odd.looked_at), (4096, 0, 4096));
    }
}
