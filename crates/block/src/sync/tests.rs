use super::*;
use std::sync::Arc;

static LOW: LockClass = LockClass::new("low", 1);
static HIGH: LockClass = LockClass::new("high", 2);

#[test]
fn counts_acquisitions_and_contention() {
    static CLASS: LockClass = LockClass::new("counted", 1);
    let lock = Arc::new(Mutex::new(&CLASS, 0u32));
    let guard = lock.lock();
    let other = {
        let lock = lock.clone();
        std::thread::spawn(move || *lock.lock() += 1)
    };
    while CLASS.stats().acquired < 2 {
        std::thread::yield_now();
    }
    std::thread::sleep(std::time::Duration::from_millis(5));
    drop(guard);
    other.join().expect("the thread ends well");
    let stats = CLASS.stats();
    assert_eq!((stats.acquired, stats.contended), (2, 1));
    assert!(stats.waited.as_nanos() > 0);
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "lock order")]
fn wrong_order_is_caught() {
    let (low, high) = (Mutex::new(&LOW, ()), Mutex::new(&HIGH, ()));
    let _high = high.lock();
    let _low = low.lock();
}

#[test]
fn a_stack_is_taken_downwards() {
    let (top, bottom) = (Mutex::at_level(&HIGH, 2, ()), Mutex::at_level(&LOW, 1, ()));
    let _top = top.lock();
    let _bottom = bottom.lock();
}

#[test]
fn locks_of_a_class_are_taken_by_number() {
    let (one, two) = (RwLock::at_level(&LOW, 0, ()), RwLock::at_level(&LOW, 0, ()));
    let _one = one.write_numbered(1);
    let _two = two.write_numbered(2);
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "lock order")]
fn wrong_numbers_are_caught() {
    let (one, two) = (RwLock::at_level(&LOW, 0, ()), RwLock::at_level(&LOW, 0, ()));
    let _two = two.write_numbered(2);
    let _one = one.write_numbered(1);
}
