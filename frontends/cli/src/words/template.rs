//! Templates like those of stat -c and find -printf: text with directives such as `%-10s` and `%TY`.
//!
//! Input: a template; the values of its directives. Output: bytes. Invariant: an unknown directive is refused when the template
//! is parsed. Limits: of the flags only `-` and `0`.

use crate::words::directives::{Directives, OfFind, OfStat, Takes};
use crate::words::times::has_part;

/// A text with directives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template<D>(Vec<Piece<D>>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece<D> {
    Text(Vec<u8>),
    Field(Field<D>),
}

/// A directive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field<D> {
    left: bool,
    zeros: bool,
    width: usize,
    /// The number of digits after the point.
    pub(crate) precision: Option<usize>,
    /// What the directive prints.
    pub(crate) prints: D,
    /// The second letter: `Y` in `%TY`.
    pub(crate) part: Option<char>,
}

impl Template<OfStat> {
    /// The template of `stat -c`: it ends with a newline.
    pub(crate) fn of_stat(text: &str) -> Result<Template<OfStat>, String> {
        let mut template = Template::read(text.as_bytes(), false)?;
        template.0.push(Piece::Text(b"\n".to_vec()));
        Ok(template)
    }

    /// The template of `stat --printf`.
    pub(crate) fn of_stat_printf(text: &str) -> Result<Template<OfStat>, String> {
        Template::read(text.as_bytes(), true)
    }
}

impl Template<OfFind> {
    /// The template of `find -printf`.
    pub(crate) fn of_find(text: &[u8]) -> Result<Template<OfFind>, String> {
        Template::read(text, true)
    }
}

impl<D: Directives> Template<D> {
    fn read(text: &[u8], escapes: bool) -> Result<Template<D>, String> {
        let (mut pieces, mut plain) = (Vec::new(), Vec::new());
        let mut rest = text;
        while let Some((first, behind)) = rest.split_first() {
            rest = behind;
            match first {
                b'\\' if escapes => plain.push(escape(&mut rest)?),
                b'%' if rest.first() == Some(&b'%') => {
                    rest = &rest[1..];
                    plain.push(b'%');
                }
                b'%' => {
                    pieces.push(Piece::Text(std::mem::take(&mut plain)));
                    pieces.push(Piece::Field(field(&mut rest)?));
                }
                other => plain.push(*other),
            }
        }
        pieces.push(Piece::Text(plain));
        Ok(Template(pieces))
    }

    /// The text, with the bytes that `value` returns in place of each directive.
    pub(crate) fn fill(&self, mut value: impl FnMut(&Field<D>) -> Vec<u8>) -> Vec<u8> {
        let mut out = Vec::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => out.extend(text),
                Piece::Field(field) => field.pad(&value(field), &mut out),
            }
        }
        out
    }
}

impl<D> Field<D> {
    fn pad(&self, value: &[u8], out: &mut Vec<u8>) {
        let missing = self.width.saturating_sub(value.len());
        let fill = if self.zeros && !self.left { b'0' } else { b' ' };
        if !self.left {
            out.extend(std::iter::repeat_n(fill, missing));
        }
        out.extend(value);
        if self.left {
            out.extend(std::iter::repeat_n(fill, missing));
        }
    }
}

/// Parses a directive, from behind its `%`.
fn field<D: Directives>(rest: &mut &[u8]) -> Result<Field<D>, String> {
    let all = *rest;
    let mut take = |fits: fn(&u8) -> bool| {
        let end = rest.iter().position(|c| !fits(c)).unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        *rest = behind;
        String::from_utf8_lossy(word).into_owned()
    };
    let flags = take(|c| matches!(c, b'-' | b'0'));
    let width = take(u8::is_ascii_digit);
    let point = take(|c| *c == b'.');
    let digits = take(u8::is_ascii_digit);
    let wrong = || {
        let shown = String::from_utf8_lossy(&all[..all.len().min(12)]).into_owned();
        format!("%{shown}: no directive that is known here")
    };
    // Greater numbers are refused: nobody needs them.
    let number = |word: &str, most: usize| match word {
        "" => Ok(0),
        word => word.parse().ok().filter(|n| *n <= most).ok_or_else(wrong),
    };
    let mut letter = || {
        let (first, behind) = rest.split_first()?;
        *rest = behind;
        Some(char::from(*first))
    };
    let name = letter().ok_or_else(wrong)?;
    let row = D::ALL.iter().find(|row| row.letters.contains(name));
    let row = row.ok_or_else(wrong)?;
    let part = match row.takes {
        Takes::Part => Some(letter().filter(|c| has_part(*c)).ok_or_else(wrong)?),
        Takes::Nothing | Takes::Digits => None,
    };
    let precision = match (&point[..], &digits[..]) {
        ("", _) => None,
        _ if row.takes != Takes::Digits => return Err(wrong()),
        (".", "") => Some(9),
        (".", digits) => Some(number(digits, 9)?),
        _ => return Err(wrong()),
    };
    Ok(Field {
        left: flags.contains('-'),
        zeros: flags.contains('0'),
        width: number(&width, 1 << 16)?,
        precision,
        prints: row.prints,
        part,
    })
}

/// Parses an escape, from behind its backslash.
fn escape(rest: &mut &[u8]) -> Result<u8, String> {
    let octal = rest
        .iter()
        .take(3)
        .take_while(|c| (b'0'..=b'7').contains(c))
        .count();
    if octal > 0 {
        let value = rest[..octal]
            .iter()
            .fold(0, |value, c| value * 8 + u32::from(c - b'0'));
        *rest = &rest[octal..];
        return u8::try_from(value).map_err(|_| format!("\\{value:o} is no byte"));
    }
    let Some((first, behind)) = rest.split_first() else {
        return Err("nothing stands behind the last \\".to_owned());
    };
    *rest = behind;
    Ok(match first {
        b'a' => 7,
        b'b' => 8,
        b'f' => 12,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 11,
        b'\\' | b'"' => *first,
        other => return Err(format!("\\{}: not known here", char::from(*other))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled<D: Directives + std::fmt::Debug>(template: Template<D>) -> String {
        let text = template.fill(|field| {
            let part = field.part.map_or(String::new(), String::from);
            let precision = field.precision.map_or(String::new(), |n| n.to_string());
            let prints = format!("{:?}", field.prints);
            // Of `Inode(Size)` the inner word.
            let word = prints.trim_end_matches(')').rsplit('(').next();
            format!("<{}{part}{precision}>", word.unwrap_or_default()).into_bytes()
        });
        String::from_utf8(text).expect("plain ASCII")
    }

    #[test]
    fn templates_are_filled() {
        let stat = |text| Template::of_stat(text).map(filled);
        assert_eq!(stat("%n: %s%%").as_deref(), Ok("<Path>: <Size>%\n"));
        assert_eq!(
            stat("%8s|%-8s|%08s|%.3X\\n").as_deref(),
            Ok("  <Size>|<Size>  |00<Size>|<Access3>\\n\n")
        );
        let find = |text: &str| Template::of_find(text.as_bytes()).map(filled);
        assert_eq!(
            find("%p\\t%TY\\0\\101").as_deref(),
            Ok("<Path>\t<ModificationY>\0A")
        );
        for wrong in ["%", "%q", "%5", "%..s", "%.1s", "%99999999s", "%.10X"] {
            stat(wrong).expect_err(wrong);
        }
        for wrong in ["%T", "%T!", "%.3f", "%.3T@", "\\", "\\q", "\\777"] {
            find(wrong).expect_err(wrong);
        }
    }
}
