//! Times of an image in the words of the tools that people know.
//!
//! Input: seconds and nanoseconds since 1970. Output: text in the local time zone (`TZ`, /etc/localtime). Invariant: a time
//! that no calendar has is printed as its number of seconds. Limits: months and days are named in English.

use diorite_format::Timestamp;
use jiff::Zoned;
use jiff::tz::TimeZone;

/// Half a year, as `ls` counts it: half of 365.2425 days.
const HALF_A_YEAR: i64 = 31_556_952 / 2;

/// Formats times of one time zone.
pub(crate) struct Clock {
    zone: TimeZone,
    now: i64,
}

impl Clock {
    /// The local time zone, now.
    pub(crate) fn local() -> Clock {
        Clock {
            zone: TimeZone::system(),
            now: jiff::Timestamp::now().as_second(),
        }
    }

    /// `Sat Nov 21 21:29:35 2026`.
    pub(crate) fn ctime(&self, secs: i64) -> String {
        self.format("%a %b %e %H:%M:%S %Y", secs, 0)
    }

    /// `2026-11-21 21:29:35.123456789 +0000`.
    pub(crate) fn full(&self, time: Timestamp) -> String {
        self.format("%Y-%m-%d %H:%M:%S.%N %z", time.secs, time.nanos)
    }

    /// `2026-11-21 21:29`.
    pub(crate) fn long_iso(&self, time: Timestamp) -> String {
        self.format("%Y-%m-%d %H:%M", time.secs, time.nanos)
    }

    /// As `ls -l`: with the hour if it is of the last half year, else with the year.
    pub(crate) fn short(&self, time: Timestamp) -> String {
        let recent = time.secs > self.now - HALF_A_YEAR && time.secs <= self.now;
        let form = if recent { "%b %e %H:%M" } else { "%b %e  %Y" };
        self.format(form, time.secs, time.nanos)
    }

    fn format(&self, form: &str, secs: i64, nanos: u32) -> String {
        let nanos = i32::try_from(nanos).unwrap_or(0);
        let at = jiff::Timestamp::new(secs, 0).and_then(|t| {
            // Nanoseconds count upwards from the second, before 1970 too.
            t.checked_add(jiff::SignedDuration::new(0, nanos))
        });
        match at {
            Ok(at) => Zoned::new(at, self.zone.clone()).strftime(form).to_string(),
            Err(_) => secs.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_ls_stat_and_dumpe2fs() {
        let clock = Clock {
            zone: TimeZone::UTC,
            now: 1_795_296_575,
        };
        let at = |secs, nanos| Timestamp { secs, nanos };
        assert_eq!(clock.ctime(1_795_296_575), "Sat Nov 21 21:29:35 2026");
        assert_eq!(clock.full(at(-1, 5)), "1969-12-31 23:59:59.000000005 +0000");
        assert_eq!(clock.short(at(1_795_296_575, 0)), "Nov 21 21:29");
        assert_eq!(clock.short(at(0, 0)), "Jan  1  1970");
        assert_eq!(clock.short(at(1_795_296_576, 0)), "Nov 21  2026");
        assert_eq!(clock.full(at(i64::MAX, 0)), i64::MAX.to_string());
    }
}
