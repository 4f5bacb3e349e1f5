//! Reads what is checked: runs of blocks, single inodes, lists of single blocks in ascending order.
//!
//! Input: places that were checked to be in the volume. Output: their bytes, in reused memory. Invariant: a read never reaches
//! past the volume. Limits: a reader belongs to one thread; a failed read ends the check.

use crate::source::Source;
use diorite::Error;
use diorite::Op;
use diorite_block::Buf;
use diorite_format::{
    Corrupt, FormatError, FsBlock, Ino, Inode, Result as Parsed, Superblock, inode,
};

/// Bytes per read of contiguous blocks.
pub(super) const STRIPE: u32 = 1 << 20;

/// See the module.
pub(super) struct Reader<'a> {
    source: &'a Source,
    /// The memory of the last read.
    buf: Option<Buf>,
    /// The inode table's block that was read last.
    table: Option<(FsBlock, Box<[u8]>)>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(source: &'a Source) -> Reader<'a> {
        Reader {
            source,
            buf: None,
            table: None,
        }
    }

    /// Blocks per stripe.
    pub(super) fn stripe_blocks(&self) -> u64 {
        u64::from(STRIPE / self.source.sb.block_size()).max(1)
    }

    /// Reads `blocks` blocks from `at` on: at most a stripe.
    pub(super) fn run(&mut self, at: FsBlock, blocks: u64) -> Result<&[u8], Error> {
        let size = u64::from(self.source.sb.block_size());
        let bytes = usize::try_from(blocks * size).expect("a run is at most a stripe");
        let buf = self.buf.take().filter(|b| b.len() == bytes);
        let pos = self.source.sb.byte_of(at).get();
        let buf = buf.unwrap_or_else(|| Buf::zeroed(bytes));
        let buf = self
            .source
            .blocking
            .read(pos, buf)
            .map_err(|error| Error::Device {
                op: Op::Read,
                pos,
                len: u32::try_from(bytes).unwrap_or(u32::MAX),
                error,
            })?;
        Ok(self.buf.insert(buf).as_slice())
    }

    /// Reads one block.
    pub(super) fn block(&mut self, at: FsBlock) -> Result<&[u8], Error> {
        self.run(at, 1)
    }

    /// Passes every block of an ascending list to `each`; contiguous blocks are read together.
    pub(super) fn each(
        &mut self,
        blocks: &[FsBlock],
        mut each: impl FnMut(usize, &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let size = self.source.sb.block_size() as usize;
        let most = self.stripe_blocks();
        let mut from = 0;
        while let Some(first) = blocks.get(from) {
            let adjacent = |(n, b): &(usize, &FsBlock)| {
                (*n as u64) < most && b.get() == first.get() + *n as u64
            };
            let run = blocks[from..]
                .iter()
                .enumerate()
                .take_while(adjacent)
                .count();
            let bytes = self.run(*first, run as u64)?;
            for (n, block) in bytes.chunks_exact(size).enumerate() {
                each(from + n, block)?;
            }
            from += run;
        }
        Ok(())
    }

    /// Reads an inode of the volume, even if its checksum is wrong; none if it is otherwise invalid.
    pub(super) fn inode(&mut self, ino: Ino) -> Result<Option<(Inode, &[u8])>, Error> {
        let sb = &self.source.sb;
        let place = sb.inode_place(ino)?;
        let table = self.source.groups[place.group.get() as usize].inode_table;
        let block = FsBlock::new(table.get() + u64::from(place.table_block));
        if self.table.as_ref().is_none_or(|(at, _)| *at != block) {
            let bytes = self.run(block, 1)?.into();
            self.table = Some((block, bytes));
        }
        let (_, bytes) = self.table.as_ref().expect("it was just read");
        let raw = &bytes[place.offset as usize..][..sb.geometry().inode_size() as usize];
        let inode = match Inode::parse(sb, ino, raw) {
            Err(e) if is_wrong_sum(&e) => believed(sb, ino, raw),
            parsed => parsed,
        };
        Ok(inode.ok().map(|inode| (inode, raw)))
    }
}

/// Whether only the checksum of an inode is wrong, as far as is known.
pub(super) fn is_wrong_sum(error: &FormatError) -> bool {
    matches!(error, FormatError::Corrupt(Corrupt::InodeChecksum { .. }))
}

/// Parses an inode as if its checksum were right.
pub(super) fn believed(sb: &Superblock, ino: Ino, raw: &[u8]) -> Parsed<Inode> {
    let mut copy = raw.to_vec();
    inode::seal(sb, ino, &mut copy);
    Inode::parse(sb, ino, &copy)
}
