//! Base64, with or without padding: manifests have padding, bsdtar writes none.
//!
//! Input: text. Output: bytes. Invariant: a letter that does not belong there is an error. Limits: no blanks, no line ends. Source: RFC
//! 4648.

/// The bytes of a text; None: it is no base64.
pub(crate) fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let end = text
        .iter()
        .rposition(|byte| *byte != b'=')
        .map_or(0, |at| at + 1);
    let mut bytes = Vec::new();
    let (mut bits, mut have) = (0_u32, 0);
    for byte in &text[..end] {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        (bits, have) = (bits << 6 | u32::from(value), have + 6);
        if have >= 8 {
            have -= 8;
            // The eight bits above those that are left.
            bytes.push((bits >> have) as u8);
            bits &= (1 << have) - 1;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back() {
        assert_eq!(base64(b"AAAB").unwrap(), [0, 0, 1]);
        assert_eq!(base64(b"/+8").unwrap(), [0xff, 0xef]);
        assert_eq!(base64(b"aGk=").unwrap(), b"hi");
        assert!(base64(b"a b").is_none());
        assert_eq!(base64(b"AQIDBA==").unwrap(), [1, 2, 3, 4]);
        assert_eq!(base64(b"").unwrap(), b"");
        assert!(base64(b"!").is_none());
    }
}
