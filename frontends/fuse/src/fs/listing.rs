//! Directory listings.
//!
//! Input: a directory, a position, room for records. Output: records. Invariants: a listing can be continued from any position that was
//! given out, also after the directory has changed; an inode that a record names is known to the volume. Limits: an inode that cannot be
//! read is listed by its name only.

use super::{FileSystem, no};
use crate::wire::input::{Body, Header};
use crate::wire::op;
use crate::wire::output::{ENTRY, Put, Record};
use diorite::{DirEntry, Ino};
use rustix::io::Errno;

impl FileSystem {
    pub(super) fn list(
        &self,
        header: &Header,
        mut body: Body<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Errno> {
        let (_handle, position, room) = (body.u64()?, body.u64()?, body.u32()? as usize);
        let plus = header.op == op::READDIRPLUS;
        let dir = self.ino(header.node)?;
        let mut listing = self.volume.read_dir_from(dir, position).map_err(no)?;
        while let Some(entry) = listing.next() {
            let entry = match entry {
                Ok(entry) => entry,
                // What was read before is given out; the error comes again at the next call.
                Err(_) if !out.is_empty() => break,
                Err(error) => return Err(no(error)),
            };
            let record = Record {
                ino: u64::from(entry.ino.get()),
                position: listing.position(),
                kind: entry.file_type,
                name: &entry.name,
            };
            if out.len() + record.len(plus) > room {
                break;
            }
            if plus {
                self.put_entry_of(header, &entry, out);
            }
            record.put(out);
        }
        Ok(())
    }

    /// What a record of READDIRPLUS begins with; zeros for what the kernel does not count.
    fn put_entry_of(&self, header: &Header, entry: &DirEntry, out: &mut Vec<u8>) {
        let is_dot = matches!(&entry.name[..], b"." | b"..");
        if is_dot || self.put_known(header, entry.ino, out).is_err() {
            out.zeros(ENTRY);
        }
    }

    /// Forgets what a listing named that was not taken.
    pub(super) fn forget_listed(&self, out: &[u8]) {
        let mut rest = out;
        while let Some(entry) = rest.get(..ENTRY) {
            let node = Body::new(entry).u64().unwrap_or(0);
            if node != 0 {
                self.forget_one(node, 1);
            }
            let Some(len) = rest.get(ENTRY + 16..ENTRY + 20) else {
                return;
            };
            let name = u32::from_ne_bytes(len.try_into().expect("four bytes")) as usize;
            let record = ENTRY + (24 + name).next_multiple_of(8);
            rest = rest.get(record..).unwrap_or_default();
        }
    }

    /// Puts an entry, and counts it.
    pub(super) fn put_known(
        &self,
        header: &Header,
        ino: Ino,
        out: &mut Vec<u8>,
    ) -> Result<(), Errno> {
        let node = self.node(ino)?;
        let generation = self.volume.know(ino).map_err(no)?;
        match self.told(header, ino) {
            Ok((inode, size)) => {
                self.attr(&inode, size).put_entry((node, generation), out);
                Ok(())
            }
            Err(error) => {
                self.volume.forget(ino, 1);
                Err(no(error))
            }
        }
    }
}
