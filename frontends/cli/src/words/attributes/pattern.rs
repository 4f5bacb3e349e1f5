//! Patterns of attribute names: the extended regular expressions of getfattr.
//!
//! Input: an expression; `-` for all names. Output: whether a name matches. Invariant: the time of a match is linear in the
//! length of the name. Limits: where POSIX leaves the meaning open, it is that of the crate `regex`; patterns match bytes, not
//! characters. Source: man 1 getfattr (-m), man 7 regex.

use regex::bytes::{Regex, RegexBuilder};

/// A pattern.
#[derive(Clone, Debug)]
pub(crate) struct Pattern(Regex);

impl Pattern {
    /// Parses an expression.
    ///
    /// # Errors
    /// What the crate `regex` cannot parse.
    pub(crate) fn parse(text: &str) -> Result<Pattern, String> {
        let text = if text == "-" { "" } else { text };
        let built = RegexBuilder::new(&escaped_sets(text))
            .unicode(false)
            .build();
        built.map(Pattern).map_err(|error| {
            let text = error.to_string();
            let last = text.lines().last().unwrap_or_default();
            format!(
                "no regular expression: {}",
                last.trim_start_matches("error: ")
            )
        })
    }

    /// Whether the pattern occurs in this name.
    pub(crate) fn matches(&self, name: &[u8]) -> bool {
        self.0.is_match(name)
    }
}

/// The same expression with backslashes added inside bracket expressions, before the characters that are literal there in POSIX
/// but not in the crate `regex`.
fn escaped_sets(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        out.push(c);
        match c {
            '\\' => out.extend(rest.next()),
            '[' => rest = copy_set(rest, &mut out),
            _ => {}
        }
    }
    out
}

/// Copies a bracket expression, from behind its opening bracket to its end.
fn copy_set<'a>(mut rest: std::str::Chars<'a>, out: &mut String) -> std::str::Chars<'a> {
    let mut is_first = true;
    while let Some(c) = rest.next() {
        match c {
            ']' if !is_first => {
                out.push(c);
                break;
            }
            '[' if rest.as_str().starts_with(':') => {
                // A class, as in [[:alpha:]].
                let end = rest.as_str().find(":]").map_or(0, |at| at + 2);
                out.push(c);
                out.extend(rest.by_ref().take(end));
            }
            '^' if is_first => {
                out.push(c);
                continue;
            }
            '[' | ']' | '\\' | '&' | '~' | '^' => out.extend(['\\', c]),
            other => out.push(other),
        }
        is_first = false;
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions() {
        let cases = [
            ("-", "trusted.a", true),
            ("^user\\.", "user.a", true),
            ("^user\\.", "userxa", false),
            ("^user\\.", "trusted.user.a", false),
            ("a$", "user.a", true),
            ("a$", "user.ab", false),
            ("^user\\.[ab]+$", "user.abba", true),
            ("^user\\.[^ab]$", "user.a", false),
            ("^user\\.[]x-z]$", "user.y", true),
            ("^user\\.[]x-z]$", "user.]", true),
            ("^user\\.[^]x]$", "user.]", false),
            ("^user\\.[\\.]$", "user.\\", true),
            ("^user\\.[a&&b]$", "user.a", true),
            ("^user\\.[[:digit:]_]{2}$", "user.4_", true),
            ("^user\\.[[x]$", "user.[", true),
            ("^trusted|^security", "security.x", true),
            ("^(user|trusted)\\.(a|b){2,3}$", "trusted.aba", true),
            ("^(user|trusted)\\.(a|b){2,3}$", "trusted.a", false),
            ("^u.*r\\.a?b$", "user.b", true),
            ("", "anything", true),
        ];
        for (text, name, is) in cases {
            let pattern = Pattern::parse(text).expect("one that is right");
            assert_eq!(pattern.matches(name.as_bytes()), is, "{text} {name}");
        }
        let bytes = Pattern::parse("^user\\..$").expect("one that is right");
        assert!(bytes.matches(b"user.\xff"));
        for wrong in ["*a", "(a", "[a", "a\\"] {
            let why = Pattern::parse(wrong).expect_err("one that is wrong");
            assert!(
                why.starts_with("no regular expression: ") && !why.contains('\n'),
                "{why}"
            );
        }
    }
}
