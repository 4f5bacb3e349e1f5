//! Calls that fail, panic, and take their time.

use super::*;
use crate::{Blocking, Buf};
use std::sync::Mutex;

/// Bytes, and what was called.
struct Mine {
    bytes: Mutex<Vec<u8>>,
    log: Arc<Mutex<Vec<&'static str>>>,
}

const SIZE: usize = 1 << 20;

impl Calls for Mine {
    fn size(&self) -> u64 {
        SIZE as u64
    }

    fn read(&self, pos: u64, out: &mut [u8]) -> io::Result<()> {
        assert_ne!(pos, 4096, "a panic of the one who wrote this");
        let bytes = self.bytes.lock().map_err(|_| io::ErrorKind::Other)?;
        out.copy_from_slice(&bytes[pos as usize..][..out.len()]);
        Ok(())
    }

    fn write(&self, pos: u64, data: &[u8]) -> io::Result<()> {
        if pos == 8192 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let mut bytes = self.bytes.lock().map_err(|_| io::ErrorKind::Other)?;
        bytes[pos as usize..][..data.len()].copy_from_slice(data);
        self.log
            .lock()
            .map_err(|_| io::ErrorKind::Other)?
            .push("write");
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.log
            .lock()
            .map_err(|_| io::ErrorKind::Other)?
            .push("flush");
        Ok(())
    }
}

#[test]
fn bios_are_calls() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let bytes = Mutex::new(vec![0; SIZE]);
    let log_of = log.clone();
    let device: Arc<dyn Device> = Arc::new(CallsDevice::new("mine", Mine { bytes, log: log_of }));
    let options = QueueOptions::waited_on(8);
    let queue = device.open_queue(options).expect("there are threads");
    let mut filled = Buf::zeroed(4096);
    filled.as_mut_slice().fill(7);
    let mut durable = Bio::write(0, filled, 0);
    durable.flags.fua = true;
    let mut bios: crate::BioList = [
        durable,
        Bio::read(4096, Buf::zeroed(512), 1),
        Bio::write(8192, Buf::zeroed(512), 2),
        Bio::range(BioOp::Discard, 0, 4096, 3),
        Bio::read(SIZE as u64, Buf::zeroed(512), 4),
    ]
    .into_iter()
    .collect();
    queue.submit(&mut bios);
    assert!(bios.is_empty());
    let mut ended = crate::BioList::new();
    while ended.len() < 5 {
        queue.wait(1, None);
        queue.reap(&mut ended);
    }
    let mut results: Vec<_> = ended.iter().map(|bio| (bio.token, bio.result)).collect();
    results.sort_by_key(|(token, _)| *token);
    let kinds: Vec<_> = results
        .iter()
        .map(|(_, r)| r.err().map(|e| e.kind))
        .collect();
    let expected = [
        None,
        Some(BioErrorKind::Io),
        Some(BioErrorKind::NoSpace),
        Some(BioErrorKind::Unsupported),
        Some(BioErrorKind::Invalid),
    ];
    assert_eq!(kinds, expected);
    assert_eq!(*log.lock().expect("nobody panicked"), ["write", "flush"]);
    drop(queue);
    let blocking = Blocking::new(device);
    let read = blocking.run(Bio::read(0, Buf::zeroed(4096), 0));
    assert!(read.result.is_ok() && read.buf.as_slice().iter().all(|byte| *byte == 7));
}
