//! A stream of gzip members or bzip2 streams, one after the other.
//!
//! Input: compressed bytes. Output: what they hold. Invariants: the stream ends only between members; each holds what its sum says; what is
//! behind the last one is told, unless it is zeros, which writers of whole blocks leave there. Source: RFC 1952, section 2.2; the manual of
//! gzip, "Using gzip on tapes".

use crate::tail;
use crate::warnings::Warnings;
use bzip2::bufread::BzDecoder;
use flate2::bufread::GzDecoder;
use std::fmt;
use std::io::{self, BufRead, Read};

/// What a stream of members holds, as a stream.
pub struct Members<R: BufRead> {
    now: Option<Member<R>>,
    warnings: Warnings,
}

/// The member that is being read.
enum Member<R: BufRead> {
    Gzip(Box<GzDecoder<R>>),
    Bzip2(Box<BzDecoder<R>>),
}

impl<R: BufRead> Member<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Member::Gzip(decoder) => decoder.read(out),
            Member::Bzip2(decoder) => decoder.read(out),
        }
    }

    /// The name of its kind.
    fn kind(&self) -> &'static str {
        match self {
            Member::Gzip(_) => "gzip",
            Member::Bzip2(_) => "bzip2",
        }
    }

    /// The member behind it; none at the end.
    fn next(self, warnings: &Warnings) -> io::Result<Option<Member<R>>> {
        let (kind, is_gzip) = (self.kind(), matches!(self, Member::Gzip(_)));
        let mut from = match self {
            Member::Gzip(decoder) => decoder.into_inner(),
            Member::Bzip2(decoder) => decoder.into_inner(),
        };
        let (zeros, is_end) = skip_zeros(&mut from)?;
        if is_end {
            return Ok(None);
        }
        let first = from.fill_buf()?[0];
        Ok(match (zeros, is_gzip, first) {
            (false, true, 0x1f) => Some(Member::Gzip(Box::new(GzDecoder::new(from)))),
            (false, false, b'B') => Some(Member::Bzip2(Box::new(BzDecoder::new(from)))),
            _ => {
                tail::told(&mut from, kind, warnings)?;
                None
            }
        })
    }
}

impl<R: BufRead> fmt::Debug for Members<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Members").finish_non_exhaustive()
    }
}

impl<R: BufRead> Members<R> {
    /// Reads the header of the first member of gzip; what is wrong with it is said by the first read.
    pub fn gzip(from: R, warnings: &Warnings) -> Members<R> {
        Members {
            now: Some(Member::Gzip(Box::new(GzDecoder::new(from)))),
            warnings: warnings.clone(),
        }
    }

    /// The same of bzip2.
    pub fn bzip2(from: R, warnings: &Warnings) -> Members<R> {
        Members {
            now: Some(Member::Bzip2(Box::new(BzDecoder::new(from)))),
            warnings: warnings.clone(),
        }
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

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        // After an error there is none.
        while let Some(mut member) = self.now.take() {
            let kind = member.kind();
            let count = member.read(out).map_err(|e| match e.kind() {
                io::ErrorKind::UnexpectedEof => {
                    io::Error::new(e.kind(), format!("{kind}: it is cut off"))
                }
                _ => e,
            })?;
            if count > 0 {
                self.now = Some(member);
                return Ok(count);
            }
            self.now = member.next(&self.warnings)?;
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::write::GzEncoder;
    use std::io::{BufReader, Write};

    fn member(bytes: &[u8], is_gzip: bool) -> Vec<u8> {
        if is_gzip {
            let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(bytes).unwrap();
            return encoder.finish().unwrap();
        }
        let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn unpacked(stream: &[u8], is_gzip: bool) -> Result<(Vec<u8>, usize), String> {
        let (mut out, warnings) = (Vec::new(), Warnings::default());
        // A buffer of three bytes ends at every place.
        let from = BufReader::with_capacity(3, stream);
        let mut members = match is_gzip {
            true => Members::gzip(from, &warnings),
            false => Members::bzip2(from, &warnings),
        };
        let read = members.read_to_end(&mut out);
        read.map(|_| (out, warnings.take("").len()))
            .map_err(|e| e.to_string())
    }

    /// The defect: what other tools take with a warning was an error, such as an image that has its signature behind it.
    #[test]
    fn members_follow_each_other_and_what_is_behind_them_is_told() {
        for is_gzip in [true, false] {
            let unpacked = |stream: &[u8]| unpacked(stream, is_gzip);
            let parts = [&b"abc"[..], b"", b"de"];
            let two = parts.map(|part| member(part, is_gzip)).concat();
            assert_eq!(unpacked(&two).unwrap(), (b"abcde".to_vec(), 0));
            for zeros in 1..8 {
                let padded = [&two[..], &vec![0; zeros]].concat();
                assert_eq!(unpacked(&padded).unwrap(), (b"abcde".to_vec(), 0));
            }
            for more in [&b"x"[..], b"\0\0x", b"\0\x1f\x8b", b"\0BZh9", b"{ a: 1 }"] {
                let all = unpacked(&[&two[..], more].concat()).unwrap();
                assert_eq!(all, (b"abcde".to_vec(), 1), "{more:?}");
            }
            for more in [&b"\x1f\x8b"[..], b"BZh"] {
                let begins = (more[0] == 0x1f) == is_gzip;
                assert_eq!(unpacked(&[&two[..], more].concat()).is_err(), begins);
            }
            let cut = unpacked(&two[..two.len() - 1]).unwrap_err();
            assert!(cut.ends_with("it is cut off"), "{cut}");
            assert!(unpacked(b"").is_err());
        }
    }
}
