//! Writes of an open file through the page cache: any position, any length, any memory.
//!
//! Input: slices. Output: counts. Invariants: a write has its space before it is acknowledged (delayed allocation), whatever the mode of
//! its data, so write-back never finds the volume full; a write whose write-back may be refused waits for it, and returns that error
//! itself; a write is counted in flight while it changes pages, so an operation on the map excludes it in the same way as direct writes.
//! Limits: pages change in steps of at most 1 MiB; an append of more than that may be divided by a direct append; every call blocks.

use super::File;
use super::cached_step::Place;
use crate::error::Error;
use crate::inode::Shortage;
use crate::pages::Watched;
use diorite_block::Buf;

/// What a write has written, and the error that it met behind that.
struct Written {
    at: u64,
    len: usize,
    error: Option<Error>,
}

impl File {
    /// Writes `data` at byte `pos`, which may be behind the end, through the page cache; with [`crate::OpenFlags::direct`] at once, aligned
    /// as for [`File::write_buf`]. Space is reserved before the call returns. With O_DSYNC or O_SYNC the data is durable when it returns.
    /// Returns how many bytes were written: fewer than all only if an error was met behind them. Blocks while too much is dirty.
    ///
    /// # Errors
    /// Those of [`File::write_buf`] but `Unaligned`; `NoMemory`.
    pub fn write_bytes(&self, pos: u64, data: &[u8]) -> Result<usize, Error> {
        let wrote = self.write_cached(Place::At(pos), data)?;
        Ok(wrote.len)
    }

    /// Writes `data` at the end of the file, through the page cache, behind what others have appended. Returns the position at which it was
    /// written. Otherwise as [`File::write_bytes`].
    ///
    /// # Errors
    /// Those of [`File::write_bytes`]; an append that meets one may have been written in part.
    pub fn append_bytes(&self, data: &[u8]) -> Result<u64, Error> {
        let Written { at, len, error } = self.write_cached(Place::End, data)?;
        let part = || format!("only {len} of {} bytes were appended at {at}", data.len());
        error.map_or(Ok(at), |error| Err(error.at(part())))
    }

    /// As [`File::write_bytes`], but durable only after [`File::make_written_durable`], unless it is direct.
    pub(super) fn write_lazily(
        &self,
        pos: u64,
        data: &[u8],
        watched: Option<&Watched<'_>>,
    ) -> Result<usize, Error> {
        self.write_pages_at(Place::At(pos), data, watched)
            .map(|wrote| wrote.len)
    }

    fn write_cached(&self, place: Place, data: &[u8]) -> Result<Written, Error> {
        let watched = self.watch();
        let wrote = self.write_pages_at(place, data, watched.as_ref())?;
        self.make_written_durable(watched)?;
        Ok(wrote)
    }

    fn write_pages_at(
        &self,
        place: Place,
        data: &[u8],
        watched: Option<&Watched<'_>>,
    ) -> Result<Written, Error> {
        let inode = self.inode();
        if self.open_file().is_direct() {
            let asked = data.len() as u64;
            let mut buf = Buf::try_zeroed(data.len()).ok_or(Error::NoMemory { asked })?;
            buf.copy_in(0, data);
            let (at, len) = match place {
                Place::At(pos) => (pos, self.write_buf(pos, buf).1?),
                Place::End => (self.append_buf(buf).1?, data.len()),
            };
            let error = None;
            return Ok(Written { at, len, error });
        }
        self.check_write(place, data.len() as u64)?;
        let _alone = (place == Place::End).then(|| inode.appends.take());
        let (mut first, mut error) = (None, None);
        let mut done = 0;
        while done < data.len() && error.is_none() {
            let at = match place {
                Place::At(pos) => pos + done as u64,
                Place::End => inode.visible_size(),
            };
            let most = self.most_per_step();
            let step = (most - at % most).min((data.len() - done) as u64) as usize;
            let part = &data[done..done + step];
            match self.step((place, at), part, watched, &mut Shortage::default()) {
                // An append whose place was taken.
                Ok(0) => {}
                Ok(count) => {
                    first.get_or_insert(at);
                    done += count;
                }
                Err(met) if done > 0 => error = Some(met),
                Err(met) => return Err(met),
            }
        }
        Ok(Written {
            at: first.unwrap_or(inode.visible_size()),
            len: done,
            error,
        })
    }

    fn check_write(&self, place: Place, len: u64) -> Result<(), Error> {
        let inode = self.inode();
        inode.volume.check_open()?;
        self.open_file().check_writable()?;
        let size = inode.visible_size();
        let pos = match place {
            Place::At(pos) => pos,
            Place::End => size,
        };
        inode.check_writable(pos >= size)?;
        inode.check_data_access()?;
        inode.volume.check_sound()?;
        inode.check_end(pos.saturating_add(len))
    }

    /// For a write that has to be durable when it returns: it tells the failure of its bytes itself.
    pub(super) fn watch(&self) -> Option<Watched<'_>> {
        let (open, inode) = (self.open_file(), self.inode());
        let waits = open.is_dsync() || inode.is_sync();
        (waits && !open.is_direct()).then(|| inode.pages.watch())
    }

    /// Writes back what the call has written, and fails if that was lost, by whomever it was written back.
    pub(super) fn write_watched_back(&self, watched: &Watched<'_>) -> Result<(), Error> {
        let (inode, (blocks, _)) = (self.inode(), watched.result());
        let done = inode.volume.write_back(std::slice::from_ref(inode), blocks);
        watched.result().1.and(done)
    }

    /// What O_DSYNC, O_SYNC and the file's flag `S` want of a write.
    pub(super) fn make_written_durable(&self, watched: Option<Watched<'_>>) -> Result<(), Error> {
        let (open, inode) = (self.open_file(), self.inode());
        if open.is_direct() {
            // Its requests were durable one by one.
            return Ok(());
        }
        if let Some(watched) = watched {
            self.write_watched_back(&watched)?;
        }
        let by_flag = inode.is_sync() && !inode.volume.has_atomic();
        match (open.is_sync() || by_flag, open.is_dsync()) {
            (true, _) => self.sync(),
            (false, true) => self.sync_data(),
            (false, false) => Ok(()),
        }
    }
}
