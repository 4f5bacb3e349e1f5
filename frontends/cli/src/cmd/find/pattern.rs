//! Regular expressions of `find -regex`, in the forms that find(1) knows, as the crate `regex` has them.
//!
//! Input: the name of a form; an expression, which is for the whole path. Output: a compiled expression. Invariant: matching takes time
//! linear in the length of the path. Limits: no back-references.

use regex::bytes::{Regex, RegexBuilder};

/// A form of expressions: which of the operators are written with a backslash before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `\(a\|b\)`, and `+`, `?`; no intervals.
    Emacs,
    /// `(a|b){2}+`.
    Extended,
    /// `\(a\|b\)\{2\}\+`.
    Basic,
}

impl Form {
    pub(super) fn parse(name: &[u8]) -> Result<Form, String> {
        Ok(match name {
            b"emacs" | b"findutils-default" => Form::Emacs,
            b"posix-extended" | b"posix-egrep" | b"egrep" | b"posix-minimal-extended" => {
                Form::Extended
            }
            b"posix-basic" | b"sed" | b"ed" | b"grep" => Form::Basic,
            _ => {
                return Err(
                    "forms are emacs, posix-extended, egrep, posix-basic, sed, grep".to_owned(),
                );
            }
        })
    }

    /// Whether a character is an operator with, or without, a backslash before it.
    fn has(self, character: char, escaped: bool) -> bool {
        match (self, character) {
            (Form::Emacs, '(' | ')' | '|')
            | (Form::Basic, '(' | ')' | '|' | '{' | '}' | '+' | '?') => escaped,
            (Form::Emacs, '+' | '?') => !escaped,
            (Form::Emacs, '{' | '}') => false,
            (Form::Extended, '(' | ')' | '|' | '{' | '}' | '+' | '?') => !escaped,
            (_, '*' | '.' | '^' | '$') => !escaped,
            _ => false,
        }
    }
}

/// Compiles an expression for whole paths.
pub(super) fn compile(text: &[u8], form: Form, fold: bool) -> Result<Regex, String> {
    let text = std::str::from_utf8(text).map_err(|_| "no UTF-8".to_owned())?;
    let whole = format!("^(?:{})$", translated(text, form)?);
    RegexBuilder::new(&whole)
        .case_insensitive(fold)
        .dot_matches_new_line(true)
        .unicode(false)
        .build()
        .map_err(|_| "no regular expression".to_owned())
}

fn translated(text: &str, form: Form) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text.chars();
    // Whether something stands before that an operator can repeat.
    let mut repeatable = false;
    while let Some(c) = rest.next() {
        let (c, escaped) = match c {
            '\\' => (rest.next().ok_or("a backslash at the end")?, true),
            '[' => {
                out.push_str(&brackets(&mut rest)?);
                repeatable = true;
                continue;
            }
            c => (c, false),
        };
        let is_operator = form.has(c, escaped);
        if is_operator && (repeatable || !matches!(c, '*' | '+' | '?')) {
            out.push(c);
        } else if escaped && c.is_ascii_digit() {
            return Err("back-references are not known".to_owned());
        } else if escaped && matches!(c, 'w' | 'W' | 'b' | 'B') {
            out.extend(['\\', c]);
        } else {
            out.push_str(&regex::escape(c.encode_utf8(&mut [0; 4])));
        }
        repeatable = !is_operator || !matches!(c, '(' | '|' | '^');
    }
    Ok(out)
}

/// A bracket expression, behind its `[`: a backslash is itself there.
fn brackets(rest: &mut std::str::Chars<'_>) -> Result<String, String> {
    let mut out = "[".to_owned();
    let mut first = true;
    while let Some(c) = rest.next() {
        match c {
            ']' if !first => {
                out.push(']');
                return Ok(out);
            }
            '^' if out == "[" => {
                out.push('^');
                continue;
            }
            '[' if rest.as_str().starts_with(':') => {
                let end = rest.as_str().find(":]").ok_or("[: without :]")?;
                out.push('[');
                out.push_str(&rest.as_str()[..end + 2]);
                *rest = rest.as_str()[end + 2..].chars();
            }
            '-' => out.push('-'),
            c if c.is_ascii_punctuation() => out.extend(['\\', c]),
            c => out.push(c),
        }
        first = false;
    }
    Err("[ without ]".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_as_find_reads_them() {
        for (form, text, path, fits) in [
            ("emacs", r"/\(a\|b\)+", "/aba", true),
            ("emacs", r"/(a)", "/(a)", true),
            ("emacs", r"/a{2}", "/a{2}", true),
            ("emacs", r"a", "/a", false),
            ("emacs", r"*a", "*a", true),
            ("emacs", r"/[^]/\]*", "/abc", true),
            ("emacs", r"/[[:digit:]-]+", "/1-2", true),
            ("emacs", r"/a\+", "/a+", true),
            ("posix-extended", r"/(a|b){2}", "/ab", true),
            ("posix-extended", r"/\(a", "/(a", true),
            ("sed", r"/a\{2\}", "/aa", true),
            ("sed", r"/a+", "/a+", true),
            ("sed", r"/a\+", "/aa", true),
        ] {
            let form = Form::parse(form.as_bytes()).expect("a form");
            let compiled = compile(text.as_bytes(), form, false).expect(text);
            assert_eq!(compiled.is_match(path.as_bytes()), fits, "{text} {path}");
        }
        for text in [r"\(a", r"[a", r"a\1", "\\"] {
            assert!(
                compile(text.as_bytes(), Form::Emacs, false).is_err(),
                "{text}"
            );
        }
        assert!(
            compile(b"/A", Form::Emacs, true)
                .expect("folds")
                .is_match(b"/a")
        );
    }
}
