//! Splits a script's text into lines and words, quoted as for a shell.
//!
//! Input: bytes. Output: lines of words with their numbers. Invariants: nothing is expanded: `$`, `*` and `~` are ordinary
//! characters; a quote that does not end is an error with the line where it began. Limits: a line has only words, no pipes or
//! conditions; a quoted word may span several lines.

/// A line that is not empty, and the number of its first line in the text, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) number: usize,
    pub(super) words: Vec<Vec<u8>>,
}

/// Splits a script; an error has the line's number.
pub(super) fn split(text: &[u8]) -> Result<Vec<Line>, (usize, String)> {
    let mut splitter = Splitter {
        text,
        at: 0,
        number: 1,
        lines: Vec::new(),
        words: Vec::new(),
        word: None,
        began: 1,
    };
    splitter.run()?;
    Ok(splitter.lines)
}

struct Splitter<'a> {
    text: &'a [u8],
    at: usize,
    number: usize,
    lines: Vec<Line>,
    words: Vec<Vec<u8>>,
    /// The word so far; none between words.
    word: Option<Vec<u8>>,
    /// The number at which the present line began.
    began: usize,
}

type Wrong = (usize, String);

impl Splitter<'_> {
    fn run(&mut self) -> Result<(), Wrong> {
        while let Some(c) = self.next() {
            match c {
                b'\n' => self.end_line(),
                b' ' | b'\t' | b'\r' => self.end_word(),
                b'#' if self.word.is_none() => self.skip_comment(),
                b'\'' => self.quoted()?,
                b'"' => self.in_double_quotes()?,
                b'$' if self.peek() == Some(b'\'') => self.with_escapes()?,
                b'\\' => match self.next() {
                    Some(b'\n') | None => {}
                    Some(c) => self.push(c),
                },
                c => self.push(c),
            }
        }
        self.end_line();
        Ok(())
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let c = self.peek()?;
        self.at += 1;
        self.number += usize::from(c == b'\n');
        Some(c)
    }

    fn push(&mut self, c: u8) {
        self.word.get_or_insert_default().push(c);
    }

    fn end_word(&mut self) {
        self.words.extend(self.word.take());
    }

    fn end_line(&mut self) {
        self.end_word();
        let (number, words) = (self.began, std::mem::take(&mut self.words));
        if !words.is_empty() {
            self.lines.push(Line { number, words });
        }
        self.began = self.number;
    }

    fn skip_comment(&mut self) {
        while self.peek().is_some_and(|c| c != b'\n') {
            self.next();
        }
    }

    /// Reads up to the next single quote, without escapes.
    fn quoted(&mut self) -> Result<(), Wrong> {
        let began = self.begin_quoted();
        loop {
            match self.next() {
                Some(b'\'') => return Ok(()),
                Some(c) => self.push(c),
                None => return Err(unended(began, "'")),
            }
        }
    }

    fn in_double_quotes(&mut self) -> Result<(), Wrong> {
        let began = self.begin_quoted();
        loop {
            match self.next() {
                Some(b'"') => return Ok(()),
                Some(b'\\') => match self.next() {
                    Some(b'\n') => {}
                    Some(c @ (b'"' | b'\\' | b'$' | b'`')) => self.push(c),
                    Some(c) => {
                        self.push(b'\\');
                        self.push(c);
                    }
                    None => return Err(unended(began, "\"")),
                },
                Some(c) => self.push(c),
                None => return Err(unended(began, "\"")),
            }
        }
    }

    /// Reads `$'a\nb\377'`, the form in which `ls` quotes control characters.
    fn with_escapes(&mut self) -> Result<(), Wrong> {
        self.next();
        let began = self.begin_quoted();
        loop {
            match self.next() {
                Some(b'\'') => return Ok(()),
                Some(b'\\') => {
                    let c = self.next().ok_or_else(|| unended(began, "$'"))?;
                    self.escape(c)?;
                }
                Some(c) => self.push(c),
                None => return Err(unended(began, "$'")),
            }
        }
    }

    fn escape(&mut self, c: u8) -> Result<(), Wrong> {
        let plain = match c {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'\\' | b'\'' | b'"' => c,
            b'x' => return self.number_of(16, 2, 0),
            b'0'..=b'7' => return self.number_of(8, 2, u32::from(c - b'0')),
            _ => {
                let what = format!("\\{} is not known within $'...'", char::from(c));
                return Err((self.number, what));
            }
        };
        self.push(plain);
        Ok(())
    }

    /// Reads the rest of a byte's number: at most `most` more digits.
    fn number_of(&mut self, radix: u32, most: u32, first: u32) -> Result<(), Wrong> {
        let mut value = first;
        for _ in 0..most {
            let digit = self.peek().and_then(|c| char::from(c).to_digit(radix));
            let Some(digit) = digit else { break };
            self.next();
            value = value * radix + digit;
        }
        let byte = u8::try_from(value);
        let what = || (self.number, format!("{value:o} is no byte"));
        self.push(byte.map_err(|_| what())?);
        Ok(())
    }

    /// Begins a quoted part. Quotes make a word even if nothing is between them.
    fn begin_quoted(&mut self) -> usize {
        self.word.get_or_insert_default();
        self.number
    }
}

fn unended(began: usize, quote: &str) -> Wrong {
    (began, format!("a {quote} begins here and does not end"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<(usize, Vec<String>)> {
        let lines = split(text.as_bytes()).expect("the text is well formed");
        let word = |w: &Vec<u8>| String::from_utf8_lossy(w).into_owned();
        let of = |l: &Line| (l.number, l.words.iter().map(word).collect());
        lines.iter().map(of).collect()
    }

    #[test]
    fn as_a_shell_has_them() {
        let line = |text: &str| words(text).remove(0).1;
        assert_eq!(line("mkdir  -p\t/a # why\n"), ["mkdir", "-p", "/a"]);
        assert_eq!(line("rm a#b \\#c"), ["rm", "a#b", "#c"]);
        assert_eq!(
            line("ln 'a b' \"c 'd' \\\" $x\" ''"),
            ["ln", "a b", "c 'd' \" $x", ""]
        );
        assert_eq!(line("rm one\\ name '*'.c"), ["rm", "one name", "*.c"]);
        assert_eq!(
            line("rm 'a'$'\\n''b' $'\\x41\\102\\t'"),
            ["rm", "a\nb", "AB\t"]
        );
        assert_eq!(line("put a \\\n b"), ["put", "a", "b"]);
        assert_eq!(split(b"rm $'\\377'").expect("one line")[0].words[1], [0xff]);
    }

    #[test]
    fn lines_have_their_numbers() {
        let text = "# first\n\n mkdir /a\nrm 'over\ntwo'\r\ntouch \\\n/b\nrm /c";
        let numbers: Vec<usize> = words(text).into_iter().map(|l| l.0).collect();
        assert_eq!(numbers, [3, 4, 6, 8]);
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        for (text, number) in [
            ("a\nb 'c\nd\n", 2),
            ("\"", 1),
            ("\n\n$'a", 3),
            ("$'\\q'", 1),
            ("$'\\777'", 1),
            ("\"a\\", 1),
        ] {
            let wrong = split(text.as_bytes()).expect_err(text);
            assert_eq!(wrong.0, number, "{text}: {}", wrong.1);
        }
    }
}
