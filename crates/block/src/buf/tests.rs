use super::*;

#[test]
fn a_split_gives_every_byte_back_once() {
    let mut buf = Buf::zeroed(8192);
    buf.as_mut_slice().fill(7);
    let mut split = Split::new(buf);
    let mut a = split.take(1000);
    split.skip_zeroed(24);
    let mut b = split.take(7168);
    a.as_mut_slice().fill(1);
    b.as_mut_slice().fill(2);
    assert_eq!(split.out(), 8168);
    split.absorb(b);
    split.absorb(a);
    let whole = split.join();
    assert_eq!(whole.len(), 8192);
    let s = whole.as_slice();
    assert!(
        s[..1000].iter().all(|x| *x == 1)
            && s[1000..1024].iter().all(|x| *x == 0)
            && s[1024..].iter().all(|x| *x == 2)
    );
}

#[test]
#[should_panic(expected = "cut from")]
fn a_stranger_is_not_absorbed() {
    let mut split = Split::new(Buf::zeroed(4096));
    let _out = split.take(512);
    split.absorb(Buf::zeroed(512));
}

#[test]
#[should_panic(expected = "every part is back")]
fn a_whole_is_not_used_while_a_part_is_out() {
    let mut split = Split::new(Buf::zeroed(4096));
    let _out = split.take(512);
    let _whole = split.join();
}

#[test]
fn vectored_bufs_cut_anywhere() {
    for cut in 0..=30 {
        let mut parts: Vec<Buf> = [7usize, 11, 12].iter().map(|n| Buf::zeroed(*n)).collect();
        let mut n = 0u8;
        for part in &mut parts {
            for byte in part.as_mut_slice() {
                *byte = n;
                n += 1;
            }
        }
        let mut split = Split::new(Buf::from_parts(parts));
        let head = split.take(cut);
        let tail = split.take(30 - cut);
        let bytes = |b: &Buf| {
            b.parts()
                .flat_map(|p| p.iter().copied())
                .collect::<Vec<u8>>()
        };
        let mut all = bytes(&head);
        assert_eq!(all.len(), cut);
        all.extend(bytes(&tail));
        assert_eq!(all, (0..30).collect::<Vec<u8>>());
        split.absorb(tail);
        split.absorb(head);
        let mut whole = split.join();
        whole.zero(5..20);
        whole.copy_in(6, &[99; 13]);
        let all = bytes(&whole);
        assert_eq!(
            (all[4], all[5], all[6], all[18], all[19], all[20]),
            (4, 0, 99, 99, 0, 20)
        );
    }
}

#[test]
fn pool_bufs_are_aligned_and_come_back() {
    let pool = BufPool::new(4096, 3);
    let bufs: Vec<Buf> = std::iter::from_fn(|| pool.get()).collect();
    assert_eq!(bufs.len(), 3);
    assert!(bufs.iter().all(|b| b.alignment_bits() % 4096 == 0));
    bufs.into_iter().for_each(|b| pool.put(b));
    assert!(pool.get().is_some());
}
