//! Compressed clusters.
//!
//! Input: the sectors in which the data of a cluster lies. Output: the bytes of the cluster. Invariants: no more is unpacked than a
//! cluster, and memory follows the size of the cluster and [`WINDOW`], never a number in the data. Limits: what is behind the data in its
//! last sector is not looked at. Source: the description of the format in QEMU's documentation (interop/qcow2).

use crate::header::Packing;
use flate2::{Decompress, FlushDecompress};
use std::io::{self, Read};

/// How far back data may refer, as a power of two: RFC 8878 asks for 8 MiB of those who unpack. No cluster is as large.
const WINDOW: u32 = 23;

/// See the module.
///
/// # Errors
/// It is no such data, or the data of less than a cluster.
pub(crate) fn unpack(packing: Packing, data: &[u8], cluster: usize) -> io::Result<Vec<u8>> {
    let mut out = vec![0; cluster];
    let done = match packing {
        Packing::Deflate => inflate(data, &mut out),
        Packing::Zstd => unzstd(data, &mut out),
    };
    match done {
        Ok(()) => Ok(out),
        Err(why) => {
            let what = format!("a compressed cluster cannot be unpacked: {why}");
            Err(io::Error::new(io::ErrorKind::InvalidData, what))
        }
    }
}

fn inflate(data: &[u8], out: &mut [u8]) -> io::Result<()> {
    let mut stream = Decompress::new(false);
    loop {
        let (read, written) = (stream.total_in() as usize, stream.total_out() as usize);
        if written == out.len() {
            return Ok(());
        }
        let status = stream.decompress(&data[read..], &mut out[written..], FlushDecompress::None);
        status.map_err(io::Error::other)?;
        if (stream.total_in() as usize, stream.total_out() as usize) == (read, written) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

fn unzstd(data: &[u8], out: &mut [u8]) -> io::Result<()> {
    let mut stream = zstd::stream::read::Decoder::with_buffer(data)?.single_frame();
    stream.window_log_max(WINDOW)?;
    stream.read_exact(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn zstd(bytes: &[u8], window: Option<u32>) -> Vec<u8> {
        let mut out = zstd::stream::write::Encoder::new(Vec::new(), 3).expect("an encoder");
        if let Some(log) = window {
            out.window_log(log).expect("a window");
        }
        out.write_all(bytes).expect("memory");
        out.finish().expect("memory")
    }

    #[test]
    fn what_is_behind_the_data_is_not_looked_at() {
        let bytes: Vec<u8> = (0..65536_u32).map(|n| (n / 7) as u8).collect();
        let mut deflated =
            flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
        deflated.write_all(&bytes).expect("memory");
        for (packing, mut data) in [
            (Packing::Deflate, deflated.finish().expect("memory")),
            (Packing::Zstd, zstd(&bytes, None)),
        ] {
            data.extend([0xa5; 300]);
            assert!(unpack(packing, &data, 65536).expect("data") == bytes);
            // Cut data, less than a cluster of it, and something else.
            unpack(packing, &data[..data.len() / 2], 65536).expect_err("cut");
            unpack(packing, &data, 131_072).expect_err("short");
            unpack(packing, &[0xff; 4096], 65536).expect_err("no data");
            unpack(packing, &[], 65536).expect_err("nothing");
        }
    }

    /// A frame says how much memory it wants.
    #[test]
    fn a_window_larger_than_any_cluster_is_refused() {
        let bytes = vec![7; 65536];
        assert!(unpack(Packing::Zstd, &zstd(&bytes, Some(20)), 65536).expect("data") == bytes);
        let error = unpack(Packing::Zstd, &zstd(&bytes, Some(27)), 65536).expect_err("128 MiB");
        assert!(error.to_string().contains("memory"), "{error}");
    }
}
