//! Values of attributes as text.
//!
//! Input: bytes; a word of the command line. Output: `"text"`, `0xHEX`, `0sBASE64`; bytes. Invariant: each form is parsed back
//! to the same bytes. Limits: none. Source: man 1 getfattr, man 1 setfattr; experiments with getfattr on values with various
//! shares of unprintable bytes.

use crate::words::names::hex;

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// How a value is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Encoding {
    /// As text in quotes
    Text,
    /// As 0x and two digits per byte
    Hex,
    /// As 0s and base64: four characters for three bytes
    Base64,
}

/// A value of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Value(pub(crate) Vec<u8>);

/// Prints a value. By default it is text, or base64 if more than an eighth of its bytes are unprintable.
pub(crate) fn encode(value: &[u8], how: Option<Encoding>) -> Vec<u8> {
    let odd = value.iter().filter(|b| !(32..127).contains(*b)).count();
    let by_itself = match odd * 8 <= value.len() {
        true => Encoding::Text,
        false => Encoding::Base64,
    };
    match how.unwrap_or(by_itself) {
        Encoding::Text => text(value),
        Encoding::Hex => format!("0x{}", hex(value)).into_bytes(),
        Encoding::Base64 => [b"0s".to_vec(), base64(value)].concat(),
    }
}

fn text(value: &[u8]) -> Vec<u8> {
    let mut out = vec![b'"'];
    for byte in value {
        match byte {
            b'"' | b'\\' => out.extend([b'\\', *byte]),
            0 | b'\n' | b'\r' => out.extend(format!("\\{byte:03o}").bytes()),
            other => out.push(*other),
        }
    }
    out.push(b'"');
    out
}

fn base64(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len().div_ceil(3) * 4);
    for three in value.chunks(3) {
        let bits = three
            .iter()
            .fold(0u32, |all, byte| all << 8 | u32::from(*byte));
        let bits = bits << (8 * (3 - three.len()));
        for n in 0..4 {
            let digit = (bits >> (18 - 6 * n) & 63) as usize;
            out.push(if n <= three.len() {
                DIGITS[digit]
            } else {
                b'='
            });
        }
    }
    out
}

/// Parses a word of the command line as a value.
///
/// # Errors
/// A word that begins like hexadecimal or base64 but is not valid.
pub(crate) fn parse_value(word: &str) -> Result<Value, String> {
    let value = if let Some(digits) = word.strip_prefix("0x").or(word.strip_prefix("0X")) {
        from_hex(digits).ok_or("not hexadecimal")?
    } else if let Some(digits) = word.strip_prefix("0s").or(word.strip_prefix("0S")) {
        from_base64(digits.as_bytes()).ok_or("not base64")?
    } else {
        let quoted = word.strip_prefix('"').and_then(|w| w.strip_suffix('"'));
        unescaped(quoted.unwrap_or(word).as_bytes(), quoted.is_some())
    };
    Ok(Value(value))
}

fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = digits
        .bytes()
        .filter(|b| !b.is_ascii_whitespace())
        .collect();
    let two = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).ok().filter(|p| p.len() == 2)?;
        u8::from_str_radix(pair, 16).ok()
    };
    digits.chunks(2).map(two).collect()
}

fn from_base64(digits: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let digits: Vec<u8> = digits
        .iter()
        .copied()
        .filter(|b| !b.is_ascii_whitespace())
        .collect();
    for four in digits.chunks(4) {
        let kept = four.iter().take_while(|b| **b != b'=').count();
        if four.len() != 4 || kept < 2 {
            return None;
        }
        let mut bits = 0u32;
        for digit in &four[..kept] {
            bits = bits << 6 | DIGITS.iter().position(|d| d == digit)? as u32;
        }
        bits <<= 6 * (4 - kept);
        out.extend(&bits.to_be_bytes()[1..kept]);
    }
    Some(out)
}

/// Replaces escapes, which only quoted text has: a backslash and three octal digits are a byte, and a backslash before another
/// byte stands for that byte.
fn unescaped(text: &[u8], quoted: bool) -> Vec<u8> {
    let (mut out, mut at) = (Vec::new(), 0);
    while let Some(byte) = text.get(at) {
        let octal = text.get(at + 1..at + 4).and_then(octal);
        match (byte, octal, text.get(at + 1)) {
            (b'\\', Some(byte), _) if quoted => {
                out.push(byte);
                at += 4;
            }
            (b'\\', None, Some(next)) if quoted => {
                out.push(*next);
                at += 2;
            }
            _ => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    out
}

fn octal(digits: &[u8]) -> Option<u8> {
    let text = std::str::from_utf8(digits).ok()?;
    u8::from_str_radix(text, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_getfattr_prints_them() {
        let cases: [(&[u8], &str); 8] = [
            (b"", "\"\""),
            (b"hello", "\"hello\""),
            (b"\0\xff", "0sAP8="),
            (b"\0\x01", "0sAAE="),
            (b"a\"b\\c\nd\re\tf", "0sYSJiXGMKZA1lCWY="),
            (b"\x01aaaaaaa", "\"\x01aaaaaaa\""),
            (b"\x01aaaaaa", "0sAWFhYWFhYQ=="),
            (b"0123456\n0123456\\", "\"0123456\\0120123456\\\\\""),
        ];
        for (value, printed) in cases {
            let found = encode(value, None);
            assert_eq!(String::from_utf8_lossy(&found), printed, "{value:?}");
        }
        assert_eq!(encode(b"hello", Some(Encoding::Hex)), b"0x68656c6c6f");
        assert_eq!(encode(b"\0", Some(Encoding::Text)), b"\"\\000\"");
    }

    #[test]
    fn all_forms_read_back() {
        let mut value = Vec::new();
        for n in 0..300u32 {
            value.push(u8::try_from(n * 37 % 251).expect("one that is right"));
            for how in [Encoding::Hex, Encoding::Base64] {
                let word = String::from_utf8(encode(&value, Some(how))).expect("one that is right");
                assert_eq!(parse_value(&word).expect("one that is right").0, value);
            }
        }
        let text: Vec<u8> = (0..127).collect();
        let word =
            String::from_utf8(encode(&text, Some(Encoding::Text))).expect("one that is right");
        assert_eq!(parse_value(&word).expect("one that is right").0, text);
        assert_eq!(
            parse_value("a\\012").expect("one that is right").0,
            b"a\\012"
        );
        for wrong in ["0x1", "0xzz", "0sA", "0sA===", "0s?AAA"] {
            assert!(parse_value(wrong).is_err(), "{wrong}");
        }
    }
}
