//! The numbers of a tar header.
//!
//! Input: a field. Output: its number. Invariant: a number that does not fit is an error, and never cut. Limits: fields of at most 15
//! bytes. Source: POSIX ustar; the GNU tar manual, "Basic Tar Format" and "Extensions to the Archive Format".

use crate::error::Error;
use tar::Header;

/// Octal digits between blanks and zeros, or behind a byte from 0x80 up a number of two's complement, the highest byte first. None: there
/// are no digits.
pub(crate) fn number(field: &[u8]) -> Result<Option<i128>, Error> {
    let Some((first, rest)) = field.split_first() else {
        return Ok(None);
    };
    if first & 0x80 != 0 {
        // Seven bits, of which the highest is the sign.
        let high = i128::from((first << 1).cast_signed() >> 1);
        let add = |value: i128, byte: &u8| value << 8 | i128::from(*byte);
        return Ok(Some(rest.iter().fold(high, add)));
    }
    let is_blank = |byte: &u8| matches!(byte, 0 | b' ');
    let start = field.iter().position(|b| !is_blank(b));
    let digits = &field[start.unwrap_or(field.len())..];
    let end = digits.iter().position(is_blank).unwrap_or(digits.len());
    let digits = &digits[..end];
    if digits.is_empty() {
        return Ok(None);
    }
    let add = |value: Option<i128>, byte: &u8| {
        let is_digit = (b'0'..=b'7').contains(byte);
        value
            .filter(|_| is_digit)
            .map(|v| v << 3 | i128::from(byte - b'0'))
    };
    let value = digits.iter().fold(Some(0), add);
    let shown = || String::from_utf8_lossy(digits).into_owned();
    let value = value.ok_or_else(|| Error::new(format!("no number: {:?}", shown())))?;
    Ok(Some(value))
}

/// A number that may be missing, which is 0: archives of packages (npm, cargo) leave owners empty.
pub(crate) fn fitting<N: TryFrom<i128>>(field: &[u8], what: &str) -> Result<N, Error> {
    let value = number(field)?.unwrap_or(0);
    N::try_from(value).map_err(|_| Error::new(format!("{what} out of range: {value}")))
}

/// The length of what is behind a header, which has to be there.
pub(crate) fn size(header: &Header) -> Result<u64, Error> {
    let field = &header.as_old().size;
    match number(field)? {
        Some(_) => fitting(field, "a length"),
        None => Err(Error::new("a header without a length")),
    }
}

/// The number of a device.
pub(crate) fn rdev(header: &Header) -> Result<diorite::Rdev, Error> {
    let fields = match (header.as_ustar(), header.as_gnu()) {
        (Some(ustar), _) => [ustar.dev_major, ustar.dev_minor],
        (None, Some(gnu)) => [gnu.dev_major, gnu.dev_minor],
        (None, None) => return Ok(diorite::Rdev { major: 0, minor: 0 }),
    };
    Ok(diorite::Rdev {
        major: fitting(&fields[0], "the number of a device")?,
        minor: fitting(&fields[1], "the number of a device")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The defect: of a number of more than 64 bits the lower ones were taken.
    #[test]
    fn numbers_are_read_whole_or_not_at_all() {
        let of = |field: &[u8]| number(field).map_err(|e| e.to_string());
        assert_eq!(of(b"0000644\0"), Ok(Some(0o644)));
        assert_eq!(of(b"  17 \0\0\0"), Ok(Some(0o17)));
        assert_eq!(of(b"777777777777"), Ok(Some(0o777_777_777_777)));
        assert_eq!(
            (of(b""), of(b"   \0"), of(b"\0\0")),
            (Ok(None), Ok(None), Ok(None))
        );
        assert!(of(b"0x12").is_err() && of(b"18").is_err() && of(b"-1").is_err());
        assert_eq!(of(b"\x80\0\0\x01\0"), Ok(Some(256)));
        assert_eq!(of(&[0xff; 12]), Ok(Some(-1)));
        let mut field = [0; 12];
        (field[0], field[3]) = (0x80, 1);
        assert_eq!(of(&field), Ok(Some(1 << 64)));
        assert!(fitting::<u64>(&field, "x").is_err() && fitting::<i64>(&field, "x").is_err());
        assert!(fitting::<u32>(b"\x80\x01\0\0\0\0", "x").is_err());
        assert_eq!(
            fitting::<u32>(b"\x80\0\xff\xff\xff\xff", "x").unwrap(),
            u32::MAX
        );
    }
}
