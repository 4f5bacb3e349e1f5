use super::*;
use crate::buf::Buf;
use crate::mem::MemDevice;

fn run(queue: &dyn DeviceQueue, bio: Bio) -> Result<(), BioError> {
    let mut list = BioList::from([bio]);
    queue.submit(&mut list);
    assert!(list.is_empty());
    assert_eq!(queue.reap(&mut list), 1);
    list.pop_front().expect("one bio was reaped").result
}

fn fixture(faults: Vec<Fault>) -> (FaultDevice, Box<dyn DeviceQueue>) {
    let device = FaultDevice::new(Arc::new(MemDevice::new(1 << 20)), FaultPlan::new(faults, 1));
    let queue = device
        .open_queue(QueueOptions::new(4).expect("an eventfd"))
        .expect("a queue");
    (device, queue)
}

#[test]
fn spans_and_periods_hit_what_they_say() {
    let io = Fault::new(BioErrorKind::Io, When::Every(3)).on(BioOp::Read);
    let again = Fault::new(
        BioErrorKind::WouldBlock,
        When::parse("2+2").expect("a span"),
    );
    let (device, queue) = fixture(vec![io, again]);
    let kinds: Vec<_> = (0..6)
        .map(|_| {
            run(&*queue, Bio::read(0, Buf::zeroed(512), 0))
                .err()
                .map(|e| e.kind)
        })
        .collect();
    let (io, again) = (Some(BioErrorKind::Io), Some(BioErrorKind::WouldBlock));
    assert_eq!(kinds, [None, again, io, None, None, io]);
    assert_eq!(device.plan().failed(), 3);
}

#[test]
fn faults_keep_to_their_range() {
    let (_device, queue) = fixture(vec![
        Fault::new(BioErrorKind::Io, When::Every(1)).within(512..1024),
    ]);
    assert!(run(&*queue, Bio::write(0, Buf::zeroed(512), 0)).is_ok());
    assert!(run(&*queue, Bio::write(0, Buf::zeroed(1024), 0)).is_err());
    assert!(run(&*queue, Bio::write(1024, Buf::zeroed(512), 0)).is_ok());
}

#[test]
fn held_completions_end_when_they_are_let_go() {
    let (device, queue) = fixture(vec![]);
    device.hold(true);
    let mut list: BioList = (0..5).map(|n| Bio::read(0, Buf::zeroed(512), n)).collect();
    queue.submit(&mut list);
    assert_eq!((list.len(), queue.in_flight()), (1, 4));
    assert_eq!(queue.reap(&mut BioList::new()), 0);
    queue.submit(&mut list);
    assert_eq!(list.len(), 1, "held bios keep their slots");
    device.hold(false);
    assert_eq!(queue.reap(&mut list), 4);
    assert_eq!(queue.in_flight(), 0);
}

#[test]
fn a_read_only_device_says_so() {
    let (device, queue) = fixture(vec![]);
    device.set_read_only(true);
    assert!(device.geometry().read_only);
    let error = run(&*queue, Bio::write(0, Buf::zeroed(512), 0)).expect_err("refused");
    assert_eq!(error.kind, BioErrorKind::ReadOnly);
    assert!(run(&*queue, Bio::flush(0)).is_ok());
}

/// Devices that keep positions pass on how the bytes below are stored.
#[test]
fn wrappers_say_what_the_device_below_says() {
    use crate::device::{Run, Stored};
    let below = crate::MemDevice::new(1 << 20);
    below.write_at(0, &[1; 512]);
    let want = below.stored(0..1 << 20, 9).expect("inside");
    let (data, hole) = (Stored::Data, Stored::Hole);
    assert!(
        matches!(want[..], [Run { stored: a, .. }, Run { stored: b, .. }] if (a, b) == (data, hole))
    );
    let fault = FaultDevice::new(Arc::new(below.clone()), FaultPlan::default());
    assert_eq!(fault.stored(0..1 << 20, 9).expect("inside"), want);
    let record = crate::record::RecordDevice::new(Arc::new(below));
    assert_eq!(record.stored(0..1 << 20, 9).expect("inside"), want);
}
