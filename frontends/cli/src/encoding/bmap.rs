//! The block map of an image, as bmaptool takes it: which blocks have data, with checksums.
//!
//! Input: the bytes of an image, in order. Output: the text of the map, version 2.0. Invariant: each block with a byte that is not zero is
//! in a range. Limits: blocks of 4096 bytes. Source: the comments that `bmaptool create` writes into its maps, and experiments with it.

use crate::names::hex;
use diorite_image::are_zeros;
use sha2::{Digest, Sha256};
use std::fmt::Write;

const BLOCK: u64 = 4096;

/// See the module.
#[derive(Default)]
pub(crate) struct Bmap {
    /// Bytes so far.
    at: u64,
    /// The block that is not complete.
    part: Vec<u8>,
    /// The range that goes on: its first block, the sum of its bytes.
    open: Option<(u64, Sha256)>,
    /// First and last block, and the sum.
    ranges: Vec<(u64, u64, String)>,
    mapped: u64,
}

impl Bmap {
    /// Takes the next bytes.
    pub(super) fn data(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let left = (BLOCK - self.at % BLOCK) as usize;
            let (now, rest) = bytes.split_at(left.min(bytes.len()));
            bytes = rest;
            self.at += now.len() as u64;
            if self.part.is_empty() && now.len() as u64 == BLOCK {
                self.block(now);
                continue;
            }
            self.part.extend(now);
            if self.at.is_multiple_of(BLOCK) {
                self.end_block();
            }
        }
    }

    /// Takes so many zeros.
    pub(super) fn zeros(&mut self, len: u64) {
        let fills = (self.at.next_multiple_of(BLOCK) - self.at).min(len);
        self.data(&[0; BLOCK as usize][..fills as usize]);
        let (whole, rest) = ((len - fills) / BLOCK, (len - fills) % BLOCK);
        if whole > 0 {
            self.close();
            self.at += whole * BLOCK;
        }
        self.data(&[0; BLOCK as usize][..rest as usize]);
    }

    fn end_block(&mut self) {
        let part = std::mem::take(&mut self.part);
        self.block(&part);
    }

    /// The block that ends, or the image ends in, at `at`.
    fn block(&mut self, bytes: &[u8]) {
        if are_zeros(bytes) {
            // `at` is behind it already.
            self.close_before((self.at - 1) / BLOCK);
            return;
        }
        let number = (self.at - 1) / BLOCK;
        let (_, sum) = self.open.get_or_insert_with(|| (number, Sha256::new()));
        sum.update(bytes);
        self.mapped += 1;
    }

    fn close(&mut self) {
        self.close_before(self.at.div_ceil(BLOCK));
    }

    fn close_before(&mut self, next: u64) {
        if let Some((first, sum)) = self.open.take() {
            self.ranges.push((first, next - 1, hex(&sum.finalize())));
        }
    }

    /// The text of the map.
    pub(super) fn finish(mut self) -> String {
        if !self.part.is_empty() {
            self.end_block();
        }
        self.close();
        let blank = "0".repeat(64);
        let sum = hex(&Sha256::digest(self.text(&blank)));
        self.text(&sum)
    }

    /// The sum is that of the text with zeros in its place.
    fn text(&self, sum: &str) -> String {
        let blocks = self.at.div_ceil(BLOCK);
        let mut text = format!(
            "<?xml version=\"1.0\" ?>\n\
             <bmap version=\"2.0\">\n    \
                 <ImageSize> {} </ImageSize>\n    \
                 <BlockSize> {BLOCK} </BlockSize>\n    \
                 <BlocksCount> {blocks} </BlocksCount>\n    \
                 <MappedBlocksCount> {} </MappedBlocksCount>\n    \
                 <ChecksumType> sha256 </ChecksumType>\n    \
                 <BmapFileChecksum> {sum} </BmapFileChecksum>\n    \
                 <BlockMap>\n",
            self.at, self.mapped
        );
        for (first, last, sum) in &self.ranges {
            let range = match first == last {
                true => first.to_string(),
                false => format!("{first}-{last}"),
            };
            // Writing to a text cannot fail.
            let _ = writeln!(text, "        <Range chksum=\"{sum}\"> {range} </Range>");
        }
        text.push_str("    </BlockMap>\n</bmap>\n");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However the bytes come, the map is that of the whole.
    #[test]
    fn pieces_make_no_difference() {
        let mut image = vec![0; 40_000];
        for at in [0, 4095, 8192, 20_480, 24_576, 39_999] {
            image[at] = 7;
        }
        let mut whole = Bmap::default();
        whole.data(&image);
        let whole = whole.finish();
        let ranges: Vec<&str> = whole
            .lines()
            .filter_map(|line| line.split_once("\">")?.1.strip_suffix("</Range>"))
            .map(str::trim)
            .collect();
        assert_eq!(ranges, ["0", "2", "5-6", "9"]);
        assert!(whole.contains("<MappedBlocksCount> 5 <"), "{whole}");
        for step in [1, 511, 512, 4095, 4096, 4097, 12_289] {
            let mut map = Bmap::default();
            for piece in image.chunks(step) {
                match are_zeros(piece) {
                    true => map.zeros(piece.len() as u64),
                    false => map.data(piece),
                }
            }
            assert_eq!(map.finish(), whole, "{step}");
        }
    }
}
