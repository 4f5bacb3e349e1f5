//! Two threads move a file's inline data out at the same time.

use crate::testing::small_volume;
use diorite_block::Buf;

/// Two writers find inline data, and one is slow: when it goes on, the other has moved the data out and written over it. The defect: with
/// clusters the slow one took the file's own block for a new one, and wrote the old data there.
#[test]
fn who_comes_late_moves_nothing_out() {
    let more = ["-I", "256", "-O", "inline_data,bigalloc"];
    let volume = small_volume("32M", &more);
    let file = volume.create("/file", 0o644).unwrap();
    assert!(file.keep_inside(&[1; 40]).unwrap());
    let inode = file.inode();
    let found = inode.inline_data().unwrap();
    let mut new = Buf::zeroed(1024);
    new.as_mut_slice().fill(2);
    assert_eq!(file.write_buf(0, new).1.unwrap(), 1024);
    inode.move_out_these(&found).unwrap();
    let (read, done) = file.read_buf(0, Buf::zeroed(1024));
    assert_eq!(done.unwrap(), 1024);
    assert!(read.as_slice().iter().all(|b| *b == 2));
    drop(file);
    volume.close().unwrap();
}
