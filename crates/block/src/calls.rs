//! A device of one's own, by blocking calls: [`Calls`] read, write and flush, and [`CallsDevice`] is a device with queues over them.
//!
//! Input: bios. Output: the same, ended. Invariants: what a call cannot do is the bio's error; a panic of a call is one, too. Limits: no
//! discard, no write-zeroes; a fixed size.

use crate::bio::{Bio, BioError, BioErrorKind, BioOp};
use crate::device::{Device, DeviceError, DeviceQueue, DeviceReport, Geometry, QueueOptions};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

mod queue;

pub use queue::{CallPool, CallQueue, RunsBios};

/// What stores the bytes of a [`CallsDevice`]. Several threads call it at a time. Positions and lengths are multiples of 512, and inside
/// the size.
pub trait Calls: Send + Sync + 'static {
    /// Bytes: a multiple of 512 that does not change.
    fn size(&self) -> u64;

    /// Fills `out` with the bytes at `pos`. Blocks.
    ///
    /// # Errors
    /// They cannot be read.
    fn read(&self, pos: u64, out: &mut [u8]) -> io::Result<()>;

    /// Stores bytes at `pos`. Blocks. Nobody is told later of a failure.
    ///
    /// # Errors
    /// They cannot be stored. `StorageFull` and others by their kinds.
    fn write(&self, pos: u64, data: &[u8]) -> io::Result<()>;

    /// Makes everything durable that was stored before the call. Blocks.
    ///
    /// # Errors
    /// It cannot be made durable; what was stored before may be lost.
    fn flush(&self) -> io::Result<()>;
}

/// A device over [`Calls`].
///
/// ```
/// use diorite_block::{Calls, CallsDevice, Device};
/// use std::sync::RwLock;
///
/// struct Mine(RwLock<Vec<u8>>);
///
/// impl Calls for Mine {
///     fn size(&self) -> u64 {
///         1 << 20
///     }
///     fn read(&self, pos: u64, out: &mut [u8]) -> std::io::Result<()> {
///         let bytes = self.0.read().map_err(|_| std::io::ErrorKind::Other)?;
///         out.copy_from_slice(&bytes[pos as usize..][..out.len()]);
///         Ok(())
///     }
///     fn write(&self, pos: u64, data: &[u8]) -> std::io::Result<()> {
///         let mut bytes = self.0.write().map_err(|_| std::io::ErrorKind::Other)?;
///         bytes[pos as usize..][..data.len()].copy_from_slice(data);
///         Ok(())
///     }
///     fn flush(&self) -> std::io::Result<()> {
///         Ok(())
///     }
/// }
///
/// let device = CallsDevice::new("mine", Mine(RwLock::new(vec![0; 1 << 20])));
/// assert_eq!(device.geometry().size, 1 << 20);
/// ```
pub struct CallsDevice {
    name: String,
    pool: Arc<CallPool<Owned>>,
}

struct Owned {
    calls: Box<dyn Calls>,
    geometry: Geometry,
}

impl CallsDevice {
    /// A device with this name, for messages.
    #[must_use]
    pub fn new(name: impl Into<String>, calls: impl Calls) -> CallsDevice {
        let geometry = Geometry {
            volatile_cache: true,
            ..Geometry::plain(calls.size())
        };
        let calls = Box::new(calls);
        CallsDevice {
            name: name.into(),
            pool: Arc::new(CallPool::new("calls", Owned { calls, geometry })),
        }
    }
}

impl RunsBios for Owned {
    fn run(&self, bio: &mut Bio) {
        let checked = self.geometry.check(bio);
        bio.result = checked.and_then(|()| {
            // Code that somebody wrote.
            match catch_unwind(AssertUnwindSafe(|| self.transfer(bio))) {
                Ok(done) => done.map_err(|error| BioError::from(&error)),
                Err(_) => Err(BioError::new(BioErrorKind::Io)),
            }
        });
    }
}

impl Owned {
    fn transfer(&self, bio: &mut Bio) -> io::Result<()> {
        let mut at = bio.pos;
        match bio.op {
            BioOp::Flush => self.calls.flush(),
            BioOp::Read => bio.buf.parts_mut().try_for_each(|part| {
                let pos = at;
                at += part.len() as u64;
                self.calls.read(pos, part)
            }),
            BioOp::Write => {
                bio.buf.parts().try_for_each(|part| {
                    let pos = at;
                    at += part.len() as u64;
                    self.calls.write(pos, part)
                })?;
                match bio.flags.fua {
                    true => self.calls.flush(),
                    false => Ok(()),
                }
            }
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

impl Device for CallsDevice {
    fn below(&self) -> Option<&dyn Device> {
        None
    }

    fn geometry(&self) -> Geometry {
        self.pool.runner().geometry
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn report(&self) -> DeviceReport {
        DeviceReport {
            engine: "threads".to_owned(),
            mode: "calls".to_owned(),
            ..DeviceReport::default()
        }
    }

    fn open_queue(&self, options: QueueOptions) -> Result<Box<dyn DeviceQueue>, DeviceError> {
        let queue = CallQueue::new(self.pool.clone(), options);
        let queue = queue.map_err(|e| DeviceError::host(format!("{}: no thread", self.name), e))?;
        Ok(Box::new(queue))
    }

    fn run_here(&self, mut bio: Bio) -> Result<Bio, Bio> {
        self.pool.runner().run(&mut bio);
        Ok(bio)
    }
}

#[cfg(test)]
mod tests;
