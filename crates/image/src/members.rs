//! A stream of gzip members, one after the other.
//!
//! Input: compressed bytes. Output: what they hold. Invariants: the stream ends only between members; each holds what its sum says; behind
//! the last one there are at most zeros, which writers of whole blocks leave there. Source: RFC 1952, section 2.2; the manual of gzip,
//! "Using gzip on tapes".

use flate2::bufread::GzDecoder;
use std::fmt;
use std::io::{self, BufRead, Read};

/// What a stream of gzip members holds, as a stream.
pub struct GzipMembers<R: BufRead>(Members<R>);

enum Members<R: BufRead> {
    Inside(Box<GzDecoder<R>>),
    /// After an error, or at the end.
    Ended,
}

impl<R: BufRead> fmt::Debug for GzipMembers<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GzipMembers").finish_non_exhaustive()
    }
}

impl<R: BufRead> GzipMembers<R> {
    /// Reads the header of the first member; what is wrong with it is said by the first read.
    pub fn new(from: R) -> GzipMembers<R> {
        GzipMembers(Members::Inside(Box::new(GzDecoder::new(from))))
    }
}

/// Goes behind zeros. Returns whether there were any, and whether the stream ends there.
fn skip_zeros(from: &mut impl BufRead) -> io::Result<(bool, bool)> {
    let mut skipped = false;
    loop {
        let bytes = from.fill_buf()?;
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        let (is_end, goes_on) = (bytes.is_empty(), zeros == bytes.len());
        from.consume(zeros);
        skipped |= zeros > 0;
        if is_end || !goes_on {
            return Ok((skipped, is_end));
        }
    }
}

impl<R: BufRead> Read for GzipMembers<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        loop {
            match std::mem::replace(&mut self.0, Members::Ended) {
                Members::Ended => return Ok(0),
                Members::Inside(mut member) => match member.read(out)? {
                    0 => {
                        let mut from = member.into_inner();
                        let (zeros, is_end) = skip_zeros(&mut from)?;
                        // The first byte of a member.
                        let goes_on = !is_end && !zeros && from.fill_buf()?[0] == 0x1f;
                        if goes_on {
                            self.0 = Members::Inside(Box::new(GzDecoder::new(from)));
                        } else if !is_end {
                            let why = "gzip: behind its end is neither another stream nor zeros";
                            return Err(io::Error::other(why));
                        }
                    }
                    count => {
                        self.0 = Members::Inside(member);
                        return Ok(count);
                    }
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use std::io::{BufReader, Write};

    fn member(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn unpacked(stream: &[u8]) -> Result<Vec<u8>, String> {
        let mut out = Vec::new();
        // A buffer of three bytes ends at every place.
        let read = GzipMembers::new(BufReader::with_capacity(3, stream)).read_to_end(&mut out);
        read.map(|_| out).map_err(|e| e.to_string())
    }

    #[test]
    fn members_follow_each_other_and_zeros_end_them() {
        let two = [member(b"abc"), member(b""), member(b"de")].concat();
        assert_eq!(unpacked(&two).unwrap(), b"abcde");
        for zeros in 1..8 {
            let padded = [&two[..], &vec![0; zeros]].concat();
            assert_eq!(unpacked(&padded).unwrap(), b"abcde");
        }
        for more in [&b"x"[..], b"\0\0x", b"\0\x1f\x8b"] {
            let wrong = unpacked(&[&two[..], more].concat()).unwrap_err();
            assert!(wrong.contains("neither"), "{wrong}");
        }
        assert!(unpacked(&[&two[..], b"\x1f\x8b"].concat()).is_err());
        assert!(unpacked(&two[..two.len() - 1]).is_err());
        assert!(unpacked(b"").is_err());
    }
}
