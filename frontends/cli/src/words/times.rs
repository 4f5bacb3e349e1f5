//! Times of an image, printed and parsed as coreutils, findutils and e2fsprogs do.
//!
//! Input: seconds and nanoseconds since 1970; times as the user types them. Output: text in the local time zone (`TZ`,
//! /etc/localtime); seconds and nanoseconds. Invariant: a time outside the range of the calendar is printed as its number of
//! seconds. Limits: the names of months and days are English; a time that is parsed is a number of seconds, or begins with
//! year, month and day.

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
            zone: system_zone(),
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

    /// As `ls -l`: with the time of day if it is within the last half year, else with the year.
    pub(crate) fn short(&self, time: Timestamp) -> String {
        let recent = time.secs > self.now - HALF_A_YEAR && time.secs <= self.now;
        let form = if recent { "%b %e %H:%M" } else { "%b %e  %Y" };
        self.format(form, time.secs, time.nanos)
    }

    /// A part of the time, as find -printf prints it: see [`has_part`].
    pub(crate) fn part(&self, time: Timestamp, part: char) -> String {
        // find prints ten digits; the tenth is always zero.
        let fraction = format!(".{:09}0", time.nanos);
        let form = match part {
            '@' => return format!("{}{fraction}", time.secs),
            '+' => "%Y-%m-%d+%H:%M:%S".to_owned(),
            part => format!("%{part}"),
        };
        let text = self.format(&form, time.secs, time.nanos);
        match part {
            '+' | 'S' | 'T' => text + &fraction,
            _ => text,
        }
    }

    /// `Sat Nov 21 21:29:35.1234567890 2026`, as find -printf prints a whole time.
    pub(crate) fn ctime_of(&self, time: Timestamp) -> String {
        let front = self.format("%a %b %e %H:%M:%S", time.secs, time.nanos);
        let year = self.format("%Y", time.secs, time.nanos);
        format!("{front}.{:09}0 {year}", time.nanos)
    }

    fn format(&self, form: &str, secs: i64, nanos: u32) -> String {
        let nanos = i32::try_from(nanos).unwrap_or(0);
        let at = jiff::Timestamp::new(secs, 0).and_then(|t| {
            // Nanoseconds count upwards from the second, also before 1970.
            t.checked_add(jiff::SignedDuration::new(0, nanos))
        });
        match at {
            Ok(at) => Zoned::new(at, self.zone.clone()).strftime(form).to_string(),
            Err(_) => secs.to_string(),
        }
    }
}

/// The time now.
pub(crate) fn now() -> Timestamp {
    of(jiff::Timestamp::now())
}

/// Whether this letter names a part of a time.
pub(crate) fn has_part(part: char) -> bool {
    "@+YymdeHIMSpjaAbBFTDZz".contains(part)
}

/// A time as `touch -d` takes it: `@SECONDS`, or a date with or without a time, with or without a zone.
pub(crate) fn parse(text: &str) -> Result<Timestamp, String> {
    parse_in(text, &system_zone())
}

/// A time as `touch -t` takes it: `[[CC]YY]MMDDhhmm[.ss]`.
pub(crate) fn parse_stamp(text: &str) -> Result<Timestamp, String> {
    let now = Zoned::now();
    parse_stamp_in(text, now.time_zone(), now.year())
}

/// The host's time zone. Without TZ it is read from its own file: the library looks for the zone's name, and lists all zones for that,
/// which takes longer than most commands.
fn system_zone() -> TimeZone {
    let read = || {
        let file = std::fs::read("/etc/localtime").ok()?;
        TimeZone::tzif("local", &file).ok()
    };
    let local = std::env::var_os("TZ").is_none().then(read).flatten();
    local.unwrap_or_else(TimeZone::system)
}

fn parse_stamp_in(text: &str, zone: &TimeZone, this_year: i16) -> Result<Timestamp, String> {
    let wrong = || format!("invalid time: {text}: give [[CC]YY]MMDDhhmm[.ss]");
    let (digits, secs) = text.split_once('.').unwrap_or((text, "00"));
    let are_digits = |word: &str| word.bytes().all(|c| c.is_ascii_digit());
    if !are_digits(digits) || !are_digits(secs) || secs.len() != 2 || digits.len() < 8 {
        return Err(wrong());
    }
    let (year, rest) = digits.split_at(digits.len() - 8);
    let year = match year.len() {
        0 => format!("{this_year:04}"),
        // As in POSIX: from 1969 to 2068.
        2 if year >= "69" => format!("19{year}"),
        2 => format!("20{year}"),
        4 => year.to_owned(),
        _ => return Err(wrong()),
    };
    let two = |at: usize| &rest[at..at + 2];
    let date = format!("{year}-{}-{}T{}:{}:{secs}", two(0), two(2), two(4), two(6));
    parse_in(&date, zone).map_err(|_| wrong())
}

fn parse_in(text: &str, zone: &TimeZone) -> Result<Timestamp, String> {
    if let Some(seconds) = text.strip_prefix('@') {
        return parse_seconds(seconds)
            .ok_or_else(|| format!("invalid time: {text}: @ is followed by seconds since 1970"));
    }
    let at = text.parse::<jiff::Timestamp>().or_else(|_| {
        let civil = text.parse::<jiff::civil::DateTime>()?;
        civil.to_zoned(zone.clone()).map(|z| z.timestamp())
    });
    let at = at.map_err(|_| {
        format!("invalid time: {text}: give @SECONDS, or a date like 2001-02-03 04:05:06")
    })?;
    Ok(of(at))
}

/// The time in the form of an inode: nanoseconds count upwards from the second, also before 1970.
fn of(at: jiff::Timestamp) -> Timestamp {
    let nanos = at.as_nanosecond().rem_euclid(1_000_000_000);
    let secs = at.as_nanosecond().div_euclid(1_000_000_000);
    Timestamp {
        secs: i64::try_from(secs).expect("a calendar's seconds have 64 bits"),
        nanos: u32::try_from(nanos).expect("less than a second"),
    }
}

/// Parses seconds since 1970 with a fraction. `-1.5` is half a second before -1.
fn parse_seconds(text: &str) -> Option<Timestamp> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    if part.len() > 9 || !part.bytes().all(|c| c.is_ascii_digit()) || whole.starts_with('+') {
        return None;
    }
    let secs: i64 = whole.parse().ok()?;
    let nanos: u32 = format!("{part:0<9}").parse().ok()?;
    Some(match whole.starts_with('-') && nanos > 0 {
        true => Timestamp {
            secs: secs.checked_sub(1)?,
            nanos: 1_000_000_000 - nanos,
        },
        false => Timestamp { secs, nanos },
    })
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

    #[test]
    fn what_people_type() {
        let east = TimeZone::fixed(jiff::tz::offset(2));
        let said = |text| parse_in(text, &east).map(|t| (t.secs, t.nanos));
        assert_eq!(said("@0"), Ok((0, 0)));
        assert_eq!(said("@1795296575.25"), Ok((1_795_296_575, 250_000_000)));
        assert_eq!(said("@-1.5"), Ok((-2, 500_000_000)));
        assert_eq!(said("2001-02-03"), Ok((981_151_200, 0)));
        assert_eq!(said("2001-02-03 04:05"), Ok((981_165_900, 0)));
        assert_eq!(
            said("2001-02-03T04:05:06.5"),
            Ok((981_165_906, 500_000_000))
        );
        assert_eq!(said("2001-02-03T04:05:06Z"), Ok((981_173_106, 0)));
        assert_eq!(said("2001-02-03 04:05:06+02:00"), Ok((981_165_906, 0)));
        assert_eq!(said("1969-12-31T23:59:59.75Z"), Ok((-1, 750_000_000)));
        let stamp = |text| parse_stamp_in(text, &east, 2001).map(|t| t.secs);
        for same in ["200102030405", "0102030405", "02030405", "02030405.00"] {
            assert_eq!(stamp(same), Ok(981_165_900), "{same}");
        }
        assert_eq!(stamp("197001010200.07"), Ok(7));
        assert_eq!(stamp("7001010200"), Ok(0));
        for bad in [
            "",
            "0203040",
            "1302030405x",
            "02300405",
            "02030405.7",
            "002030405",
        ] {
            assert!(stamp(bad).is_err(), "{bad}");
        }
        for bad in [
            "",
            "@",
            "@x",
            "@1.0000000001",
            "@+1",
            "yesterday",
            "2001-13-01",
        ] {
            assert!(said(bad).is_err(), "{bad}");
        }
    }
}
