//! A task does not submit the requests of others without end.
#![allow(clippy::unwrap_used, missing_docs)]

use diorite::device::MemDevice;
use diorite::{Buf, Device, OpenOptions, Volume};
use diorite_async::{AsyncFile, AsyncVolume, Io};
use diorite_block::{BioList, DeviceError, DeviceQueue, Geometry, QueueOptions, forward_queue};
use futures_lite::future::{block_on, poll_once};
use std::pin::Pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

/// The thread whose submissions are announced, and where; each waits for an answer.
type Watched = Arc<Mutex<Option<(ThreadId, Sender<()>, Receiver<()>)>>>;

struct Announced(MemDevice, Watched);

impl Device for Announced {
    fn below(&self) -> Option<&dyn Device> {
        Some(&self.0)
    }

    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn open_queue(&self, options: QueueOptions) -> Result<Box<dyn DeviceQueue>, DeviceError> {
        Ok(Box::new(AnnouncedQueue(
            self.0.open_queue(options)?,
            self.1.clone(),
        )))
    }
}

struct AnnouncedQueue(Box<dyn DeviceQueue>, Watched);

impl DeviceQueue for AnnouncedQueue {
    forward_queue! { 0 => below, reap, wait, in_flight }

    fn submit(&self, bios: &mut BioList) {
        let watched = self.1.lock().unwrap();
        if let Some((thread, tell, answered)) = &*watched
            && *thread == std::thread::current().id()
        {
            tell.send(()).unwrap();
            answered.recv().unwrap();
        }
        drop(watched);
        self.0.submit(bios);
    }
}

const MOST: usize = 1000;

/// Whenever the task of this thread submits something, another one asks for more.
#[test]
fn a_task_submits_for_others_a_few_times_only() {
    let watched = Watched::default();
    let device: Arc<dyn Device> = Arc::new(Announced(MemDevice::new(16 << 20), watched.clone()));
    let options = diorite::mkfs::MkfsOptions::new([1; 16], [2; 16], 1_700_000_000);
    diorite::mkfs::mkfs(&device, &options).unwrap();
    let volume = Volume::open_device(device, &OpenOptions::writable()).unwrap();
    let volume = AsyncVolume::new(volume, 2048).unwrap();
    let file = block_on(volume.create("/data", 0o644)).unwrap();
    block_on(file.write_at(0, Buf::zeroed(4096))).1.unwrap();
    let read = |file: &AsyncFile| Box::pin(file.read_at(0, Buf::zeroed(4096)));
    let (tell, told) = channel();
    let (answer, answered) = channel();
    *watched.lock().unwrap() = Some((std::thread::current().id(), tell, answered));
    let others = std::thread::spawn({
        let file = file.clone();
        move || {
            let mut asked: Vec<Pin<Box<Io>>> = Vec::new();
            for () in told {
                if asked.len() < MOST {
                    asked.push(read(&file));
                    let polled = block_on(poll_once(asked.last_mut().unwrap().as_mut()));
                    assert!(polled.is_none());
                }
                answer.send(()).unwrap();
            }
            let count = asked.len();
            // None of them is forgotten.
            asked.into_iter().for_each(|io| {
                block_on(io).1.unwrap();
            });
            count
        }
    });
    let mut mine = read(&file);
    assert!(block_on(poll_once(mine.as_mut())).is_none());
    *watched.lock().unwrap() = None;
    let count = others.join().unwrap();
    block_on(mine).1.unwrap();
    assert!(count < 16, "{count} requests of others");
}
