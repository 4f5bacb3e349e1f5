//! Raw 4k random reads through a device queue: `raw LOCATOR SECONDS [DEPTH [BATCH [MIN]]]`, to be compared with fio.
#![expect(clippy::print_stdout, reason = "it is its output")]

use diorite_block::{Bio, BioList, BufPool, Locator, OpenOptions, QueueOptions, locator};
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let number = |at: usize, or: u32| args.get(at).and_then(|a| a.parse().ok()).unwrap_or(or);
    let (depth, batch, min) = (number(3, 64), number(4, 32), number(5, 1));
    let engine = args.get(6).map(|e| e.parse()).transpose()?;
    let options = OpenOptions {
        read_only: true,
        io_engine: engine,
        ..OpenOptions::default()
    };
    let device = locator::open(&Locator::parse(&args[1])?, &options)?;
    let time = Duration::from_secs(number(2, 5).into());
    let blocks = device.geometry().size / 4096;
    let pool = BufPool::new(4096, depth as usize);
    let options = QueueOptions::new(depth)?;
    let waker = options.waker.clone();
    let queue = device.open_queue(options)?;
    let (mut todo, mut done) = (BioList::new(), BioList::new());
    let (mut seed, mut count) = (88_172_645_463_325_252u64, 0u64);
    let mut pos = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed >> 11) % blocks * 4096
    };
    for token in 0..u64::from(depth) {
        todo.push_back(Bio::read(pos(), pool.get().ok_or("pool")?, token));
    }
    let start = Instant::now();
    while start.elapsed() < time {
        while !todo.is_empty() {
            let rest = todo.split_off(todo.len().min(batch as usize));
            queue.submit(&mut todo);
            todo.extend(rest);
        }
        if queue.reap(&mut done) == 0 {
            queue.wait(min, None);
            waker.clear();
            queue.reap(&mut done);
        }
        for bio in done.drain(..) {
            bio.result?;
            count += 1;
            todo.push_back(Bio::read(pos(), bio.buf, bio.token));
        }
    }
    let rate = count as f64 / start.elapsed().as_secs_f64();
    println!("{rate:.0} IOPS, {:?}", device.report());
    Ok(())
}
