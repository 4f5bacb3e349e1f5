//! Runs: joining and counting by example; cutting in every way, compared with the list of their blocks.

use super::*;

const CLAIMED: bool = true;
const THERE: bool = false;

fn run(file_block: u32, len: u32, start: u64, claimed: bool) -> Mapped {
    let run = NewRun {
        file_block,
        len,
        start: FsBlock::new(start),
        unwritten: false,
    };
    Mapped { run, claimed }
}

/// Every block of the file, where it is, and whether it was claimed.
fn flat(runs: &[Mapped]) -> Vec<(u64, u64, bool)> {
    let of = |m: &Mapped| {
        let (start, claimed) = (m.run.start.get(), m.claimed);
        m.blocks().zip(start..).map(move |(b, at)| (b, at, claimed))
    };
    runs.iter().flat_map(of).collect()
}

/// A run goes on in the next one if both places do and both were had in the same way: nothing less.
#[test]
fn only_neighbours_on_both_sides_are_joined() {
    let first = run(10, 3, 100, CLAIMED);
    assert_eq!(first.blocks(), 10..13);
    let joined = |next: Mapped| merged(vec![next, first]);
    assert_eq!(joined(run(13, 2, 103, CLAIMED)), [run(10, 5, 100, CLAIMED)]);
    for apart in [
        run(13, 2, 103, THERE),
        run(14, 2, 103, CLAIMED),
        run(14, 2, 104, CLAIMED),
        run(13, 2, 104, CLAIMED),
        run(13, 2, 102, CLAIMED),
        run(13, 2, 300, CLAIMED),
        run(30, 2, 103, CLAIMED),
        run(30, 2, 300, CLAIMED),
    ] {
        assert_eq!(joined(apart), [first, apart]);
    }
    let many = vec![
        run(2, 1, 52, THERE),
        run(0, 1, 50, THERE),
        run(1, 1, 51, THERE),
        run(3, 4, 60, THERE),
        run(7, 1, 64, THERE),
    ];
    assert_eq!(merged(many), [run(0, 3, 50, THERE), run(3, 5, 60, THERE)]);
}

/// One run of few blocks is what is asked for without a look; nothing is not many.
#[test]
fn what_has_to_be_looked_at() {
    assert!(!are_many(&[]));
    assert!(!are_many(&[run(0, FEW, 100, CLAIMED)]));
    assert!(are_many(&[run(0, FEW + 1, 100, CLAIMED)]));
    assert!(are_many(&[
        run(0, 1, 100, CLAIMED),
        run(1, 1, 200, CLAIMED)
    ]));
}

/// What is claimed block behind block fills one hole; an unwritten run, or a block that is written between, is something else.
#[test]
fn one_hole_is_claimed_from_end_to_end() {
    let (a, b) = (run(4, 2, 100, CLAIMED), run(6, 3, 200, CLAIMED));
    assert!(fill_one_hole(&[a]) && fill_one_hole(&[a, b]));
    assert!(!fill_one_hole(&[run(4, 2, 100, THERE)]));
    assert!(!fill_one_hole(&[a, run(6, 3, 200, THERE)]));
    assert!(!fill_one_hole(&[
        run(4, 2, 100, THERE),
        run(6, 3, 200, THERE)
    ]));
    for gap in [run(7, 3, 200, CLAIMED), run(8, 3, 200, CLAIMED)] {
        assert!(!fill_one_hole(&[a, gap]));
        assert!(!fill_one_hole(&[a, b, run(10, 1, 300, CLAIMED)]));
    }
}

/// As many as fit to the last block, the first one whatever it costs, and nobody behind is asked.
#[test]
fn a_handle_takes_what_fits_and_one_at_least() {
    let many = |costs: &[u32], most| {
        let mut asked = 0;
        let of = costs.iter().inspect(|_| asked += 1).copied();
        let found = how_many(of, most);
        assert!(asked <= found.0 + 1, "{asked} were asked");
        found
    };
    assert_eq!(many(&[], 10), (0, 0));
    assert_eq!(many(&[3, 3, 3, 3], 10), (3, 9));
    assert_eq!(many(&[5, 5, 1], 10), (2, 10));
    assert_eq!(many(&[5, 6, 1], 10), (1, 5));
    assert_eq!(many(&[11, 1], 10), (1, 11));
    assert_eq!(many(&[1, 2, 3], 100), (3, 6));
    assert_eq!(many(&[1, u32::MAX], 100), (1, 1));
    assert_eq!(many(&[u32::MAX, 1], 100), (1, u32::MAX));
}

/// The credits of these tests: a block for each run, and one for every four blocks of data.
fn cost(runs: &[Mapped]) -> u32 {
    runs.iter().map(|m| 1 + m.run.len.div_ceil(4)).sum()
}

/// All runs, the half of them until they fit, a part of one: whatever the handle holds, the parts have all blocks once and in order.
#[test]
fn parts_have_all_blocks_and_fit() {
    let all = [
        run(0, 40, 1000, CLAIMED),
        run(40, 1, 2000, THERE),
        run(44, 4, 3000, CLAIMED),
        run(48, 4, 4000, CLAIMED),
        run(60, 100, 5000, THERE),
    ];
    for ratio in [1, 4] {
        for most in 2..60 {
            let (mut rest, mut parts) = (all.to_vec(), Vec::new());
            while !rest.is_empty() {
                let part = first_part(&mut rest, most, ratio, cost);
                assert!(!part.is_empty(), "a part of nothing, at most {most}");
                // A cluster is not cut.
                let least = part.len() == 1 && part[0].run.len <= ratio;
                assert!(cost(&part) <= most || least, "{part:?} for {most}");
                let cut = part.iter().map(|m| m.blocks().start % u64::from(ratio));
                assert!(cut.sum::<u64>() == 0, "{part:?}");
                parts.extend(part);
            }
            assert_eq!(flat(&parts), flat(&all), "at most {most}");
        }
    }
}

#[test]
fn what_just_fits_is_not_divided() {
    let (a, b) = (run(0, 4, 100, CLAIMED), run(8, 4, 200, CLAIMED));
    let (c, d) = (run(16, 4, 300, CLAIMED), run(24, 4, 400, CLAIMED));
    let part = |most| {
        let mut rest = vec![a, b, c, d];
        (first_part(&mut rest, most, 1, cost), rest)
    };
    assert_eq!(part(8), (vec![a, b, c, d], vec![]));
    assert_eq!(part(7), (vec![a, b], vec![c, d]));
    assert_eq!(part(3), (vec![a], vec![b, c, d]));
    assert_eq!(part(2), (vec![a], vec![b, c, d]));
}

/// What is cut off a long run, by one cut after the other, is one run again, before the others.
#[test]
fn a_long_run_is_cut_and_its_rest_stays_whole() {
    let (long, other) = (run(100, 64, 1000, CLAIMED), run(200, 4, 2000, CLAIMED));
    let mut rest = vec![long, other];
    let part = first_part(&mut rest, 5, 1, cost);
    assert_eq!(part, [run(100, 16, 1000, CLAIMED)]);
    assert_eq!(rest, [run(116, 48, 1016, CLAIMED), other]);
    // What follows it in the file and was had otherwise stays apart.
    let there = run(164, 4, 1064, THERE);
    let mut rest = vec![long, there];
    let part = first_part(&mut rest, 9, 1, cost);
    assert_eq!(part, [run(100, 32, 1000, CLAIMED)]);
    assert_eq!(rest, [run(132, 32, 1032, CLAIMED), there]);
}

/// A run is cut before a cluster of the file, or not at all.
#[test]
fn a_cut_lies_between_clusters() {
    let cut = |mut long: Mapped, ratio| {
        let behind = cut_in_half(&mut long, ratio);
        (long, behind)
    };
    let long = run(6, 11, 106, THERE);
    let halves = |len| {
        let at = 6 + len;
        let behind = run(at, 11 - len, 100 + u64::from(at), THERE);
        (run(6, len, 106, THERE), Some(behind))
    };
    assert_eq!(cut(long, 1), halves(5));
    assert_eq!(cut(long, 4), halves(2));
    for (whole, ratio) in [(run(8, 1, 100, THERE), 1), (run(8, 4, 100, THERE), 4)] {
        assert_eq!(cut(whole, ratio), (whole, None));
    }
    // It begins inside a cluster, whose beginning is not its own.
    let inside = run(9, 4, 100, THERE);
    assert_eq!(cut(inside, 8), (inside, None));
}

/// The size moves with what is mapped, to the end of the request only when all of it is.
#[test]
fn the_size_moves_with_the_parts() {
    let (all, part) = ((true, true), (false, true));
    assert_eq!(size_behind(3, 1024, 5000, all), 5000);
    assert_eq!(size_behind(3, 1024, 5000, part), 3072);
    assert_eq!(size_behind(3, 1024, 5000, (true, false)), 3072);
    assert_eq!(size_behind(3, 1024, 5000, (false, false)), 3072);
    assert_eq!(size_behind(9, 1024, 5000, part), 5000);
    assert_eq!(size_behind(0, 1024, 5000, (true, false)), 0);
}
