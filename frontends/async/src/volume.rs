//! A volume with asynchronous names and files.
//!
//! Input: an opened volume. Output: futures of files and of calls by name. Invariants: all requests of its files go through one queue; a
//! call by name blocks a thread of the pool, never the task's. Limits: at most [`NAME_THREADS`] calls by name at a time; more of them wait.

use crate::driver::{Attached, Owner};
#[cfg(any(feature = "tokio", feature = "smol"))]
use crate::driver::{Driver, Ready};
use crate::file::AsyncFile;
use crate::pool::Pool;
use diorite::dir::RenameFlags;
use diorite::{Error, File, OpenFlags, Volume};
use std::sync::Arc;

/// Threads for calls by name, at most.
const NAME_THREADS: usize = 4;

/// A volume for asynchronous programs. A clone is the same one. Send and Sync.
#[derive(Clone, Debug)]
pub struct AsyncVolume {
    volume: Volume,
    owner: Arc<Owner>,
    pool: Arc<Pool>,
}

impl AsyncVolume {
    /// Opens a queue of `depth` requests (1 to 32,768), with a thread that completes them. More requests than that wait for room. Blocks
    /// for the time that a queue and a thread take to start.
    ///
    /// # Errors
    /// The host's, for the queue or the thread.
    pub fn new(volume: Volume, depth: u32) -> Result<AsyncVolume, Error> {
        let owner = Owner::with_thread(&volume, depth)?;
        Ok(AsyncVolume::of(volume, owner))
    }

    /// As [`AsyncVolume::new`], with a driver for `tokio::spawn` in the place of the thread. To be called inside a runtime that has its
    /// reactor and its clock (`enable_all`).
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/engine/tests/common/example.rs"));
    /// use diorite::{Buf, OpenOptions, Volume};
    /// use diorite_async::AsyncVolume;
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), diorite::Error> {
    /// # let volume = Volume::open_device(example_volume(), &OpenOptions::writable())?;
    /// let (volume, driver) = AsyncVolume::with_tokio(volume, 64)?;
    /// tokio::spawn(driver);
    /// let file = volume.create("/data", 0o644).await?;
    /// let (_buf, at) = file.append(Buf::zeroed(4096)).await;
    /// assert_eq!(at?, 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The host's, for the queue or its descriptor.
    ///
    /// # Panics
    /// Outside of a runtime, or in one without reactor or clock.
    #[cfg(feature = "tokio")]
    pub fn with_tokio(volume: Volume, depth: u32) -> Result<(AsyncVolume, Driver), Error> {
        AsyncVolume::with_task(volume, depth, crate::tokio::reactor)
    }

    /// As [`AsyncVolume::new`], with a driver to be spawned in the place of the thread: `smol::spawn(driver).detach()`. Any executor will
    /// do.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/engine/tests/common/example.rs"));
    /// use diorite::{Buf, OpenOptions, Volume};
    /// use diorite_async::AsyncVolume;
    ///
    /// # fn main() -> Result<(), diorite::Error> {
    /// # let volume = Volume::open_device(example_volume(), &OpenOptions::writable())?;
    /// let (volume, driver) = AsyncVolume::with_smol(volume, 64)?;
    /// let work = async move {
    ///     let file = volume.create("/data", 0o644).await?;
    ///     let (_buf, at) = file.append(Buf::zeroed(4096)).await;
    ///     at
    /// };
    /// let (at, ()) = async_io::block_on(futures_lite::future::zip(work, driver));
    /// assert_eq!(at?, 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The host's, for the queue or its descriptor.
    #[cfg(feature = "smol")]
    pub fn with_smol(volume: Volume, depth: u32) -> Result<(AsyncVolume, Driver), Error> {
        AsyncVolume::with_task(volume, depth, crate::smol::reactor)
    }

    #[cfg(any(feature = "tokio", feature = "smol"))]
    fn with_task(
        volume: Volume,
        depth: u32,
        ready: impl FnOnce(&diorite::Queue) -> std::io::Result<Box<dyn Ready>>,
    ) -> Result<(AsyncVolume, Driver), Error> {
        let (owner, driver) = Owner::with_task(&volume, depth, ready)?;
        Ok((AsyncVolume::of(volume, owner), driver))
    }

    fn of(volume: Volume, owner: Arc<Owner>) -> AsyncVolume {
        AsyncVolume {
            volume,
            owner,
            pool: Pool::new(NAME_THREADS),
        }
    }

    /// The volume with calls that block.
    #[must_use]
    pub fn blocking(&self) -> &Volume {
        &self.volume
    }

    /// Calls `take` with the buffer of each request whose future was dropped, when the device has ended with it: to put it back into a
    /// pool. Without this such buffers are dropped. It is called by the driver or by the task that drops the future, so it must not
    /// block. It may be set once; returns false if it was.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/engine/tests/common/example.rs"));
    /// # use diorite::{BufPool, OpenOptions, Volume};
    /// # use diorite_async::AsyncVolume;
    /// # use std::sync::Arc;
    /// # fn main() -> Result<(), diorite::Error> {
    /// # let volume = Volume::open_device(example_volume(), &OpenOptions::writable())?;
    /// # let volume = AsyncVolume::new(volume, 64)?;
    /// let pool = Arc::new(BufPool::new(4096, 64));
    /// let back = pool.clone();
    /// assert!(volume.on_cancelled(move |buf| back.put(buf)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_cancelled(&self, take: impl Fn(diorite::Buf) + Send + Sync + 'static) -> bool {
        self.owner.shared.set_takes_back(take)
    }

    /// Makes any call that blocks, in a thread of the pool. If the future is dropped before the call began, it is not made.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/engine/tests/common/example.rs"));
    /// # use diorite::{OpenOptions, Volume};
    /// # use diorite_async::AsyncVolume;
    /// # fn main() -> Result<(), diorite::Error> {
    /// # let volume = Volume::open_device(example_volume(), &OpenOptions::writable())?;
    /// # let volume = AsyncVolume::new(volume, 64)?;
    /// # futures_lite::future::block_on(async {
    /// let names = volume
    ///     .call(|volume| {
    ///         let root = volume.resolve("/", true)?;
    ///         volume.read_dir(root)?.map(|entry| Ok(entry?.name)).collect::<Result<Vec<_>, diorite::Error>>()
    ///     })
    ///     .await?;
    /// assert!(names.iter().any(|name| name == b"lost+found"));
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub async fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Volume) -> T + Send + 'static,
    ) -> T {
        let volume = self.volume.clone();
        self.pool.run(move || call(&volume)).await
    }

    /// Opens the file of a path: see [`Volume::open_path`].
    ///
    /// # Errors
    /// Those of [`Volume::open_path`]; the file is encrypted or protected by verity.
    pub async fn open(&self, path: impl AsRef<[u8]>, flags: OpenFlags) -> Result<AsyncFile, Error> {
        let path = path.as_ref().to_vec();
        let file = self
            .call(move |volume| volume.open_path(&path, flags))
            .await?;
        self.attach(file)
    }

    /// Makes a file and opens it for writing: see [`Volume::create`].
    ///
    /// # Errors
    /// Those of [`Volume::create`].
    pub async fn create(
        &self,
        path: impl AsRef<[u8]>,
        permissions: u16,
    ) -> Result<AsyncFile, Error> {
        let path = path.as_ref().to_vec();
        let file = self
            .call(move |volume| volume.create(&path, permissions))
            .await?;
        self.attach(file)
    }

    /// An open file of this volume, for asynchronous requests.
    ///
    /// # Errors
    /// It belongs to another volume, is encrypted, or is protected by verity.
    pub fn attach(&self, file: File) -> Result<AsyncFile, Error> {
        Ok(AsyncFile {
            attached: Attached::new(&self.owner, file)?,
            pool: self.pool.clone(),
        })
    }

    /// Makes a directory: see [`Volume::mkdir`].
    ///
    /// # Errors
    /// Those of [`Volume::mkdir`].
    pub async fn mkdir(&self, path: impl AsRef<[u8]>, permissions: u16) -> Result<(), Error> {
        let path = path.as_ref().to_vec();
        self.call(move |volume| volume.mkdir(&path, permissions).map(drop))
            .await
    }

    /// Removes a name of a file: see [`Volume::unlink`].
    ///
    /// # Errors
    /// Those of [`Volume::unlink`].
    pub async fn unlink(&self, path: impl AsRef<[u8]>) -> Result<(), Error> {
        let path = path.as_ref().to_vec();
        self.call(move |volume| volume.unlink(&path)).await
    }

    /// Moves a name: see [`Volume::rename`].
    ///
    /// # Errors
    /// Those of [`Volume::rename`].
    pub async fn rename(
        &self,
        from: impl AsRef<[u8]>,
        to: impl AsRef<[u8]>,
        flags: RenameFlags,
    ) -> Result<(), Error> {
        let (from, to) = (from.as_ref().to_vec(), to.as_ref().to_vec());
        self.call(move |volume| volume.rename(&from, &to, flags))
            .await
    }

    /// Makes durable all that was acknowledged before: see [`Volume::sync`].
    ///
    /// # Errors
    /// Those of [`Volume::sync`].
    pub async fn sync(&self) -> Result<(), Error> {
        self.call(|volume| volume.sync()).await
    }

    /// Closes the volume, also for its other handles and files: see [`Volume::close`]. Requests under way end before, those of dropped
    /// futures too; later ones fail. The image is free for others when the last handle and the last file are gone and the driver, if it is
    /// a task, has ended: await it.
    ///
    /// # Errors
    /// Those of [`Volume::close`].
    pub async fn close(self) -> Result<(), Error> {
        let AsyncVolume {
            volume,
            owner,
            pool,
        } = self;
        pool.run(move || {
            drop(owner);
            volume.close()
        })
        .await
    }
}
