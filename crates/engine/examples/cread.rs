//! Scratch.
use diorite::{Buf, OpenFlags, OpenOptions, Request, Volume};
fn main() {
    let v: Vec<String> = std::env::args().collect();
    let n: usize = v[2].parse().unwrap();
    let o = OpenOptions::writable().io_engine(v[3].parse::<diorite::IoEngine>().unwrap());
    let vol = Volume::open(&v[1], &o).unwrap();
    let f = vol.open_path("/data", OpenFlags::default()).unwrap();
    let q = vol.queue(64).unwrap();
    let id = q.attach(&f).unwrap();
    let mut idle: Vec<Buf> = (0..64).map(|_| Buf::zeroed(4096)).collect();
    let mut x: u64 = 88172645463325252;
    let (mut sent, mut got) = (0, 0);
    let mut b: Vec<Request> = Vec::with_capacity(64);
    let mut d = Vec::with_capacity(64);
    while got < n {
        while b.len() < 32 && sent < n {
            let Some(buf) = idle.pop() else { break };
            x ^= x << 13; x ^= x >> 7; x ^= x << 17;
            b.push(Request::read(id, (x % 4096) * 4096, buf, sent as u64));
            sent += 1;
        }
        q.submit_from(&mut b);
        let left = n - got;
        q.reap(&mut d, if left < 32 { 1 } else { 32 }, None);
        got += d.len();
        for done in d.drain(..) {
            done.result.unwrap();
            idle.push(done.buf);
        }
    }
    drop(q);
    drop(f);
    vol.close().unwrap();
}
