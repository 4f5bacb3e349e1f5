//! What it is: random requests against the engine's public interface, many in flight.
//! Input: a volume, its stamped files, a seed. Output: [`Note`]s, each told before what it announces and after what it
//! confirms.
//! Invariants: the same seed asks the same; every sector written carries the number of its action; at the end everything is
//! reaped and the volume closed. Limits: one thread asks; the order of endings is the engine's and the device's.

use crate::error::Result;
use crate::history::{Note, Start, What};
use crate::rng::Rng;
use crate::stamp::{SECTOR, fill};
use diorite::{Completion, File, FileId, OpenFlags, Queue, Request, RequestFlags, Volume};
use diorite_block::Buf;
use std::collections::VecDeque;

/// Requests that may be in flight in each queue.
const DEPTH: u32 = 32;
const QUEUES: usize = 2;

/// What may be asked next. A new operation is a kind here, a case in [`Driver::step`], and a [`What`].
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Overwrite a few sectors, or many.
    Overwrite { dsync: bool },
    /// Through a queue, while others are in flight.
    Sync { data_only: bool },
    /// As a caller would who has nothing else to do.
    BlockingSync,
    /// Ask nothing, take completions.
    Reap,
}

impl Step {
    fn draw(rng: &mut Rng) -> Step {
        match rng.below(40) {
            0..=23 => Step::Overwrite { dsync: false },
            24..=29 => Step::Overwrite { dsync: true },
            30 | 31 => Step::Sync { data_only: false },
            32 => Step::Sync { data_only: true },
            33 => Step::BlockingSync,
            _ => Step::Reap,
        }
    }
}

/// A file that the workload uses.
struct Target {
    file: File,
    /// Sectors that lie inside the size.
    sectors: u64,
    /// As each queue knows it.
    ids: Vec<FileId>,
}

struct Driver<'a> {
    rng: Rng,
    queues: Vec<Queue>,
    batches: Vec<VecDeque<Request>>,
    targets: Vec<Target>,
    /// The number of the next action.
    next: u32,
    sink: &'a mut dyn FnMut(Note) -> Result<()>,
}

/// Runs `actions` actions, numbered from `first`, then closes the volume; gives the number after the last.
///
/// # Errors
/// The volume cannot be used at all, or `sink` fails; a request that fails is told to `sink`.
pub fn run(
    volume: Volume,
    files: &[Start],
    seed: u64,
    (first, actions): (u32, u32),
    sink: &mut dyn FnMut(Note) -> Result<()>,
) -> Result<u32> {
    let queues: Vec<Queue> = (0..QUEUES)
        .map(|_| volume.queue(DEPTH))
        .collect::<std::result::Result<_, _>>()?;
    let targets = files.iter().map(|start| target(&volume, &queues, start));
    let mut driver = Driver {
        rng: Rng::new(seed),
        batches: queues.iter().map(|_| VecDeque::new()).collect(),
        targets: targets.collect::<Result<_>>()?,
        queues,
        next: first,
        sink,
    };
    while driver.next - first < actions {
        let step = Step::draw(&mut driver.rng);
        driver.step(step)?;
    }
    for queue in 0..QUEUES {
        driver.submit(queue)?;
        driver.reap(queue, usize::MAX)?;
    }
    let number = driver.begin(What::Close)?;
    let Driver { sink, .. } = driver;
    volume.close()?;
    sink(Note::Acked(number))?;
    Ok(number + 1)
}

fn target(volume: &Volume, queues: &[Queue], start: &Start) -> Result<Target> {
    let flags = OpenFlags {
        write: true,
        ..OpenFlags::default()
    };
    let file = volume.open_path(&start.path, flags)?;
    let ids = queues.iter().map(|q| q.attach(&file));
    Ok(Target {
        ids: ids.collect::<std::result::Result<_, _>>()?,
        sectors: start.size / SECTOR as u64,
        file,
    })
}

impl Driver<'_> {
    fn step(&mut self, step: Step) -> Result<()> {
        let target = self.rng.below(self.targets.len() as u64) as usize;
        let queue = self.rng.below(QUEUES as u64) as usize;
        match step {
            Step::Overwrite { dsync } => self.overwrite(target, queue, dsync),
            Step::Sync { data_only } => {
                let number = self.begin(What::Sync {
                    file: target as u32,
                })?;
                let id = self.targets[target].ids[queue];
                self.ask(queue, Request::sync(id, data_only, u64::from(number)))
            }
            Step::BlockingSync => {
                let number = self.begin(What::Sync {
                    file: target as u32,
                })?;
                let well = self.targets[target].file.sync().is_ok();
                self.end(number, well)
            }
            Step::Reap => {
                self.submit(queue)?;
                let min = self.rng.below(u64::from(DEPTH)) as usize;
                self.reap(queue, min)
            }
        }
    }

    fn overwrite(&mut self, target: usize, queue: usize, dsync: bool) -> Result<()> {
        let all = self.targets[target].sectors;
        let most = *self.rng.pick(&[1, 8, 8, 16, 128]);
        let mut first = self.rng.below(all);
        if self.rng.one_in(2) {
            first -= first % 8;
        }
        let len = (1 + self.rng.below(most)).min(all - first);
        let (file, sectors) = (target as u32, first..first + len);
        let number = self.begin(What::Overwrite {
            file,
            sectors,
            dsync,
        })?;
        let mut buf = Buf::zeroed(len as usize * SECTOR);
        fill(buf.as_mut_slice(), file, first, number);
        let id = self.targets[target].ids[queue];
        let flags = RequestFlags {
            dsync,
            ..RequestFlags::default()
        };
        let request = Request::write(id, first * SECTOR as u64, buf, u64::from(number));
        self.ask(queue, request.with_flags(flags))
    }

    /// Announces an action; its number.
    fn begin(&mut self, what: What) -> Result<u32> {
        (self.sink)(Note::Begun(what))?;
        self.next += 1;
        Ok(self.next - 1)
    }

    fn end(&mut self, number: u32, well: bool) -> Result<()> {
        (self.sink)(if well {
            Note::Acked(number)
        } else {
            Note::Failed(number)
        })
    }

    /// Puts a request into the queue's batch, and hands the batch over at times.
    fn ask(&mut self, queue: usize, request: Request) -> Result<()> {
        self.batches[queue].push_back(request);
        if self.batches[queue].len() >= DEPTH as usize || self.rng.one_in(3) {
            self.submit(queue)?;
        }
        Ok(())
    }

    fn submit(&mut self, queue: usize) -> Result<()> {
        while !self.batches[queue].is_empty() {
            self.queues[queue].submit(&mut self.batches[queue]);
            if !self.batches[queue].is_empty() {
                self.reap(queue, 1)?;
            }
        }
        Ok(())
    }

    fn reap(&mut self, queue: usize, min: usize) -> Result<()> {
        let mut done: Vec<Completion> = Vec::new();
        let min = min.min(self.queues[queue].in_use());
        self.queues[queue].reap(&mut done, min, None);
        for completion in done {
            let number = u32::try_from(completion.token).expect("tokens are numbers of actions");
            self.end(number, completion.result.is_ok())?;
        }
        Ok(())
    }
}
