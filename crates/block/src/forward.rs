//! Methods of a [`crate::DeviceQueue`] that do what the queue below does: one line in the place of each.
//!
//! Input: the field with the queue below, and names of methods. Output: these methods. Invariant: only what a queue names is forwarded, so
//! a new method of the trait is thought of in each queue. Limits: methods that every queue has.

/// Writes methods that call those of the queue in a field.
#[doc(hidden)]
#[macro_export]
macro_rules! forward_queue {
    ($field:tt => $($method:ident),+ $(,)?) => {
        $($crate::forward_queue!(@$method $field);)+
    };
    (@below $field:tt) => {
        fn below(&self) -> Option<&dyn $crate::DeviceQueue> {
            Some(&*self.$field)
        }
    };
    (@submit $field:tt) => {
        fn submit(&self, bios: &mut $crate::BioList) {
            self.$field.submit(bios);
        }
    };
    (@reap $field:tt) => {
        fn reap(&self, out: &mut $crate::BioList) -> usize {
            self.$field.reap(out)
        }
    };
    (@wait $field:tt) => {
        fn wait(&self, min: u32, timeout: Option<std::time::Duration>) {
            self.$field.wait(min, timeout);
        }
    };
    (@in_flight $field:tt) => {
        fn in_flight(&self) -> u32 {
            self.$field.in_flight()
        }
    };
}
