//! The block map of an image, as bmaptool takes it: which blocks have data, with checksums.
//!
//! Input: the bytes of an image, in order. Output: the text of the map, version 2.0. Invariant: whoever writes the ranges to a device that
//! holds other bytes has the image there: a block is left out only if nothing of it was said to be data. Limits: blocks of 4096 bytes.
//! Source: the comments that `bmaptool create` writes into its maps, and experiments with it.

use crate::words::names::hex;
use sha2::{Digest, Sha256};
use std::fmt::Write;

const BLOCK: u64 = 4096;
const ZEROS: [u8; BLOCK as usize] = [0; BLOCK as usize];

/// See the module.
#[derive(Default)]
pub(crate) struct Bmap {
    /// Bytes so far.
    at: u64,
    /// The block that is not complete, and whether any of it is data.
    part: Vec<u8>,
    has_data: bool,
    /// The range that goes on: its first block, the sum of its bytes.
    open: Option<(u64, Sha256)>,
    /// First and last block, and the sum.
    ranges: Vec<(u64, u64, String)>,
    mapped: u64,
}

impl Bmap {
    /// Takes the next bytes, which are data, zeros too.
    pub(super) fn data(&mut self, bytes: &[u8]) {
        self.take(bytes, true);
    }

    /// Takes so many zeros, which nobody needs.
    pub(super) fn skip(&mut self, len: u64) {
        let fills = (self.at.next_multiple_of(BLOCK) - self.at).min(len);
        self.take(&ZEROS[..fills as usize], false);
        let (whole, rest) = ((len - fills) / BLOCK, (len - fills) % BLOCK);
        if whole > 0 {
            self.close(self.at.div_ceil(BLOCK));
            self.at += whole * BLOCK;
        }
        self.take(&ZEROS[..rest as usize], false);
    }

    /// Takes so many zeros, which have to be there.
    pub(super) fn zeros(&mut self, mut len: u64) {
        while len > 0 {
            let now = len.min(BLOCK);
            self.data(&ZEROS[..now as usize]);
            len -= now;
        }
    }

    fn take(&mut self, mut bytes: &[u8], is_data: bool) {
        while !bytes.is_empty() {
            let left = (BLOCK - self.at % BLOCK) as usize;
            let (now, rest) = bytes.split_at(left.min(bytes.len()));
            bytes = rest;
            self.at += now.len() as u64;
            self.has_data |= is_data;
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

    fn end_block(&mut self) {
        let part = std::mem::take(&mut self.part);
        self.block(&part);
    }

    /// The block that ends, or the image ends in, at `at`.
    fn block(&mut self, bytes: &[u8]) {
        // `at` is behind it already.
        let number = (self.at - 1) / BLOCK;
        if !std::mem::take(&mut self.has_data) {
            return self.close(number);
        }
        let (_, sum) = self.open.get_or_insert_with(|| (number, Sha256::new()));
        sum.update(bytes);
        self.mapped += 1;
    }

    /// Ends the range that is open, in front of a block.
    fn close(&mut self, next: u64) {
        if let Some((first, sum)) = self.open.take() {
            self.ranges.push((first, next - 1, hex(&sum.finalize())));
        }
    }

    /// The text of the map.
    pub(super) fn finish(mut self) -> String {
        if !self.part.is_empty() {
            self.end_block();
        }
        self.close(self.at.div_ceil(BLOCK));
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

    /// However the bytes come, the map is that of the whole; zeros are left out only where that was said.
    #[test]
    fn pieces_make_no_difference() {
        let mut image = vec![0; 40_000];
        for at in [0, 4095, 8192, 20_480, 24_576, 39_999] {
            image[at] = 7;
        }
        // Bytes of the third block are zeros that count; of the fourth none do.
        let is_skipped = |at: usize| !(12_000..12_288).contains(&at) && image[at] == 0;
        let made = |step: usize| {
            let mut map = Bmap::default();
            for from in (0..image.len()).step_by(step) {
                let all = from..image.len().min(from + step);
                match all.clone().all(is_skipped) {
                    true => map.skip(all.len() as u64),
                    false => map.data(&image[all]),
                }
            }
            map.finish()
        };
        let ranges = |text: &str| -> Vec<String> {
            let of = |line: &str| {
                Some(
                    line.split_once("\">")?
                        .1
                        .strip_suffix("</Range>")?
                        .to_owned(),
                )
            };
            let all = text.lines().filter_map(of);
            all.map(|range| range.trim().to_owned()).collect()
        };
        for step in [1, 64, 256, 512] {
            let map = made(step);
            assert_eq!(ranges(&map), ["0", "2", "5-6", "9"], "{step}");
            assert!(map.contains("<MappedBlocksCount> 5 <"), "{map}");
        }
        assert_eq!(ranges(&made(image.len())), ["0-9"]);
        let mut zeros = Bmap::default();
        zeros.skip(5000);
        zeros.zeros(1);
        zeros.skip(20_000);
        zeros.zeros(9000);
        assert_eq!(ranges(&zeros.finish()), ["1", "6-8"]);
    }
}
