//! Sizes in coreutils' notation: a number, its unit, and how it changes the present size.
//!
//! Input: a word of the command line; numbers of bytes. Output: a [`SizeChange`]; text. Invariant: parsing neither rounds nor
//! overflows. Limits: 64 bits.

use diorite_block::locator::parse_size;

/// What `truncate -s` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SizeChange {
    how: How,
    bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Exactly,
    Grow,
    Shrink,
    AtMost,
    AtLeast,
    RoundDown,
    RoundUp,
}

impl SizeChange {
    /// Reads `10M`, `+4K`, `-1`, `<2G`, `>1MB`, `/4096`, `%512`.
    pub(crate) fn parse(text: &str) -> Result<SizeChange, String> {
        let how = match text.chars().next() {
            Some('+') => How::Grow,
            Some('-') => How::Shrink,
            Some('<') => How::AtMost,
            Some('>') => How::AtLeast,
            Some('/') => How::RoundDown,
            Some('%') => How::RoundUp,
            _ => How::Exactly,
        };
        let number = if how == How::Exactly {
            text
        } else {
            &text[1..]
        };
        let bytes = parse_size(number)?;
        if bytes == 0 && matches!(how, How::RoundDown | How::RoundUp) {
            return Err(format!("{text:?}: division by zero"));
        }
        Ok(SizeChange { how, bytes })
    }

    /// The same change with its number in units of `unit` bytes; none on overflow.
    pub(crate) fn in_units(self, unit: u64) -> Option<SizeChange> {
        let bytes = self.bytes.checked_mul(unit)?;
        Some(SizeChange { bytes, ..self })
    }

    /// Whether the new size depends on the present one.
    pub(crate) fn is_relative(self) -> bool {
        self.how != How::Exactly
    }

    /// The new size of a file that has `size` bytes; none on overflow.
    pub(crate) fn of(self, size: u64) -> Option<u64> {
        let bytes = self.bytes;
        match self.how {
            How::Exactly => Some(bytes),
            How::Grow => size.checked_add(bytes),
            How::Shrink => Some(size.saturating_sub(bytes)),
            How::AtMost => Some(size.min(bytes)),
            How::AtLeast => Some(size.max(bytes)),
            How::RoundDown => Some(size - size % bytes),
            How::RoundUp => size.checked_next_multiple_of(bytes),
        }
    }
}

/// A number of bytes with a unit: rounded up, with one digit after the point if it is below 10.
pub(crate) fn human(bytes: u64) -> String {
    if bytes < 1024 {
        return bytes.to_string();
    }
    let mut unit = 1u128;
    for letter in ["K", "M", "G", "T", "P"] {
        unit *= 1024;
        let tenths = (u128::from(bytes) * 10).div_ceil(unit);
        let whole = u128::from(bytes).div_ceil(unit);
        if tenths < 100 {
            return format!("{}.{}{letter}", tenths / 10, tenths % 10);
        }
        if whole < 1024 {
            return format!("{whole}{letter}");
        }
    }
    format!("{}E", u128::from(bytes).div_ceil(unit * 1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_coreutils() {
        let of = |text: &str, size| SizeChange::parse(text).map(|c| c.of(size));
        for (text, size, new) in [
            ("10", 5, 10),
            ("1K", 5, 1024),
            ("1KB", 5, 1000),
            ("2MiB", 5, 2 << 20),
            ("2048s", 5, 1 << 20),
            ("0x10", 5, 16),
            ("0", 5, 0),
            ("+3", 5, 8),
            ("-3", 5, 2),
            ("-9", 5, 0),
            ("<3", 5, 3),
            ("<9", 5, 5),
            (">3", 5, 5),
            (">9", 5, 9),
            ("/4", 5, 4),
            ("%4", 5, 8),
            ("%4", 8, 8),
        ] {
            assert_eq!(of(text, size), Ok(Some(new)), "{text}");
        }
        assert_eq!(of("+1", u64::MAX), Ok(None));
        let blocks = |text: &str, size| {
            SizeChange::parse(text)?
                .in_units(4096)
                .map(|c| c.of(size))
                .ok_or(String::new())
        };
        assert_eq!(blocks("3", 5), Ok(Some(12_288)));
        assert_eq!(blocks("%1", 5), Ok(Some(4096)));
        assert!(blocks("8E", 5).is_err());
        for text in [
            "", "+", "K", "1Q", "1KX", "/0", "%0", "--1", "1 K", "16E", "\u{fc}",
        ] {
            assert!(SizeChange::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_with_units() {
        let cases = [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (10 << 10, "10K"),
            ((10 << 10) + 1, "11K"),
            ((1 << 20) - 1, "1.0M"),
            (3 << 40, "3.0T"),
            (u64::MAX, "16E"),
        ];
        for (bytes, shown) in cases {
            assert_eq!(human(bytes), shown);
        }
    }
}
