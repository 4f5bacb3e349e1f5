//! Counts in a block of them, of 1 to 64 bits.
//!
//! Input: the bytes of a block, a number, a width. Output: the count. Invariant: the number is one of the block's. Source: the description
//! of the format in QEMU's documentation (interop/qcow2).

/// A count of a width in bits: whole bytes begin with the highest one, parts of a byte with the lowest bits.
pub(crate) fn get(block: &[u8], n: usize, width: usize) -> u64 {
    match width {
        1 | 2 | 4 => {
            let byte = block[n * width / 8] >> (n * width % 8);
            u64::from(byte) & ((1 << width) - 1)
        }
        _ => {
            let bytes = &block[n * width / 8..][..width / 8];
            bytes
                .iter()
                .fold(0, |all, byte| all << 8 | u64::from(*byte))
        }
    }
}

pub(crate) fn set(block: &mut [u8], n: usize, width: usize, count: u64) {
    match width {
        1 | 2 | 4 => {
            let (at, shift) = (n * width / 8, n * width % 8);
            let mask = ((1_u8 << width) - 1) << shift;
            block[at] = block[at] & !mask | (count as u8) << shift;
        }
        _ => {
            let bytes = &mut block[n * width / 8..][..width / 8];
            let all = count.to_be_bytes();
            bytes.copy_from_slice(&all[8 - width / 8..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_every_width() {
        for order in 0..=6 {
            let width = 1 << order;
            let most = (u64::MAX >> (64 - width)).min(5);
            let mut block = vec![0; 64];
            for n in 0..8 {
                set(&mut block, n, width, n as u64 % (most + 1));
            }
            set(&mut block, 3, width, most);
            for n in 0..8 {
                let want = if n == 3 { most } else { n as u64 % (most + 1) };
                assert_eq!(get(&block, n, width), want, "{width} bits, {n}");
            }
        }
    }
}
