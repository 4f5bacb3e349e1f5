//! Finds the mount that serves an image, so that a new mount waits for the server of an earlier one that is ending, and for no other
//! process.
//!
//! The keeper of a writable mount listens at an abstract socket whose name has the numbers of the image's file, and its own process
//! number. A client is told the state of the mount, and stays connected until the keeper has ended. `/proc/net/unix` lists the names, so
//! the mount need not be in the client's mount table: it may be detached (`umount -l`), or in another mount namespace.
//!
//! Input: an image; the state of its mount. Output: answers; a verdict for a process that has found the image locked. Invariants: a mount
//! in use is never waited for; one that ends is waited for until it has ended. Limits: keeper and client are in one network namespace and
//! trust each other as in `control`; a holder that is no mount is waited for [`MOMENT`], as are mounts that were detached.

use super::control::{is_believed, is_trusted, names};
use crate::images::location::identity;
use crate::output::report::Reason;
use diorite_block::locator::FileLocator;
use diorite_fuse::find_mounted;
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long one that ends is waited for: it writes back what is left.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a holder is waited for that does not say that it ends. A mount that has just gone from the mount table is about to.
const MOMENT: Duration = Duration::from_secs(2);

/// How long to wait for the answer of a keeper that may be stopped.
const ANSWER: Duration = Duration::from_secs(5);

const LIVES: u8 = b'l';
const ENDS: u8 = b'e';

/// A file or device of the host, by the name that keepers of its mounts listen at.
#[derive(Debug)]
pub(super) struct Image(String);

impl Image {
    /// None if it does not exist.
    pub(super) fn of(file: &FileLocator) -> Option<Image> {
        let (is_device, device, ino) = identity(file)?;
        let kind = if is_device { "device" } else { "file" };
        Some(Image(format!("diorite-image/{kind}/{device:x}/{ino:x}/")))
    }

    /// Those who serve it.
    fn holders(&self) -> impl Iterator<Item = Holder> {
        names(&self.0)
            .into_iter()
            .filter_map(|name| Holder::ask(&name))
    }
}

/// What this process tells those who ask about its image.
#[derive(Debug)]
pub(super) struct Announced(Arc<AtomicBool>);

impl Announced {
    /// Answers in a thread of its own from now on. `device`: the mount's, as the mount table has it.
    ///
    /// # Errors
    /// Those of the socket; the host has no thread for it.
    pub(super) fn new(image: &Image, device: &str, place: &Path) -> std::io::Result<Announced> {
        let name = format!("{}{}", image.0, std::process::id());
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
        let ends = Arc::new(AtomicBool::new(false));
        let (state, text) = (
            ends.clone(),
            [device.as_bytes(), b" ", bytes(place)].concat(),
        );
        let name = std::thread::Builder::new().name("keeper-image".to_owned());
        name.spawn(move || {
            /// More clients than wait for one image at a time; a process that is not asked any more ends its connection.
            const MOST: usize = 64;
            let mut waiting = std::collections::VecDeque::new();
            for client in listener.incoming().flatten() {
                if !is_trusted(&client) {
                    continue;
                }
                let mut client = client;
                let state = if state.load(Ordering::Acquire) {
                    ENDS
                } else {
                    LIVES
                };
                let len = u16::try_from(text.len()).unwrap_or(u16::MAX);
                let said = [&[state][..], &len.to_ne_bytes(), &text[..usize::from(len)]].concat();
                // It fits into the socket's buffer. Who has gone does not need it.
                let _ = client.write_all(&said);
                if waiting.len() == MOST {
                    waiting.pop_front();
                }
                waiting.push_back(client);
            }
        })?;
        Ok(Announced(ends))
    }

    /// The mount has gone, or goes.
    pub(super) fn ends(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A keeper that has answered.
struct Holder {
    keeper: UnixStream,
    ends: bool,
    device: String,
    place: PathBuf,
}

impl Holder {
    fn ask(name: &str) -> Option<Holder> {
        let address = SocketAddr::from_abstract_name(name).ok()?;
        let mut keeper = UnixStream::connect_addr(&address).ok()?;
        keeper.set_read_timeout(Some(ANSWER)).ok()?;
        if !is_believed(&keeper) {
            return None;
        }
        let mut head = [0; 3];
        keeper.read_exact(&mut head).ok()?;
        let [state, low, high] = head;
        let mut text = vec![0; usize::from(u16::from_ne_bytes([low, high]))];
        keeper.read_exact(&mut text).ok()?;
        let at = text.iter().position(|byte| *byte == b' ')?;
        let place = text.split_off(at);
        Some(Holder {
            keeper,
            ends: state == ENDS,
            device: String::from_utf8(text).ok()?,
            place: std::ffi::OsString::from_vec(place[1..].to_vec()).into(),
        })
    }

    fn is_in_mount_table(&self) -> bool {
        find_mounted(|entry| entry.device == self.device && entry.place == self.place).is_some()
    }

    /// Blocks until it has ended. False: it has not.
    fn wait(mut self, patience: Duration) -> bool {
        // Zero would be for ever.
        let patience = patience.max(Duration::from_millis(1));
        let set = self.keeper.set_read_timeout(Some(patience));
        set.is_ok() && !matches!(self.keeper.read(&mut [0]), Err(e) if is_timeout(&e))
    }
}

fn is_timeout(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut)
}

fn bytes(path: &Path) -> &[u8] {
    OsStr::as_bytes(path.as_os_str())
}

/// One who waits for an image.
#[derive(Debug)]
pub(super) struct Waiting {
    image: Option<Image>,
    path: Option<PathBuf>,
    began: Instant,
}

impl Waiting {
    pub(super) fn new(file: Option<&FileLocator>) -> Waiting {
        Waiting {
            image: file.and_then(Image::of),
            path: file.map(|file| file.path.clone()),
            began: Instant::now(),
        }
    }

    /// Call when the image was found held. Blocks as long as its holder is ending.
    ///
    /// # Errors
    /// Waiting any longer makes no sense, and why.
    pub(super) fn wait(&self) -> Result<(), Reason> {
        let waited = self.began.elapsed();
        let mut detached = None;
        for holder in self.image.iter().flat_map(Image::holders) {
            if holder.ends {
                return match holder.wait(PATIENCE.saturating_sub(waited)) {
                    true => Ok(()),
                    false => Err(Reason::new("the process that served it is still writing")),
                };
            }
            if holder.is_in_mount_table() {
                let place = holder.place.display();
                return Err(Reason::new(format!("it is mounted at {place}")));
            }
            detached = Some(holder.place);
        }
        if waited < MOMENT {
            std::thread::sleep(Duration::from_millis(20));
            return Ok(());
        }
        Err(Reason::new(match (detached, &self.path) {
            (Some(place), _) => format!(
                "its mount at {} is still in use: detached there (umount -l), or in another mount namespace",
                place.display()
            ),
            (None, Some(path)) => diorite_block::writer_of(path).unwrap_or_default(),
            (None, None) => String::new(),
        }))
    }
}
