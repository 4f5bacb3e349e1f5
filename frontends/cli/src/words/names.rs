//! Names are bytes: this module prints them on a terminal, in a pipe, and in JSON.
//!
//! Input: names and paths of an image. Output: text for people, bytes for programs. Invariants: a name on a terminal has no
//! control characters and can be pasted into a shell; a name in a pipe is printed unchanged. Limits: Rust's Unicode tables
//! decide what is a control character.

use serde::ser::SerializeMap;
use std::borrow::Cow;
use std::fmt::Write;

/// The name as `ls` shows it: on a terminal quoted for a shell if it needs that, else unchanged.
pub(crate) fn quoted(name: &[u8], terminal: bool) -> Cow<'_, [u8]> {
    if !terminal || is_plain(name) {
        return Cow::Borrowed(name);
    }
    Cow::Owned(shell_quoted(name).into_bytes())
}

/// The name in quotes, as coreutils names files in messages.
pub(crate) fn in_quotes(name: &[u8]) -> String {
    shell_quoted(name)
}

/// Whether a shell takes the name as it is, without quotes.
fn is_plain(name: &[u8]) -> bool {
    let plain = |c: char| c.is_alphanumeric() || "._-+/,:@%^".contains(c);
    !name.is_empty() && std::str::from_utf8(name).is_ok_and(|t| t.chars().all(plain))
}

/// `'one name'`, `"it's"`, `'a'$'\n''b'`.
fn shell_quoted(name: &[u8]) -> String {
    let text = std::str::from_utf8(name).ok();
    let printable = text.is_some_and(|t| !t.chars().any(char::is_control));
    match text {
        Some(t) if printable && !t.contains('\'') => format!("'{t}'"),
        Some(t) if printable && !t.contains(['"', '$', '`', '\\', '!']) => format!("\"{t}\""),
        _ => escaped(name),
    }
}

fn escaped(name: &[u8]) -> String {
    let mut out = String::from("'");
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\'' => out.push_str("'\\''"),
                '\n' => out.push_str("'$'\\n''"),
                '\t' => out.push_str("'$'\\t''"),
                '\r' => out.push_str("'$'\\r''"),
                c if c.is_control() => {
                    let mut utf8 = [0; 4];
                    octal(&mut out, c.encode_utf8(&mut utf8).as_bytes());
                }
                c => out.push(c),
            }
        }
        octal(&mut out, chunk.invalid());
    }
    out.push('\'');
    out
}

fn octal(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        write!(out, "'$'\\{byte:03o}''").expect("a String takes everything");
    }
}

/// The last name of a path; empty for the root.
pub(crate) fn last_name(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|c| *c != b'/').map_or(0, |at| at + 1);
    let cut = path[..end].iter().rposition(|c| *c == b'/');
    &path[cut.map_or(0, |at| at + 1)..end]
}

/// The path before its last name, with the slash between them; all of it if it has no name.
pub(crate) fn above(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|c| *c != b'/') {
        Some(end) => &path[..end + 1 - last_name(path).len()],
        None => path,
    }
}

/// The path of a name in a directory; the name alone if the directory's path is empty.
pub(crate) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let needs_none = dir.is_empty() || dir.ends_with(b"/");
    let slash: &[u8] = if needs_none { b"" } else { b"/" };
    [dir, slash, name].concat()
}

/// The reason if a directory entry's name is no valid name: as part of a path it would lead to another place.
pub(crate) fn unusable(name: &[u8]) -> Option<&'static str> {
    let is_none = name.is_empty() || name.contains(&b'/') || name.contains(&0);
    is_none.then_some(
        "the name holds a slash or a NUL byte: not copied; the directory is corrupt, run e2fsck",
    )
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
            write!(out, "{byte:02x}").expect("a String takes everything");
            out
        })
}

/// A name in JSON: a field `KEY` with the text and, if the name is not UTF-8 and the text therefore inexact, a field `KEY_hex`
/// with its bytes.
pub(crate) fn json_name<M: SerializeMap>(
    map: &mut M,
    key: &str,
    name: &[u8],
) -> Result<(), M::Error> {
    map.serialize_entry(key, &String::from_utf8_lossy(name))?;
    if std::str::from_utf8(name).is_err() {
        map.serialize_entry(&format!("{key}_hex"), &hex(name))?;
    }
    Ok(())
}

/// A UUID as text; none if it is all zeros.
pub(crate) fn uuid(raw: &[u8; 16]) -> Option<String> {
    if *raw == [0; 16] {
        return None;
    }
    let hex = hex(raw);
    let parts = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    Some(parts.join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_names_can_be_pasted() {
        let shown = |n: &[u8]| {
            String::from_utf8(quoted(n, true).into_owned()).expect("quoted names are text")
        };
        assert_eq!(shown(b"plain-1.txt"), "plain-1.txt");
        assert_eq!(shown(b"one name"), "'one name'");
        assert_eq!(shown(b"it's"), "\"it's\"");
        assert_eq!(shown(b"a\nb"), "'a'$'\\n''b'");
        assert_eq!(shown(b"\xff"), "''$'\\377'''");
        assert_eq!(shown("é".as_bytes()), "é");
        assert_eq!(quoted(b"a\nb", false).as_ref(), b"a\nb");
    }

    #[test]
    fn names_and_joins() {
        for (path, name) in [
            ("/a/b", "b"),
            ("a", "a"),
            ("/a/b//", "b"),
            ("/", ""),
            ("", ""),
        ] {
            assert_eq!(last_name(path.as_bytes()), name.as_bytes(), "{path}");
        }
        for (path, before) in [
            ("/a/b", "/a/"),
            ("/a/bc//", "/a/"),
            ("a", ""),
            ("/", "/"),
            ("", ""),
        ] {
            assert_eq!(above(path.as_bytes()), before.as_bytes(), "{path}");
        }
        assert_eq!(join(b"/", b"a"), b"/a");
        assert_eq!(join(b"", b"a"), b"a");
        assert_eq!(join(b"/d", b"a"), b"/d/a");
    }
}
