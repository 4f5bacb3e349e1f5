//! A disk that was divided into several sparse images.
//!
//! Input: sparse images of one size, each of which leaves out what others hold. Output: the bytes of the disk in order. Invariants: of a
//! block that several hold, the bytes of the last one count, as simg2img writes them; what none holds is zeros; each image is read to its
//! end, with its sums. Limits: if an image is left out, that cannot be noticed.

use super::{Left, SparseReader, SparseStep, add_zeros, ended};
use std::io::{self, Read};

/// Reads several sparse images as one: see the module.
#[derive(Debug)]
pub struct SparsePieces<R> {
    pieces: Vec<(String, SparseReader<R>)>,
}

/// How the next bytes of an image are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Nothing,
    Zeros,
    Bytes,
}

impl<R: Read> SparsePieces<R> {
    /// Of images with names for messages: one at least.
    ///
    /// # Errors
    /// They are not of one size, or not of blocks of one size.
    pub fn new(pieces: Vec<(String, SparseReader<R>)>) -> io::Result<SparsePieces<R>> {
        let Some((first, one)) = pieces.first() else {
            return Err(io::Error::other("there is no Android sparse image"));
        };
        let differs = |piece: &&(String, SparseReader<R>)| {
            (piece.1.size, piece.1.block) != (one.size, one.block)
        };
        if let Some((name, other)) = pieces.iter().find(differs) {
            return Err(io::Error::other(format!(
                "{name} is of {} bytes in blocks of {}, and {first} of {} in blocks of {}: they are no pieces of one image",
                other.size, other.block, one.size, one.block
            )));
        }
        Ok(SparsePieces { pieces })
    }

    /// Bytes of the disk, as all headers say.
    pub fn size(&self) -> u64 {
        self.pieces.first().map_or(0, |(_, first)| first.size)
    }

    /// The next bytes, in `out` if they are data: room for four bytes at least.
    ///
    /// # Errors
    /// As of [`SparseReader::step`], with the name of the image.
    pub fn step(&mut self, out: &mut [u8]) -> io::Result<SparseStep> {
        let (mut len, mut owner, mut has_bytes) = (u64::MAX, None, false);
        for (n, (name, piece)) in self.pieces.iter_mut().enumerate() {
            // All are of one size, so they end together.
            let Some((next, left)) = piece.next_run().map_err(|e| named(name, &e))? else {
                len = 0;
                continue;
            };
            len = len.min(left);
            has_bytes |= next == Next::Bytes;
            if next != Next::Nothing {
                owner = Some(n);
            }
        }
        if len == 0 {
            return Ok(SparseStep::End);
        }
        if !has_bytes {
            self.pieces
                .iter_mut()
                .for_each(|(_, piece)| piece.pass(len));
            return Ok(SparseStep::Zeros(len));
        }
        let count = out.len().min(usize::try_from(len).unwrap_or(usize::MAX)) / 4 * 4;
        let out = &mut out[..count];
        // The one whose bytes count is read last, over those of others.
        let others = (0..self.pieces.len()).filter(|n| Some(*n) != owner);
        for n in others.chain(owner) {
            let (name, piece) = &mut self.pieces[n];
            match piece.left {
                Left::Zeros(_) | Left::Nothing(_) => {
                    piece.pass(count as u64);
                    if Some(n) == owner {
                        out.fill(0);
                    }
                }
                Left::Raw(_) | Left::Word(..) => {
                    piece.take(out).map_err(|e| named(name, &e))?;
                }
            }
        }
        Ok(SparseStep::Data(count))
    }
}

fn named(name: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{name}: {error}"))
}

impl<R: Read> SparseReader<R> {
    /// The next run, and its length; None at the end.
    fn next_run(&mut self) -> io::Result<Option<(Next, u64)>> {
        loop {
            let (next, len) = match self.left {
                Left::Raw(len) | Left::Word(_, len) => (Next::Bytes, len),
                Left::Zeros(len) => (Next::Zeros, len),
                Left::Nothing(len) => (Next::Nothing, len),
            };
            if len > 0 {
                return Ok(Some((next, len)));
            }
            if !self.next()? {
                return Ok(None);
            }
        }
    }

    /// Goes on in a run without bytes.
    fn pass(&mut self, len: u64) {
        if let Left::Zeros(left) | Left::Nothing(left) = &mut self.left {
            *left -= len;
            add_zeros(&mut self.sum, len);
        }
    }

    /// Reads the next bytes of a run: not more than it has, and whole words.
    pub(super) fn take(&mut self, out: &mut [u8]) -> io::Result<()> {
        match &mut self.left {
            Left::Raw(left) => {
                self.from
                    .read_exact(out)
                    .map_err(|e| ended(e, "a chunk of data"))?;
                *left -= out.len() as u64;
            }
            Left::Word(word, left) => {
                for at in out.chunks_exact_mut(4) {
                    at.copy_from_slice(word);
                }
                *left -= out.len() as u64;
            }
            Left::Zeros(_) | Left::Nothing(_) => return Ok(()),
        }
        self.sum.update(out);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: usize = 8;

    /// An image of chunks: a kind, blocks, a body.
    fn image(chunks: &[(u16, u32, &[u8])], block: u32) -> Vec<u8> {
        let blocks: u32 = chunks.iter().map(|chunk| chunk.1).sum();
        let mut bytes = 0xed26_ff3a_u32.to_le_bytes().to_vec();
        for half in [1_u16, 0, 28, 12] {
            bytes.extend(half.to_le_bytes());
        }
        for word in [block, blocks, chunks.len() as u32, 0] {
            bytes.extend(word.to_le_bytes());
        }
        for (kind, blocks, body) in chunks {
            bytes.extend(u32::from(*kind).to_le_bytes());
            bytes.extend(blocks.to_le_bytes());
            bytes.extend((12 + body.len() as u32).to_le_bytes());
            bytes.extend(*body);
        }
        bytes
    }

    fn read(images: &[&[u8]], room: usize) -> io::Result<(Vec<u8>, u64)> {
        let pieces = images.iter().enumerate();
        let pieces = pieces.map(|(n, bytes)| Ok((format!("p{n}"), SparseReader::new(*bytes)?)));
        let mut pieces = SparsePieces::new(pieces.collect::<io::Result<Vec<_>>>()?)?;
        let (mut all, mut zeros, mut out) = (Vec::new(), 0, vec![0xee; room]);
        loop {
            match pieces.step(&mut out)? {
                SparseStep::Data(len) => all.extend(&out[..len]),
                SparseStep::Zeros(len) => {
                    zeros += len;
                    all.resize(all.len() + len as usize, 0);
                }
                SparseStep::End => break,
            }
        }
        assert_eq!(all.len() as u64, pieces.size());
        Ok((all, zeros))
    }

    #[test]
    fn the_last_one_counts_and_nothing_is_zeros() {
        let one = image(
            &[
                (0xcac1, 2, &[1; 2 * BLOCK]),
                (0xcac3, 3, &[]),
                (0xcac2, 1, b"abcd"),
            ],
            8,
        );
        let two = image(
            &[
                (0xcac3, 1, &[]),
                (0xcac2, 2, &[0; 4]),
                (0xcac3, 2, &[]),
                (0xcac1, 1, b"12345678"),
            ],
            8,
        );
        let want = |last: &[u8]| [&[1; 8], &[0; 32][..], last].concat();
        for room in [4, 7, 8, 12, 1000] {
            let (all, zeros) = read(&[&one, &two], room).expect("pieces");
            assert_eq!(all, want(b"12345678"), "{room}");
            assert_eq!(zeros, 3 * BLOCK as u64);
            let (all, _) = read(&[&two, &one], room).expect("pieces");
            assert_eq!(
                all,
                [&[1; 16], &[0; 24][..], b"abcdabcd"].concat(),
                "{room}"
            );
        }
    }

    #[test]
    fn sums_are_those_of_each_piece() {
        let sum = |bytes: &[u8]| {
            let mut sum = flate2::Crc::new();
            sum.update(bytes);
            sum.sum().to_le_bytes()
        };
        let whole = sum(&[[0; 16], [7; 16]].concat());
        let one = image(
            &[(0xcac3, 2, &[]), (0xcac1, 2, &[7; 16]), (0xcac4, 0, &whole)],
            8,
        );
        let other = image(&[(0xcac1, 4, &[5; 32])], 8);
        for order in [[&one, &other], [&other, &one]] {
            read(&order.map(|piece| &piece[..]), 12).expect("sums");
        }
        let mut bad = one.clone();
        *bad.last_mut().expect("a sum") ^= 1;
        for (order, name) in [([&bad, &other], "p0:"), ([&other, &bad], "p1:")] {
            let error = read(&order.map(|piece| &piece[..]), 12).expect_err("a sum");
            assert!(
                error.to_string().contains(name) && error.to_string().contains("sum"),
                "{error}"
            );
        }
        let cut = read(&[&other[..50], &one], 12).expect_err("it is cut");
        assert!(
            cut.to_string().contains("p0:") && cut.to_string().contains("ends in"),
            "{cut}"
        );
    }

    #[test]
    fn other_sizes_are_refused() {
        let one = image(&[(0xcac3, 4, &[])], 8);
        for other in [
            image(&[(0xcac3, 5, &[])], 8),
            image(&[(0xcac3, 2, &[])], 16),
        ] {
            let error = read(&[&one, &one, &other], 8).expect_err("it is another");
            let said = error.to_string();
            assert!(
                said.contains("p2 is of") && said.contains("p0 of 32"),
                "{said}"
            );
        }
        assert!(read(&[], 8).is_err());
    }
}
