//! Copies a stream to a file of the image, in pieces, as the data arrives.
//!
//! Input: standard input or another open pipe, the path of the copy. Output: a file that gets its name when it is complete. Invariants:
//! those of regular files; nothing is read if the file is not to be created. Limits: a new file belongs to root and has mode 0644 unless
//! options say otherwise; zeros take space.

use super::data::{Copying, STANDARD_INPUT};
use super::source::{Attributes, Identity};
use super::{Putter, Trouble};
use crate::cmd::mount::descriptor;
use crate::images::image::NEW_FILE;
use crate::output::report::Reason;
use crate::walking::paths::look;
use diorite_block::check_stdin;
use diorite_block::uncached;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::stdio::stdin;
use std::fs::File;
use std::path::Path;
use std::rc::Rc;

/// What gives its bytes once.
#[derive(Clone, Copy)]
struct Stream<'s> {
    from: BorrowedFd<'s>,
    /// Its name in messages.
    found: &'s Path,
}

/// Whether a path that names a descriptor is neither that of a file nor that of a directory, so that it is read up to its end. It has no
/// attributes that a copy could get.
pub(super) fn is_stream(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|meta| !meta.is_file() && !meta.is_dir())
}

impl Putter<'_> {
    /// Copies standard input to a path.
    pub(super) fn stdin(&mut self, path: &[u8]) {
        let stream = Stream {
            from: stdin(),
            found: Path::new(STANDARD_INPUT),
        };
        self.all_of(stream, path);
    }

    /// Copies what a path gives that names a descriptor, such as /dev/stdin, to a path.
    pub(super) fn descriptor(&mut self, found: &Path, path: &[u8]) {
        let opened = match descriptor::number(found) {
            Some(0) => stdin().try_clone_to_owned(),
            _ => File::open(found).map(OwnedFd::from),
        };
        match opened {
            Ok(from) => {
                let from = from.as_fd();
                self.all_of(Stream { from, found }, path);
            }
            Err(e) => self.report.elsewhere(found, Reason::new(e.to_string())),
        }
    }

    fn all_of(&mut self, stream: Stream<'_>, path: &[u8]) {
        self.progress.expect(None);
        if let Err(trouble) = self.stream(stream, path) {
            self.fail(stream.found, path, trouble);
        }
    }

    fn stream(&mut self, stream: Stream<'_>, path: &[u8]) -> Result<(), Trouble> {
        let refused = |what: &str| Err(Trouble::Refused(Reason::new(what)));
        match look(self.volume, path, false)? {
            Some(_) if self.args.copies.no_clobber => return Ok(()),
            Some(inode) if inode.is_dir() => {
                return refused("Is a directory; standard input has no name to go into it with");
            }
            _ => {}
        }
        if Identity::of_open(stream.from).is_some_and(|id| self.images.contains(&id)) {
            return refused("the image is not copied into itself");
        }
        let unread = |errno| Trouble::Source(Reason::host("cannot read it", errno));
        check_stdin().map_err(unread)?;
        let above = &path[..path.iter().rposition(|c| *c == b'/').map_or(0, |at| at + 1)];
        let file = self.volume.temporary(above, 0)?;
        let id = self.flow.attach(&file)?;
        let attributes = self
            .meta
            .of_new(Attributes::new(NEW_FILE, self.volume.now()));
        let names = (stream.found, path);
        let copying = Rc::new(Copying::of_stream(file, id, attributes, names));
        self.send_stream(stream.from, &copying);
        self.end_copy(copying);
        Ok(())
    }

    /// Submits the data as it arrives, in pieces, as bufs become free.
    fn send_stream(&mut self, from: BorrowedFd<'_>, copying: &Rc<Copying>) {
        let mut at = 0;
        while !copying.has_failed() {
            let Some(mut piece) = self.flow.piece(u64::MAX) else {
                self.take_ended(true);
                continue;
            };
            let room = piece.bytes().len();
            match fill(from, piece.bytes()) {
                Ok(0) => {
                    self.flow.give_back(piece);
                    break;
                }
                Ok(len) => {
                    piece.shorten(len);
                    self.keep_order(copying);
                    at += self.flow.write(copying, at, piece);
                    if len < room {
                        break;
                    }
                }
                Err(errno) => {
                    self.flow.give_back(piece);
                    copying.failed(Trouble::Source(Reason::host("cannot read it", errno)));
                }
            }
        }
        copying.set_size(at);
    }
}

/// Fills a buffer; returns how many bytes there were before the end of the input.
fn fill(from: BorrowedFd<'_>, to: &mut [u8]) -> Result<usize, Errno> {
    let mut got = 0;
    while got < to.len() {
        match uncached::read(from, &mut to[got..]) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(got)
}
