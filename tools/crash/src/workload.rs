//! What it is: random requests to the engine's public interface, many in flight.
//! Input: a volume, its stamped files, a seed. Output: [`Note`]s, each given to the sink before the act that it announces and after
//! the act that it confirms.
//! Invariants: the same seed makes the same requests; every sector that is written has the number of its action; at the end
//! everything is reaped and the volume is closed. Limits: one thread submits; the order of completions depends on the engine and
//! the device.

mod alone;
mod edits;
mod names;

use crate::error::Result;
use crate::history::{Note, Start, Usage, What};
use crate::names::Tree;
use crate::rng::Rng;
use crate::stamp::{OF_APPEND, SECTOR, fill};
use alone::Alone;
use diorite::{Completion, File, FileId, Op, OpenFlags, Queue, Request, RequestFlags, Volume};
use diorite_block::Buf;
use diorite_format::InodeFlags;
use edits::Editor;
use std::collections::VecDeque;
use std::ops::Range;

/// The depth of each queue.
const DEPTH: u32 = 32;
const QUEUES: usize = 2;
/// The first files keep their size and are full of data from the beginning: of their metadata only times change.
const OVERWRITTEN: usize = 2;
/// The size in bytes that every other file may grow to.
const LARGE: u64 = 512 << 10;
/// Upper limits of a request's length in sectors, one of which is chosen at random.
const LENGTHS: [u64; 7] = [1, 1, 2, 8, 8, 16, 128];

/// On average one in this many actions changes a file that is changed by one request at a time.
const ALONE: u64 = 3;
/// On average one in this many actions edits a file through the page cache, or syncs it.
const EDITS: u64 = 4;
/// On average one in this many actions changes the tree of names, or syncs one of its files.
const NAMES: u64 = 3;

/// The next action. A new operation is a kind here, a case in [`Driver::step`], and a [`What`].
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Write a few or many sectors, into data, into holes or unwritten space, or after the end.
    Write { place: Place, dsync: bool },
    /// Append at the end, wherever it is then.
    Append { dsync: bool },
    /// Sync through a queue, while other requests are in flight.
    Sync { data_only: bool },
    /// Sync with a blocking call.
    BlockingSync,
    /// Set or clear the flag that sends the file's data through the journal (chattr +j, -j).
    Toggle,
    /// Submit nothing new; reap completions.
    Reap,
}

/// Where a write goes.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// Before the end that requests so far reach.
    Inside,
    /// At that end, or a little after it.
    Behind,
}

impl Step {
    fn draw(rng: &mut Rng) -> Step {
        let dsync = rng.one_in(5);
        match rng.below(40) {
            0..=16 => Step::Write {
                place: Place::Inside,
                dsync,
            },
            17..=22 => Step::Write {
                place: Place::Behind,
                dsync,
            },
            23..=29 => Step::Append { dsync },
            30 | 31 => Step::Sync { data_only: false },
            32 => Step::Sync { data_only: true },
            33 => Step::BlockingSync,
            34 => Step::Toggle,
            _ => Step::Reap,
        }
    }
}

/// A file that the workload uses.
struct Target {
    file: File,
    start: Start,
    /// The sector after everything requested so far, and the sector that no request goes past.
    end: u64,
    most: u64,
    /// The file's id in each queue.
    ids: Vec<FileId>,
}

struct Driver<'a> {
    volume: &'a Volume,
    rng: Rng,
    queues: Vec<Queue>,
    batches: Vec<VecDeque<Request>>,
    targets: Vec<Target>,
    alone: Vec<Alone>,
    editors: Vec<Editor>,
    /// The tree of names, if the image has one.
    tree: Option<Tree>,
    /// Files that were open when they lost their names: orphans that live across commits.
    held: VecDeque<File>,
    /// The number of the next action.
    next: u32,
    sink: &'a mut dyn FnMut(Note) -> Result<()>,
}

/// Runs `actions` actions, numbered from `first`, then closes the volume; returns the number after the last.
///
/// # Errors
/// The volume cannot be used at all, or `sink` fails. A request that fails is only noted.
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
    // The files that many requests write at the same time come first.
    let used = |usages: &'static [Usage]| {
        let all = files.iter().enumerate();
        all.filter(move |(_, start)| usages.contains(&start.usage))
    };
    let targets = used(&[Usage::Together]);
    let targets = targets.map(|(number, start)| target(&volume, &queues, number, start));
    let alone = used(&[Usage::Alone, Usage::New]);
    let alone = alone.map(|(number, start)| Alone::new(&volume, number, start));
    let editors = used(&[Usage::Cached]);
    let editors = editors.map(|(number, start)| Editor::new(&volume, number, start));
    let mut driver = Driver {
        volume: &volume,
        rng: Rng::new(seed),
        batches: queues.iter().map(|_| VecDeque::new()).collect(),
        targets: targets.collect::<Result<_>>()?,
        alone: alone.collect::<Result<_>>()?,
        editors: editors.collect::<Result<_>>()?,
        tree: names::begin(&volume)?,
        held: VecDeque::new(),
        queues,
        next: first,
        sink,
    };
    while driver.next - first < actions {
        if driver.tree.is_some() && driver.rng.one_in(NAMES) {
            driver.change_names()?;
        } else if driver.rng.one_in(EDITS) {
            driver.edit()?;
        } else if driver.rng.one_in(ALONE) {
            driver.change_alone()?;
        } else {
            let step = Step::draw(&mut driver.rng);
            driver.step(step)?;
        }
    }
    for queue in 0..QUEUES {
        driver.submit(queue)?;
        driver.reap(queue, usize::MAX)?;
    }
    driver.held.clear();
    let number = driver.begin(What::Close)?;
    let Driver { sink, .. } = driver;
    volume.clone().close()?;
    sink(Note::Acked(number))?;
    Ok(number + 1)
}

fn target(volume: &Volume, queues: &[Queue], number: usize, start: &Start) -> Result<Target> {
    let flags = OpenFlags::writable();
    let file = volume.open_path(&start.path, flags)?;
    let ids = queues.iter().map(|q| q.attach(&file));
    Ok(Target {
        ids: ids.collect::<std::result::Result<_, _>>()?,
        end: file.size().div_ceil(SECTOR as u64),
        most: if number < OVERWRITTEN {
            start.size / SECTOR as u64
        } else {
            start.size.max(LARGE).div_ceil(SECTOR as u64) + 128
        },
        start: start.clone(),
        file,
    })
}

fn flags(dsync: bool) -> RequestFlags {
    RequestFlags::default().dsync(dsync)
}

impl Driver<'_> {
    fn step(&mut self, step: Step) -> Result<()> {
        let all = self.targets.len();
        // Half of the steps use the second half of the files, which begins with more space than data.
        let least = if self.rng.one_in(2) { all / 2 } else { 0 };
        let target = least + self.rng.below((all - least) as u64) as usize;
        let queue = self.rng.below(QUEUES as u64) as usize;
        match step {
            Step::Write { place, dsync } => self.write(target, queue, place, dsync),
            Step::Append { dsync } => self.append(target, queue, dsync),
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
                let made = self.targets[target].file.sync();
                self.end(number, made)
            }
            Step::Toggle => {
                let file = self.targets[target].file.clone();
                self.toggle(target as u32, &file)
            }
            Step::Reap => {
                self.submit(queue)?;
                let min = self.rng.below(u64::from(DEPTH)) as usize;
                self.reap(queue, min)
            }
        }
    }

    fn toggle(&mut self, number: u32, file: &File) -> Result<()> {
        let action = self.begin(What::Toggle { file: number })?;
        let journals = InodeFlags::JOURNAL_DATA;
        let made = loop {
            let flags = file.metadata().flags;
            let toggled = if flags.has(journals) {
                flags.without(journals)
            } else {
                flags.with(journals)
            };
            let made = self.volume.set_flags(file.ino(), toggled);
            // A write in flight may have moved inline data into extents since the flags were read; clearing the extents flag is
            // refused.
            if made.is_ok() || file.metadata().flags == flags {
                break made;
            }
        };
        self.end(action, made)
    }

    fn write(&mut self, target: usize, queue: usize, place: Place, dsync: bool) -> Result<()> {
        let sectors = self.range(target, place);
        let (file, of) = (target as u32, &mut self.targets[target]);
        let in_place = sectors.end * SECTOR as u64 <= of.start.size
            && sectors.clone().all(|sector| of.start.has_data(sector));
        of.end = of.end.max(sectors.end);
        let id = of.ids[queue];
        let (first, len) = (sectors.start, sectors.end - sectors.start);
        let number = self.begin(What::Write {
            file,
            sectors,
            dsync,
            in_place,
        })?;
        let mut buf = Buf::zeroed(len as usize * SECTOR);
        fill(buf.as_mut_slice(), file, first, number);
        let request = Request::write(id, first * SECTOR as u64, buf, u64::from(number));
        self.ask(queue, request.with_flags(flags(dsync)))
    }

    /// A random range of sectors of the file.
    fn range(&mut self, target: usize, place: Place) -> Range<u64> {
        let (end, most) = (self.targets[target].end, self.targets[target].most);
        let place = if target < OVERWRITTEN {
            Place::Inside
        } else {
            place
        };
        let mut first = match place {
            Place::Inside => self.rng.below(end.min(most)),
            Place::Behind if self.rng.one_in(3) => end + self.rng.below(40),
            Place::Behind => end,
        };
        if self.rng.one_in(2) {
            first -= first % 8;
        }
        let first = first.min(most - 1);
        let longest = *self.rng.pick(&LENGTHS);
        first..(first + 1 + self.rng.below(longest)).min(most)
    }

    fn append(&mut self, target: usize, queue: usize, dsync: bool) -> Result<()> {
        let longest = *self.rng.pick(&LENGTHS);
        let sectors = 1 + self.rng.below(longest);
        let (file, of) = (target as u32, &mut self.targets[target]);
        // Direct I/O cannot append at an end that is not a multiple of a sector.
        if of.end + sectors > of.most || of.start.size % SECTOR as u64 != 0 {
            return self.write(target, queue, Place::Inside, dsync);
        }
        of.end += sectors;
        let id = of.ids[queue];
        let number = self.begin(What::Append {
            file,
            sectors,
            dsync,
        })?;
        let mut buf = Buf::zeroed(sectors as usize * SECTOR);
        fill(buf.as_mut_slice(), file, OF_APPEND, number);
        let request = Request::append(id, buf, u64::from(number));
        self.ask(queue, request.with_flags(flags(dsync)))
    }

    /// Announces an action; returns its number.
    fn begin(&mut self, what: What) -> Result<u32> {
        (self.sink)(Note::Begun(what))?;
        self.next += 1;
        Ok(self.next - 1)
    }

    fn end(&mut self, number: u32, made: std::result::Result<(), diorite::Error>) -> Result<()> {
        (self.sink)(match made {
            Ok(()) => Note::Acked(number),
            Err(error) => Note::Failed(number, error.to_string()),
        })
    }

    /// Adds a request to the queue's batch, and submits the batch at random.
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
            if completion.op == Op::Append && completion.result.is_ok() {
                (self.sink)(Note::Placed(number, completion.pos / SECTOR as u64))?;
            }
            self.end(number, completion.result.map(drop))?;
        }
        Ok(())
    }
}
