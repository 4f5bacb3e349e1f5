//! What other processes may ask the keeper of a mount: to be told how it ended, or to change it.
//!
//! The keeper listens at an abstract socket whose name has the numbers of the mount's device, which the mount table shows, and its own
//! process number: so a mount is found whatever the name of its source is, and no other process can occupy the name. A client asks the
//! keepers that it trusts, one after the other. It sends one byte, for [`HAS`] with a word behind it, and gets one byte back. A client that
//! waits for the end of a mount first gets one more byte, and ends the mount only after that: otherwise the keeper might end before it has
//! accepted the client, which then would get no answer.
//!
//! Input: a mount table's entry. Output: answers. Invariants: the keeper answers root and its own user only; a client trusts root, its own
//! user, and, if it is root, the user who made the mount. Limits: keeper and client are in one network namespace.

use crate::output::report::Reason;
use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

/// Tell me when it has ended, and how: 0 if everything is durable.
pub(crate) const WAIT: u8 = b'w';
/// Refuse changes from now on.
pub(crate) const READ_ONLY: u8 = b'r';
/// Permit changes again.
pub(crate) const WRITABLE: u8 = b'o';

/// The image was opened read-only: mount it anew, for writing. The answer is text: [`ANEW`], or why not.
pub(super) const MOUNT_ANEW: u8 = b'n';
/// It is mounted for writing: the line of the ready descriptor.
const ANEW: &str = "ready\n";

/// Does this option change nothing? Behind it: the length of the word, in two bytes, and the word.
const HAS: u8 = b'=';

/// The answer to [`WAIT`] that comes first: the end will be told.
const HEARD: u8 = b'h';

/// Done.
pub(crate) const DONE: u8 = 0;
/// It could not be done.
pub(crate) const FAILED: u8 = 1;

/// The answer to [`WAIT`] if the server was killed. Behind it: by what, as text up to the end.
pub(crate) const KILLED: u8 = 2;

/// How the names for the mount with this device begin.
fn prefix(device: &str) -> String {
    format!("diorite-mount/{device}/")
}

/// The abstract sockets of this network namespace whose names begin like this.
pub(super) fn names(prefix: &str) -> Vec<String> {
    let table = std::fs::read("/proc/net/unix").unwrap_or_default();
    let table = String::from_utf8_lossy(&table);
    let paths = table.lines().filter_map(|line| line.split('@').nth(1));
    let mut ours: Vec<String> = paths
        .filter(|path| path.starts_with(prefix))
        .map(str::to_owned)
        .collect();
    // A client that has connected is listed under the same name.
    ours.sort();
    ours.dedup();
    ours
}

/// The socket of the keeper whose mount has this device. The keeper that mounts anew had the same name, and is about to let go of it.
pub(super) fn listen(device: &str) -> std::io::Result<UnixListener> {
    const TRIES: u32 = 200;
    let name = format!("{}{}", prefix(device), std::process::id());
    let address = SocketAddr::from_abstract_name(name)?;
    for _ in 1..TRIES {
        match UnixListener::bind_addr(&address) {
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
                std::thread::sleep(Duration::from_millis(10));
            }
            bound => return bound,
        }
    }
    UnixListener::bind_addr(&address)
}

/// Lets go of the name. Who was answered already stays connected.
pub(super) fn end(listener: &UnixListener) {
    // The thread that waits in `accept` ends, and drops its descriptor.
    let _ = rustix::net::shutdown(listener, rustix::net::Shutdown::Both);
}

/// The next client, and what it asks for. None: it is not one to be answered.
pub(super) fn accept(listener: &UnixListener) -> std::io::Result<Option<(UnixStream, u8)>> {
    let (mut client, _) = listener.accept()?;
    // Whoever does not ask at once is not waited for.
    client.set_read_timeout(Some(Duration::from_secs(1)))?;
    let mut byte = [0];
    let is_asked = is_trusted(&client) && client.read_exact(&mut byte).is_ok();
    Ok(is_asked.then_some((client, byte[0])))
}

/// Call when the keeper knows of a client that waits for the end: from now on the client may bring that about.
pub(super) fn heard(client: &mut UnixStream) {
    // Who has gone does not need it.
    let _ = client.write_all(&[HEARD]);
}

pub(super) fn is_trusted(peer: &UnixStream) -> bool {
    let own = rustix::process::geteuid();
    let uid = rustix::net::sockopt::socket_peercred(peer).map(|peer| peer.uid);
    uid.is_ok_and(|uid| uid.is_root() || uid == own)
}

/// Answers a client that asks for an option. False: it asks for something else.
pub(super) fn answer_word(
    client: &mut UnixStream,
    what: u8,
    is_changed_by: impl FnOnce(&str) -> bool,
) -> bool {
    if what != HAS {
        return false;
    }
    let mut len = [0; 2];
    let read = client.read_exact(&mut len);
    let mut word = vec![0; u16::from_ne_bytes(len).into()];
    if read.and_then(|()| client.read_exact(&mut word)).is_ok() {
        let has = std::str::from_utf8(&word).is_ok_and(|word| !is_changed_by(word));
        // Who has gone does not need it.
        let _ = client.write_all(&[if has { DONE } else { FAILED }]);
    }
    true
}

/// Whether a client believes this keeper.
pub(super) fn is_believed(keeper: &UnixStream) -> bool {
    is_trusted(keeper) || rustix::process::geteuid().is_root()
}

/// A keeper that was asked.
pub(crate) struct Asked(UnixStream);

/// Asks the keeper of the mount with this device whether an option changes nothing. None: there is none; the word is too long.
pub(super) fn ask_word(device: &str, word: &str) -> Option<Asked> {
    let len = u16::try_from(word.len()).ok()?.to_ne_bytes();
    send(device, &[&[HAS][..], &len, word.as_bytes()].concat()).map(Asked)
}

/// Those who say that they keep the mount with this device, if they are believed, asked one after the other.
fn asked<'a>(device: &str, bytes: &'a [u8]) -> impl Iterator<Item = UnixStream> + 'a {
    names(&prefix(device)).into_iter().filter_map(move |name| {
        let address = SocketAddr::from_abstract_name(name).ok()?;
        let mut keeper = UnixStream::connect_addr(&address).ok()?;
        let is_sent = is_believed(&keeper) && keeper.write_all(bytes).is_ok();
        is_sent.then_some(keeper)
    })
}

/// None: there is no keeper, or it is about to end.
fn send(device: &str, bytes: &[u8]) -> Option<UnixStream> {
    asked(device, bytes).next()
}

/// Asks the keeper of the mount with this device. None: there is none, or it is about to end. Blocks if `what` is [`WAIT`].
pub(crate) fn ask(device: &str, what: u8) -> Option<Asked> {
    /// How long to wait for a keeper that is there, but may be stopped.
    const PATIENCE: Duration = Duration::from_secs(10);
    let is_heard = |keeper: &mut UnixStream| {
        let mut byte = [0];
        let set = keeper.set_read_timeout(Some(PATIENCE));
        set.and_then(|()| keeper.read_exact(&mut byte)).is_ok()
    };
    let bytes = [what];
    let mut all = asked(device, &bytes);
    all.find_map(|mut keeper| (what != WAIT || is_heard(&mut keeper)).then_some(Asked(keeper)))
}

/// Has the keeper of the mount with this device mount its image anew, for writing. Blocks.
///
/// # Errors
/// Why it did not; it does not answer.
pub(super) fn mount_anew(device: &str, patience: Duration) -> Result<(), Reason> {
    let gone = || Reason::new("no keeper of this mount answers");
    let mut keeper = send(device, &[MOUNT_ANEW]).ok_or_else(gone)?;
    let mut text = Vec::new();
    let set = keeper.set_read_timeout(Some(patience));
    let read = set.and_then(|()| keeper.read_to_end(&mut text));
    let text = String::from_utf8_lossy(&text);
    match (read, text.ends_with(ANEW)) {
        (_, true) => Ok(()),
        (Ok(_), false) if text.is_empty() => Err(gone()),
        (Ok(_), false) => {
            let why = text.trim().trim_start_matches("diorite: mount: ");
            Err(Reason::new(format!("{why}; it stays read-only")))
        }
        (Err(error), false) => Err(Reason::new(format!("its keeper: {error}"))),
    }
}

impl Asked {
    /// The answer. Blocks.
    ///
    /// # Errors
    /// There is none within `patience`; the keeper has ended without one.
    pub(crate) fn answer(&mut self, patience: Duration) -> Result<u8, Reason> {
        let still = || Reason::new("the process that served it is still writing");
        self.answer_within(patience)?.ok_or_else(still)
    }

    /// As [`Asked::answer`]; None: there is none yet.
    ///
    /// # Errors
    /// The keeper has ended without one.
    pub(crate) fn answer_within(&mut self, patience: Duration) -> Result<Option<u8>, Reason> {
        let mut byte = [0];
        let set = self.0.set_read_timeout(Some(patience));
        let read = set.and_then(|()| self.0.read_exact(&mut byte));
        match read.map_err(|e| e.kind()) {
            Ok(()) => Ok(Some(byte[0])),
            Err(std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => Ok(None),
            Err(_) => Err(Reason::new(
                "the process that kept it was killed; the next mount recovers by the journal",
            )),
        }
    }

    /// What is behind the answer [`KILLED`].
    pub(crate) fn why(&mut self) -> String {
        let mut text = Vec::new();
        // The keeper ends behind it.
        let _ = self.0.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    }
}
