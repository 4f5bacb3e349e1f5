//! Sizes as text: parsed from command lines and locators, printed for people.
//!
//! Input: text; numbers of bytes. Output: numbers of bytes; text. Invariant: parsing neither rounds nor wraps. Limits: 64 bits.

use std::fmt;

/// Letters of units, with their powers of 1,024 or 1,000.
const UNITS: [(&str, u32); 10] = [
    ("k", 1),
    ("K", 1),
    ("m", 2),
    ("M", 2),
    ("g", 3),
    ("G", 3),
    ("t", 4),
    ("T", 4),
    ("P", 5),
    ("E", 6),
];

/// Parses a size in bytes: a number, hexadecimal with `0x` in front; then `K`, `KiB`, `M`, ... `E` for a power of 1,024, `KB`,
/// `MB`, ... for one of 1,000, or `s` for sectors of 512.
///
/// # Errors
/// A sentence that says what is wrong.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || {
        format!(
            "{text:?} is not a size (a number of bytes, or one as in 4K, 4KiB, 4KB, 2048s, 0x1000)"
        )
    };
    if let Some(digits) = text.strip_prefix("0x") {
        let plain = digits.bytes().all(|b| b.is_ascii_hexdigit());
        let number = u64::from_str_radix(digits, 16);
        return number.ok().filter(|_| plain).ok_or_else(wrong);
    }
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let unit = unit(&text[digits.len()..])
        .filter(|_| plain)
        .ok_or_else(wrong)?;
    let number: Option<u64> = digits.parse().ok();
    number
        .and_then(|number| number.checked_mul(unit))
        .ok_or_else(|| format!("{text:?} is not a size: it is too large"))
}

/// The unit after the digits, in bytes.
fn unit(word: &str) -> Option<u64> {
    match word {
        "" => return Some(1),
        "s" => return Some(512),
        _ => {}
    }
    let (letter, rest) = word.split_at(1);
    let power = UNITS.iter().find(|(known, _)| *known == letter)?.1;
    match rest {
        "" | "iB" => Some(1 << (10 * power)),
        "B" => Some(1000u64.pow(power)),
        _ => None,
    }
}

/// Bytes in the shortest exact form.
pub(crate) struct Size(pub(crate) u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = [(40, "T"), (30, "G"), (20, "M"), (10, "K")]
            .into_iter()
            .find(|(shift, _)| self.0 != 0 && self.0.trailing_zeros() >= *shift);
        match unit {
            Some((shift, letter)) => write!(f, "{}{letter}", self.0 >> shift),
            None => write!(f, "{}", self.0),
        }
    }
}

/// Bytes for people: at most one decimal.
pub(crate) struct Rounded(pub(crate) u64);

impl fmt::Display for Rounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        let Some((shift, unit)) = units.into_iter().find(|(shift, _)| self.0 >> shift > 0) else {
            return write!(f, "{} bytes", self.0);
        };
        let tenths = (u128::from(self.0) * 10) >> shift;
        match tenths % 10 {
            0 => write!(f, "{} {unit}", tenths / 10),
            tenth => write!(f, "{}.{tenth} {unit}", tenths / 10),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, size) in [
            ("10", 10),
            ("1K", 1024),
            ("1k", 1024),
            ("1KiB", 1024),
            ("1KB", 1000),
            ("3MiB", 3 << 20),
            ("2GB", 2_000_000_000),
            ("1T", 1 << 40),
            ("15E", 15 << 60),
            ("2048s", 1 << 20),
            ("0x1000", 4096),
            ("0xE", 14),
        ] {
            assert_eq!(parse_size(text), Ok(size), "{text}");
        }
        for text in [
            "",
            "K",
            "1Q",
            "1KX",
            "1Ki",
            "1sB",
            "+1",
            "1 K",
            "16E",
            "0x",
            "0x+1",
            "0xg",
            "1B",
            "\u{fc}",
            "36028797018963968s",
        ] {
            parse_size(text).expect_err(text);
        }
    }
}
