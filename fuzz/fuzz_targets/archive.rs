//! A tar archive: whatever it holds, reading it ends, and what comes out of it is an image in which the check finds nothing. A file and a
//! stream of the same bytes have the same files.
//!
//! The input is the archive; the sums of its headers are made right first.
#![no_main]

use diorite_fuzz::files::{Scratch, make, read, seal_tar};
use diorite_image::Source;
use flate2::Compression;
use flate2::write::GzEncoder;
use libfuzzer_sys::fuzz_target;
use std::io::Write;

fuzz_target!(|data: &[u8]| {
    let mut bytes = data.to_vec();
    seal_tar(&mut bytes);
    let file = Scratch::new(&bytes);
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&bytes).expect("memory");
    let stream = Scratch::new(&packed.finish().expect("memory"));
    let folder = std::env::temp_dir();
    let plain = read(Source::Tar(file.path()), &folder);
    let streamed = read(Source::Tar(stream.path()), &folder);
    match (plain, streamed) {
        (Ok((files, bytes, builder)), Ok((more, others, _))) => {
            assert_eq!((files, bytes), (more, others));
            make(builder);
        }
        (Err(_), Err(_)) => {}
        // Bytes that are themselves compressed are an archive in an archive, which is none.
        (Ok(_), Err(_)) if !bytes.get(257..).is_some_and(|rest| rest.starts_with(b"ustar")) => {}
        (plain, streamed) => panic!("{:?} and {:?}", plain.map(|f| f.0), streamed.map(|f| f.0)),
    }
});
