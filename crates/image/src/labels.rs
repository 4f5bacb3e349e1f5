//! SELinux labels of files by their paths.
//!
//! Input: the text of a file_contexts file; paths. Output: the label of a path. Invariants: as in libselinux the last line whose expression
//! matches the whole path counts, and lines that are paths come after all expressions. Limits: look-around and references to groups are
//! refused. Source: selabel_file(5); what selabel_lookup of libselinux says of paths.

use crate::error::Error;
use regex::bytes::Regex;

/// A line of a file_contexts file.
#[derive(Clone, Debug)]
pub struct Label {
    pattern: Regex,
    /// What each path that matches begins with.
    prefix: Vec<u8>,
    is_path: bool,
    /// A letter of ls -l; 0: any kind of file.
    kind: u8,
    /// None: `<<none>>`.
    context: Option<Vec<u8>>,
}

/// Adds the lines of a file_contexts file.
///
/// # Errors
/// A line that is none, with its number.
pub(crate) fn read(labels: &mut Vec<Label>, text: &str) -> Result<(), Error> {
    for (n, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (pattern, kind, context) = match words[..] {
            [] => continue,
            [first, ..] if first.starts_with('#') => continue,
            [pattern, context] => (pattern, 0, context),
            [pattern, kind, context] => match kind.as_bytes() {
                [b'-', letter] if b"bcdpls-".contains(letter) => (pattern, *letter, context),
                _ => {
                    let why = format!("line {}: {kind} is no type of file", n + 1);
                    return Err(Error::new(why));
                }
            },
            _ => {
                let why = format!("line {}: no path and context: {line}", n + 1);
                return Err(Error::new(why));
            }
        };
        let expression = Regex::new(&format!("(?s-u)^(?:{pattern})$"));
        let (prefix, is_path) = prefix(pattern);
        labels.push(Label {
            pattern: expression.map_err(|e| Error::new(format!("line {}: {e}", n + 1)))?,
            prefix,
            is_path,
            kind,
            context: (context != "<<none>>").then(|| [context.as_bytes(), b"\0"].concat()),
        });
    }
    labels.sort_by_key(|label| label.is_path);
    Ok(())
}

/// The label of a file of this kind, as the value of its attribute.
pub(crate) fn find<'l>(labels: &'l [Label], path: &[u8], kind: u8) -> Option<&'l [u8]> {
    let fits = |label: &&Label| {
        (label.kind == 0 || label.kind == kind)
            && path.starts_with(&label.prefix)
            && label.pattern.is_match(path)
    };
    labels.iter().rev().find(fits)?.context.as_deref()
}

/// What all that an expression matches begins with, and whether it is a path: no character in it means something else, or all that do have
/// a backslash.
fn prefix(pattern: &str) -> (Vec<u8>, bool) {
    let (mut prefix, mut rest) = (Vec::new(), pattern.as_bytes());
    while let [first, tail @ ..] = rest {
        let (byte, tail) = match (first, tail) {
            (b'\\', [next, tail @ ..]) if next.is_ascii_punctuation() => (*next, tail),
            (b'\\' | b'.' | b'^' | b'$' | b'?' | b'*' | b'+' | b'|' | b'[' | b'(' | b'{', _) => {
                break;
            }
            (byte, tail) => (*byte, tail),
        };
        // What may be there several times may be there never.
        if let [b'?' | b'*' | b'{', ..] = tail {
            break;
        }
        prefix.push(byte);
        rest = tail;
    }
    let is_path = rest.is_empty();
    // One of several expressions has a beginning of its own.
    if rest.contains(&b'|') && has_alternatives(rest) {
        prefix.clear();
    }
    (prefix, is_path)
}

/// Whether a bar stands outside of parentheses, or may do so.
fn has_alternatives(pattern: &[u8]) -> bool {
    let (mut depth, mut rest) = (0u32, pattern);
    while let [first, tail @ ..] = rest {
        rest = match first {
            b'\\' => tail.get(1..).unwrap_or_default(),
            // What a bracket holds is not looked at.
            b'[' => return true,
            _ => tail,
        };
        match first {
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            b'|' if depth == 0 => return true,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_begin_with_what_is_certain() {
        for (pattern, begins, is_path) in [
            ("/etc/shadow", "/etc/shadow", true),
            ("/etc/a\\.b", "/etc/a.b", true),
            ("/etc(/.*)?", "/etc", false),
            ("/etc/ab?c", "/etc/a", false),
            ("/etc/ab{0,1}", "/etc/a", false),
            ("/etc/a\\.*", "/etc/a", false),
            ("/etc/ab+", "/etc/ab", false),
            ("/a\\d", "/a", false),
            ("/a(b|c)d", "/a", false),
            ("/a[)]|b", "", false),
            ("/a(b)|c", "", false),
            ("/a|b", "", false),
        ] {
            assert_eq!(
                prefix(pattern),
                (begins.as_bytes().to_vec(), is_path),
                "{pattern}"
            );
        }
    }
}
