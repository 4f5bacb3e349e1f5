//! Reads what `valgrind --tool=lackey --trace-mem=yes` prints: each access to memory, in the order in which they were made.
//!
//! Input: a stream of lines. Output: [`Access`]es with the address of the instruction. Invariants: nothing is stored of the stream; a line
//! that is no access is kept as the last word of a program that fails. Limits: accesses of the kernel are not in the stream.

use std::io::{self, Read};

/// What an access does to its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Does {
    Load,
    /// A store, or a load and a store of the same bytes by one instruction.
    Store,
}

/// One access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) does: Does,
    pub(super) address: u64,
    pub(super) len: u64,
    /// The instruction.
    pub(super) by: u64,
}

/// Calls `each` with every access. Returns the last line that was none.
pub(super) fn read(mut from: impl Read, mut each: impl FnMut(Access)) -> io::Result<String> {
    let mut buffer = vec![0; 1 << 20];
    let (mut filled, mut by, mut said) = (0, 0, String::new());
    loop {
        let got = match from.read(&mut buffer[filled..]) {
            Ok(got) => got,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        filled += got;
        let whole = buffer[..filled].iter().rposition(|b| *b == b'\n');
        let whole = whole.map_or(0, |at| at + 1);
        for line in buffer[..whole].split(|b| *b == b'\n') {
            match parse(line) {
                Some((b'I', address, _)) => by = address,
                Some((kind, address, len)) => each(Access {
                    does: match kind {
                        b'L' => Does::Load,
                        _ => Does::Store,
                    },
                    address,
                    len,
                    by,
                }),
                None if line.is_empty() => {}
                None => said = String::from_utf8_lossy(line).into_owned(),
            }
        }
        buffer.copy_within(whole..filled, 0);
        filled -= whole;
        // A line that fills the buffer is none of lackey's.
        if filled == buffer.len() {
            filled = 0;
        }
        if got == 0 {
            return Ok(said);
        }
    }
}

/// `I  04016d87,3`, ` L 1ffefffb70,8`, ` S ...`, ` M ...`.
fn parse(line: &[u8]) -> Option<(u8, u64, u64)> {
    let (kind, rest) = match line {
        [b'I', b' ', b' ', rest @ ..] => (b'I', rest),
        [b' ', kind @ (b'L' | b'S' | b'M'), b' ', rest @ ..] => (*kind, rest),
        _ => return None,
    };
    let comma = rest.iter().position(|b| *b == b',')?;
    let (mut address, mut len) = (0u64, 0u64);
    for digit in &rest[..comma] {
        address = address << 4 | u64::from((*digit as char).to_digit(16)?);
    }
    for digit in &rest[comma + 1..] {
        len = len * 10 + u64::from((*digit as char).to_digit(10)?);
    }
    Some((kind, address, len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed_wherever_reads_cut_them() {
        let text = "==7== Lackey\nI  0401,3\n L 1f,8\n S 20,4\nI  0404,2\n M ff40,8\nsegfault";
        let mut seen = Vec::new();
        let chunks = text.as_bytes().chunks(5);
        let stream = chunks.fold(Box::new(io::empty()) as Box<dyn Read>, |all, chunk| {
            Box::new(all.chain(chunk))
        });
        let said = read(stream, |access| seen.push(access)).expect("memory can be read");
        let access = |does, address, len, by| Access {
            does,
            address,
            len,
            by,
        };
        let expected = [
            access(Does::Load, 0x1f, 8, 0x401),
            access(Does::Store, 0x20, 4, 0x401),
            access(Does::Store, 0xff40, 8, 0x404),
        ];
        assert_eq!(
            (seen.as_slice(), said.as_str()),
            (&expected[..], "==7== Lackey")
        );
    }
}
