//! Shell patterns: `*`, `?`, `[a-z]`, `[!x]`, and `\` before a literal character.
//!
//! Input: a pattern, a text. Output: whether the whole text matches. Invariant: the time is at most proportional to the product
//! of both lengths. Limits: bytes, not characters; a slash is like any other byte, as for find(1).

/// Whether the whole text matches the pattern.
pub(super) fn fits(pattern: &[u8], text: &[u8], fold: bool) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where to continue if the part after the last star does not match: in the pattern behind the star, in the text one byte
    // later.
    let mut again: Option<(usize, usize)> = None;
    loop {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            again = Some((p, t));
            continue;
        }
        let step = match text.get(t) {
            None if p == pattern.len() => return true,
            None => return false,
            Some(byte) => one(&pattern[p..], *byte, fold),
        };
        match (step, again) {
            (Some(len), _) => (p, t) = (p + len, t + 1),
            (None, Some((star, from))) => {
                (p, t) = (star, from + 1);
                again = Some((star, from + 1));
            }
            (None, None) => return false,
        }
    }
}

/// The length of the first element of the pattern, which is not a star, if the byte matches it.
fn one(pattern: &[u8], byte: u8, fold: bool) -> Option<usize> {
    let same = |a: u8, b: u8| a == b || fold && a.eq_ignore_ascii_case(&b);
    match pattern {
        [b'?', ..] => Some(1),
        [b'[', rest @ ..] => match set(rest, |from, to| within(from, to, byte, fold)) {
            Some((fits, len)) => fits.then_some(len + 1),
            // A bracket without its closing one is a literal character.
            None => (byte == b'[').then_some(1),
        },
        [b'\\', c, ..] => same(*c, byte).then_some(2),
        [c, ..] => same(*c, byte).then_some(1),
        [] => None,
    }
}

fn within(from: u8, to: u8, byte: u8, fold: bool) -> bool {
    let range = from..=to;
    range.contains(&byte)
        || fold
            && (range.contains(&byte.to_ascii_lowercase())
                || range.contains(&byte.to_ascii_uppercase()))
}

/// Parses a set behind its opening bracket: whether the byte matches, and the set's length with the closing bracket.
fn set(body: &[u8], fits: impl Fn(u8, u8) -> bool) -> Option<(bool, usize)> {
    let negated = matches!(body.first(), Some(b'!' | b'^'));
    let first = usize::from(negated);
    let (mut at, mut found) = (first, false);
    loop {
        let mut c = *body.get(at)?;
        if c == b']' && at > first {
            return Some((found != negated, at + 1));
        }
        if c == b'\\' {
            at += 1;
            c = *body.get(at)?;
        }
        match body.get(at + 1..at + 3) {
            Some([b'-', to]) if *to != b']' => {
                found |= fits(c, *to);
                at += 3;
            }
            _ => {
                found |= fits(c, c);
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn as_a_shell_has_them() {
        for (pattern, text, fit) in [
            ("*", "", true),
            ("*.c", "a.c", true),
            ("*.c", ".c", true),
            ("*.c", "a.cc", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-b-b", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[^a-c]x", "dx", true),
            ("[]]", "]", true),
            ("[]-]", "-", true),
            ("[a", "[a", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("[\\]]", "]", true),
            ("", "", true),
            ("", "a", false),
            ("/a/*", "/a/b/c", true),
        ] {
            assert_eq!(
                fits(pattern.as_bytes(), text.as_bytes(), false),
                fit,
                "{pattern} {text}"
            );
        }
        assert!(
            fits(b"*.JP[e-g]G", b"x.jpeg".as_slice(), true)
                == fits(b"*.jp[e-g]g", b"x.jpeg", false)
        );
        assert!(fits(b"README*", b"readme.md", true));
        assert!(!fits(b"README*", b"readme.md", false));
    }

    /// Many stars take no more time than the product of both lengths.
    #[test]
    fn no_blow_up() {
        let pattern = b"a*".repeat(200);
        assert!(!fits(&[&pattern[..], b"b"].concat(), &[b'a'; 4000], false));
    }
}
