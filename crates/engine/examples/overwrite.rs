//! Overwrites a whole file in an image with 256 requests in flight, from one thread.
//!
//!     cargo run --release -p diorite --example overwrite -- disk.img /database
//!
//! Input: an image and a file in it. Output: that file, each block filled with its own number. Invariants: a buffer belongs either
//! to the program or to a request; what was acknowledged is durable after `sync`. Limits: the file's whole blocks of 4 KiB.

use diorite::{Buf, Completion, Error, OpenFlags, OpenOptions, Request, Volume};

const BLOCK: u64 = 4096;
const IN_FLIGHT: u32 = 256;

/// Overwrites `path` in the image. Returns the number of requests that took.
pub fn overwrite(image: &str, path: &str) -> Result<u64, Error> {
    let volume = Volume::open(image, &OpenOptions::writable())?;
    let flags = OpenFlags::writable();
    let file = volume.open_path(path, flags)?;
    let blocks = file.size() / BLOCK;
    let queue = volume.queue(IN_FLIGHT)?;
    let id = queue.attach(&file)?;

    let write = |mut buf: Buf, block: u64| {
        for word in buf.as_mut_slice().chunks_exact_mut(8) {
            word.copy_from_slice(&block.to_le_bytes());
        }
        Request::write(id, block * BLOCK, buf, block)
    };
    let mut next = blocks.min(u64::from(IN_FLIGHT));
    let mut batch: Vec<Request> = (0..next)
        .map(|block| write(Buf::zeroed(BLOCK as usize), block))
        .collect();
    let mut done: Vec<Completion> = Vec::new();
    // Each finished request gives its buffer to the next one.
    while !batch.is_empty() {
        queue.submit_from(&mut batch);
        queue.reap(&mut done, 1, None);
        for ended in done.drain(..) {
            ended.result?;
            if next < blocks {
                batch.push(write(ended.buf, next));
                next += 1;
            }
        }
    }
    while let Some(ended) = queue.reap_one(None) {
        ended.result?;
    }
    file.sync()?;
    drop((queue, file));
    volume.close()?;
    Ok(blocks)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [image, path] = &words[..] else {
        return Err("usage: overwrite IMAGE PATH".into());
    };
    let count = overwrite(image, path)?;
    eprintln!("{path}: {count} blocks overwritten");
    Ok(())
}
