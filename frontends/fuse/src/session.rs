//! The session: threads that each receive a request, execute it and reply.
//!
//! | file | takes -> gives |
//! |---|---|
//! | this one | a volume and a mount point -> a mount that is served |
//! | `settle` | the kernel's first request -> what both sides can do |
//! | `lane` | one thread's requests -> replies |
//! | `lent` | requests that may block, of a thread that must not -> other threads |
//! | `stats` | requests -> counts |
//!
//! Input: a volume and a mount point. Output: a mount; when it is unmounted, the volume, with everything made durable. Invariants: no
//! request waits for another one's thread, but behind one in memory that ends soon; the memory of each thread is touched before the mount
//! appears. A request that may block for long, as a sync, leaves as many threads for others as there were at the start: further ones are
//! started for that. Limits: 64 threads, 128 if the others wait for the kernel; reads and writes block a thread each. With io_uring each
//! processor has threads for its requests.

mod lane;
mod lent;
mod settle;
mod stats;

pub use settle::settle;
pub use stats::Stats;

use crate::fs::FileSystem;
use crate::options::MountOptions;
use crate::transport::{
    Channel, Crowd, Incoming, Line, MOST_PROCESSORS, Ring, processors, rings_of_each,
};
use crate::wire::can;
use diorite::{Error, Volume};
use lane::{Crew, Lane};
use lent::Lent;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::mount::MountFlags;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;

/// A mount that is being served.
///
/// ```no_run
/// use diorite::{OpenOptions, Volume};
/// use diorite_fuse::{MountOptions, Mounted, mount};
/// use std::path::Path;
///
/// # fn main() -> std::io::Result<()> {
/// let options = MountOptions::default();
/// let path = Path::new("/mnt/image");
/// let point = std::fs::File::open(path)?.into();
/// let volume = Volume::open("disk.img", &OpenOptions::writable())?;
/// let fuse = mount(path, &point, &options)?;
/// let mut mounted = Mounted::serve(volume, fuse, options)?;
/// mounted.wait(); // until somebody unmounts it
/// mounted.closer().close()?; // everything is durable, or this says why not
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "requests of the mount are answered only while this is there; its closer says whether everything is durable"]
pub struct Mounted {
    fs: Arc<FileSystem>,
    threads: Receiver<JoinHandle<()>>,
    stats: Arc<Stats>,
}

/// Why a volume could not be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The first request made no sense, or is of a protocol that is too old.
    #[error("the kernel's FUSE: {0}")]
    Protocol(String),
    /// No memory or no threads.
    #[error("no memory or threads for the session")]
    Host,
}

/// The error becomes the source.
impl From<StartError> for std::io::Error {
    fn from(error: StartError) -> std::io::Error {
        let kind = match error {
            StartError::Protocol(_) => std::io::ErrorKind::Unsupported,
            StartError::Host => std::io::ErrorKind::OutOfMemory,
        };
        std::io::Error::new(kind, error)
    }
}

impl Mounted {
    /// Serves `volume` to the mount that `fuse` is a descriptor of: see [`crate::mount`]. Returns when the mount can be used. Blocks.
    ///
    /// # Errors
    /// The kernel is too old; there is no memory. The volume is dropped then.
    pub fn serve(
        volume: Volume,
        fuse: OwnedFd,
        options: MountOptions,
    ) -> Result<Mounted, StartError> {
        let count = options.threads.unwrap_or_else(default_threads);
        let wants_rings = options.wants_rings();
        let places = places_of(&volume, &options);
        let stats = Arc::new(Stats::default());
        let first = Channel::new(fuse, options.busy_poll);
        // All memory is there before the kernel is told what is possible.
        let rings = match wants_rings {
            true => rings(&first, count, places),
            false => Vec::new(),
        };
        let (begun, threads) = channel();
        let fs = Arc::new(FileSystem::new(volume, options, first.another()));
        let lent = Arc::new(Lent::default());
        let crew = |least: u16| {
            Arc::new(Crew {
                lent: lent.clone(),
                fs: fs.clone(),
                stats: stats.clone(),
                least: usize::from(least),
                numbers: AtomicUsize::new(0),
                threads: AtomicUsize::new(0),
                slow: AtomicUsize::new(0),
                begun: begun.clone(),
            })
        };
        let by_device = crew(count);
        let mut starter = Lane::new(Line::Device(first.clone()), memory()?, &by_device);
        let both = starter.begin(!rings.is_empty())?;
        let has_rings = both & can::OVER_IO_URING != 0;
        let mut lanes = vec![starter];
        if has_rings {
            first.has_rings();
            if let Some((ring, _)) = rings.iter().flatten().next() {
                let _first = stats.crowd.set(ring.crowd().clone());
            }
            // FORGET and INTERRUPT still come by the device.
            for of_processor in rings {
                let crew = crew(u16::try_from(of_processor.len()).unwrap_or(u16::MAX));
                lanes.extend(
                    of_processor.into_iter().map(|(ring, request)| {
                        Lane::new(Line::Ring(Box::new(ring)), request, &crew)
                    }),
                );
            }
        } else {
            for _ in 1..count {
                let line = Line::Device(first.another());
                lanes.push(Lane::new(line, memory()?, &by_device));
            }
        }
        let (tell, started) = channel();
        for lane in lanes {
            lane.spawn(tell.clone()).map_err(|_| StartError::Host)?;
        }
        drop((tell, begun));
        let refused =
            |e: Errno| StartError::Protocol(format!("io_uring: {e} (-o noio_uring does without)"));
        let all: Result<(), Errno> = started.iter().collect();
        all.map_err(refused)?;
        Ok(Mounted { fs, threads, stats })
    }

    /// Counts since the start.
    #[must_use]
    pub fn stats(&self) -> Arc<Stats> {
        self.stats.clone()
    }

    /// Waits until the mount is gone.
    pub fn wait(&mut self) {
        // Threads that others start are in the list before those end.
        for thread in self.threads.try_iter() {
            // A panic of a thread was reported by the panic itself.
            let _ = thread.join();
        }
    }

    /// What ends the volume of the mount: it can be used while another thread waits for the mount's end.
    #[must_use]
    pub fn closer(&self) -> Closer {
        Closer(self.fs.clone())
    }
}

/// See [`Mounted::closer`].
#[derive(Clone, Debug)]
pub struct Closer(Arc<FileSystem>);

impl Closer {
    /// Makes everything durable and closes the volume; requests that come later fail. Blocks.
    ///
    /// # Errors
    /// Those of [`Volume::close`].
    pub fn close(self) -> Result<(), Error> {
        self.0.close()
    }

    /// Refuses changes from now on, and makes the image clean; or permits them again. Blocks.
    ///
    /// # Errors
    /// Those of [`Volume::make_clean`]; an image that was opened read-only stays so.
    pub fn set_read_only(&self, read_only: bool) -> Result<(), Error> {
        self.0.set_read_only(read_only)
    }
}

/// The number of threads that serve a mount by default: at least four, so that a request that waits for a device delays nobody.
#[must_use]
pub fn default_threads() -> u16 {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    u16::try_from((2 * processors).clamp(4, 32)).expect("clamped")
}

fn memory() -> Result<Incoming, StartError> {
    Incoming::try_new().ok_or(StartError::Host)
}

/// Places of each ring of a mount. Where a request may wait for a device, or for a commit, no other one must wait for its thread.
fn places_of(volume: &Volume, options: &MountOptions) -> u16 {
    /// More of them save little: with 4 the calls are a quarter already.
    const PLACES: u16 = 8;
    let waits = MountFlags::SYNCHRONOUS | MountFlags::DIRSYNC;
    match volume.device().is_memory() && !options.flags.intersects(waits) {
        true => PLACES,
        false => 1,
    }
}

/// Places of all rings of a mount, as a bound of their memory, of which each has somewhat more than 1 MiB.
const MOST_PLACES_OF_ALL: u16 = 128;

/// Of so many places that each processor's ring could have, those that it gets: two at least.
fn bounded(places: u16, processors: u16) -> u16 {
    places.min((MOST_PLACES_OF_ALL / processors.max(1)).max(2))
}

/// Rings for each processor of a mount that `threads` serve, and their memory: several with a place each, or one with several
/// `places`, of which all together are not more than 128. None at all if that is not possible for every processor.
#[must_use]
pub fn rings(channel: &Channel, threads: u16, places: u16) -> Vec<Vec<(Ring, Incoming)>> {
    let Some(processors) = processors().filter(|n| (1..=MOST_PROCESSORS).contains(n)) else {
        return Vec::new();
    };
    let each = match places {
        ..=1 => rings_of_each(threads, processors),
        _ => 1,
    };
    let places = bounded(places, processors);
    let crowd = Arc::new(Crowd::new(processors));
    let of = |processor| {
        let ring = |_| Ring::new(channel, processor, places, &crowd);
        (0..each).map(ring).collect()
    };
    let all: Option<_> = (0..processors).map(of).collect();
    all.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The defect: 64 processors had half a GiB for each mount.
    #[test]
    fn places_have_a_bound() {
        for processors in 1..=MOST_PROCESSORS {
            let places = bounded(8, processors);
            assert!((2..=8).contains(&places), "{processors}");
            assert!(places * processors <= MOST_PLACES_OF_ALL);
            assert_eq!(bounded(1, processors), 1);
        }
        assert_eq!(bounded(8, 16), 8);
    }
}
