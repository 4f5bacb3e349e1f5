//! Fixed-width fields at an offset of a byte slice, little-endian (ext4) and big-endian (jbd2).
//! Input: slices whose length their parser has checked. Output: plain integers and byte arrays.
//! Invariant: a field that reaches past the end reads as zero bytes and is cut when written; nothing panics. Limit: because of
//! that, a parser checks the length of its slice once, before it reads the first field.

/// `N` bytes at `off`; bytes past the end of `b` are zero.
pub(crate) fn bytes<const N: usize>(b: &[u8], off: usize) -> [u8; N] {
    let rest = b.get(off..).unwrap_or(&[]);
    // This is a hot path: a complete field is one load.
    if let Some(whole) = rest.first_chunk::<N>() {
        return *whole;
    }
    let mut out = [0u8; N];
    for (to, from) in out.iter_mut().zip(rest) {
        *to = *from;
    }
    out
}

/// One byte.
pub(crate) fn u8_at(b: &[u8], off: usize) -> u8 {
    b.get(off).copied().unwrap_or(0)
}

/// Little-endian 16 bits.
pub(crate) fn le16(b: &[u8], off: usize) -> u16 {
    u16::from_le_bytes(bytes(b, off))
}

/// Little-endian 32 bits.
pub(crate) fn le32(b: &[u8], off: usize) -> u32 {
    u32::from_le_bytes(bytes(b, off))
}

/// Little-endian 64 bits.
pub(crate) fn le64(b: &[u8], off: usize) -> u64 {
    u64::from_le_bytes(bytes(b, off))
}

/// Big-endian 16 bits.
pub(crate) fn be16(b: &[u8], off: usize) -> u16 {
    u16::from_be_bytes(bytes(b, off))
}

/// Big-endian 32 bits.
pub(crate) fn be32(b: &[u8], off: usize) -> u32 {
    u32::from_be_bytes(bytes(b, off))
}

/// Big-endian 64 bits.
pub(crate) fn be64(b: &[u8], off: usize) -> u64 {
    u64::from_be_bytes(bytes(b, off))
}

/// Bytes up to the first NUL, for text fields of fixed size; not always UTF-8, so bytes.
pub(crate) fn c_bytes(field: &[u8]) -> Vec<u8> {
    field.iter().copied().take_while(|c| *c != 0).collect()
}

/// Writes `value` at `off`; bytes past the end of `b` are cut.
pub(crate) fn put(b: &mut [u8], off: usize, value: &[u8]) {
    let rest = b.get_mut(off..).unwrap_or(&mut []);
    match rest.get_mut(..value.len()) {
        Some(whole) => whole.copy_from_slice(value),
        None => rest
            .iter_mut()
            .zip(value)
            .for_each(|(to, from)| *to = *from),
    }
}

/// As [`put`], for a field of a fixed size.
fn put_field<const N: usize>(b: &mut [u8], off: usize, value: [u8; N]) {
    match b.get_mut(off..).and_then(<[u8]>::first_chunk_mut::<N>) {
        Some(whole) => *whole = value,
        None => put(b, off, &value),
    }
}

/// Little-endian 16 bits.
pub(crate) fn put_le16(b: &mut [u8], off: usize, value: u16) {
    put_field(b, off, value.to_le_bytes());
}

/// Little-endian 32 bits.
pub(crate) fn put_le32(b: &mut [u8], off: usize, value: u32) {
    put_field(b, off, value.to_le_bytes());
}

/// Little-endian 64 bits.
pub(crate) fn put_le64(b: &mut [u8], off: usize, value: u64) {
    put_field(b, off, value.to_le_bytes());
}

/// Big-endian 16 bits.
pub(crate) fn put_be16(b: &mut [u8], off: usize, value: u16) {
    put_field(b, off, value.to_be_bytes());
}

/// Big-endian 32 bits.
pub(crate) fn put_be32(b: &mut [u8], off: usize, value: u32) {
    put_field(b, off, value.to_be_bytes());
}

/// Big-endian 64 bits.
pub(crate) fn put_be64(b: &mut [u8], off: usize, value: u64) {
    put_field(b, off, value.to_be_bytes());
}
