use super::*;
use crate::buf::Buf;
use crate::device::Stored;

#[test]
fn a_terabyte_costs_nothing_until_it_is_written() {
    let device = MemDevice::new(1 << 40);
    device.write_at((1 << 39) + 5, b"here");
    let mut bytes = [1; 16];
    device.read_at(1 << 39, &mut bytes);
    assert_eq!(&bytes[..10], b"\0\0\0\0\0here\0");
    device.medium.arena.zero(0, 1 << 40, true);
    device.read_at(1 << 39, &mut bytes);
    assert_eq!(bytes, [0; 16]);
}

#[test]
fn zeroing_keeps_the_neighbours() {
    for unmap in [false, true] {
        let device = MemDevice::new(1 << 20);
        device.write_at(0, &[7; 1 << 20]);
        device.medium.arena.zero(512, 200 * 1024, unmap);
        let mut bytes = vec![0; 1 << 20];
        device.read_at(0, &mut bytes);
        let end = 512 + 200 * 1024;
        assert!(bytes[..512].iter().all(|b| *b == 7) && bytes[end..].iter().all(|b| *b == 7));
        assert!(bytes[512..end].iter().all(|b| *b == 0));
    }
}

#[test]
fn bufs_of_odd_parts_arrive_whole() {
    let device = MemDevice::new(1 << 20);
    let queue = device
        .open_queue(QueueOptions::new(4).expect("an eventfd"))
        .expect("a queue");
    let parts = || Buf::from_parts(Vec::from([7usize, 500, 5].map(Buf::zeroed)));
    let mut buf = parts();
    let bytes: Vec<u8> = (0..512u32).map(|n| (n % 251) as u8).collect();
    buf.copy_in(0, &bytes);
    let mut list = BioList::from([Bio::write(512, buf, 1)]);
    queue.submit(&mut list);
    assert_eq!(queue.in_flight(), 1);
    assert_eq!(queue.reap(&mut list), 1);
    let mut list = BioList::from([Bio::read(512, parts(), 2)]);
    queue.submit(&mut list);
    queue.reap(&mut list);
    let back: Vec<u8> = list[0].buf.parts().flatten().copied().collect();
    assert_eq!(back, bytes);
}

#[test]
fn without_the_copy_buffers_stay_as_they_are() {
    let device = MemDevice::new(1 << 20);
    device.write_at(0, &[9; 4096]);
    device.set_copy(false);
    let queue = device
        .open_queue(QueueOptions::new(4).expect("an eventfd"))
        .expect("a queue");
    let mut list = BioList::from([Bio::read(0, Buf::zeroed(4096), 0)]);
    queue.submit(&mut list);
    queue.reap(&mut list);
    assert!(list[0].result.is_ok() && list[0].buf.as_slice().iter().all(|b| *b == 0));
}

/// What was written is data, what never was is a hole, at the edges of chunks and of whole words of the map.
#[test]
fn untouched_memory_is_a_hole() {
    let device = MemDevice::new((9 << 20) + 512);
    device.write_at((4 << 20) + 5, b"here");
    device.write_at(9 << 20, &[1; 512]);
    let size = device.geometry().size;
    let seen = |most| {
        let runs = device.stored(0..size, most).expect("inside");
        runs.iter().map(|r| (r.len, r.stored)).collect::<Vec<_>>()
    };
    let chunk = 64 << 10;
    let all = [
        (4 << 20, Stored::Hole),
        (chunk, Stored::Data),
        ((5 << 20) - chunk, Stored::Hole),
        (512, Stored::Data),
    ];
    assert_eq!(seen(100), all);
    assert_eq!(seen(2), all[..2]);
    assert_eq!(seen(0), []);
    device.stored(0..size + 1, 1).expect_err("outside");
    assert_eq!(device.stored(size..size, 1).expect("inside"), []);
    let inside = device.stored(100..600, 9).expect("inside");
    assert_eq!(inside.iter().map(|r| r.len).collect::<Vec<_>>(), [500]);
}
