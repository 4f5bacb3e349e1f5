//! Tests of mutated texts, and of which mutant a compiler error belongs to.

#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use super::weave;
use crate::list::{Genre, Mutant};

fn mutant(number: u32, genre: Genre, replacement: &str, spot: (usize, usize)) -> Mutant {
    Mutant {
        number,
        file: "lib.rs".into(),
        name: String::new(),
        genre,
        replacement: replacement.into(),
        spot,
    }
}

/// The text with these mutants woven in, with the source's white space and a short name of the switch.
fn woven(text: &str, mutants: &[Mutant]) -> String {
    let woven = weave(text, &mutants.iter().collect::<Vec<_>>()).unwrap();
    assert!(woven.left_out.is_empty());
    syn::parse_file(&woven.text).unwrap();
    woven.text.replace("::diorite_mutant::on", "on")
}

#[test]
fn a_value_is_returned_before_anything_is_done() {
    let text = "fn f() -> u8 {\n    // Why.\n    1\n}\n";
    let mutants = [
        mutant(1, Genre::FnValue, "0", (3, 5)),
        mutant(2, Genre::FnValue, "7", (3, 5)),
    ];
    let first = "fn f() -> u8 { if on(1u32) { return 0; } if on(2u32) { return 7; } \n";
    assert_eq!(
        woven(text, &mutants),
        format!("{first}    // Why.\n    1\n}}\n")
    );
}

/// Each operand is in the mutated text once, with its own mutants woven in.
#[test]
fn operands_keep_their_own_mutants() {
    let text = "fn f(a: u8, b: u8) -> bool {\n    a + b < 9\n}\n";
    let mutants = [
        mutant(1, Genre::BinaryOperator, "-", (2, 7)),
        mutant(2, Genre::BinaryOperator, "<=", (2, 11)),
    ];
    let inner = "(match ((a), (b)) { (__l, __r) => if on(1u32) { __l - __r } else { __l + __r } })";
    let outer = format!(
        "(match (&({inner}), &(9)) {{ (__l, __r) => if on(2u32) {{ *__l <= *__r }} else {{ *__l < *__r }} }})"
    );
    assert_eq!(
        woven(text, &mutants),
        format!("fn f(a: u8, b: u8) -> bool {{\n    {outer}\n}}\n")
    );
}

/// The second operand is evaluated only if the operator that is on needs it.
#[test]
fn what_is_lazy_stays_lazy() {
    let and = woven(
        "fn f() { a() && b() }",
        &[mutant(1, Genre::BinaryOperator, "||", (1, 14))],
    );
    assert_eq!(
        and,
        "fn f() { (match (a()) { __l => if __l ^ on(1u32) { b() } else { __l } }) }"
    );
    let or = woven(
        "fn f() { a() || b() }",
        &[mutant(1, Genre::BinaryOperator, "&&", (1, 14))],
    );
    assert_eq!(
        or,
        "fn f() { (match (a()) { __l => if __l ^ !on(1u32) { b() } else { __l } }) }"
    );
}

#[test]
fn a_target_is_assigned_to_by_one_of_the_operators() {
    let text = woven(
        "fn f() { *x += g(); }",
        &[mutant(1, Genre::BinaryOperator, "-=", (1, 13))],
    );
    assert_eq!(
        text,
        "fn f() { (match (g()) { __r => if on(1u32) { *x -= __r } else { *x += __r } }); }"
    );
}

#[test]
fn signs_arms_guards_and_fields() {
    let text = woven(
        "fn f() { !a }",
        &[mutant(1, Genre::UnaryOperator, "", (1, 10))],
    );
    assert_eq!(
        text,
        "fn f() { (match (a) { __v => if on(1u32) { __v } else { !__v } }) }"
    );
    let guards = [
        mutant(1, Genre::MatchArmGuard, "true", (1, 25)),
        mutant(2, Genre::MatchArmGuard, "false", (1, 25)),
    ];
    let text = woven(
        "fn f() { match a { B if c => 1, _ => 2 } }",
        &[guards[0].clone()],
    );
    assert!(text.contains("B if (on(1u32) || (c)) => 1"), "{text}");
    let text = woven("fn f() { match a { B if c => 1, _ => 2 } }", &guards);
    assert!(
        text.contains("B if (on(1u32) || !on(2u32) && (c)) => 1"),
        "{text}"
    );
    let text = woven(
        "fn f() { match a { B => 1, _ => 2 } }",
        &[mutant(1, Genre::MatchArm, "", (1, 20))],
    );
    assert!(text.contains("B if !on(1u32) => 1"), "{text}");
    let text = woven(
        "fn f() { S { a: 1, ..s() } }",
        &[mutant(1, Genre::StructField, "", (1, 14))],
    );
    assert!(
        text.contains("a: (if on(1u32) { (s()).a } else { 1 }), ..s()"),
        "{text}"
    );
}

/// A condition with `let` cannot be put into parentheses, so its mutant cannot be woven in.
#[test]
fn let_in_a_condition_has_no_place() {
    let text = "fn f() { if a && let Some(_) = b {} }";
    let mutant = mutant(1, Genre::BinaryOperator, "||", (1, 15));
    let woven = weave(text, &[&mutant]).unwrap();
    assert_eq!((woven.text.as_str(), woven.left_out), (text, vec![1]));
}

/// An error in one branch removes that branch's mutant; an error in the whole expression removes all mutants of the place.
#[test]
fn errors_have_owners() {
    let text = "fn f() -> u8 {\n    a + b\n}\n";
    let mutants = [
        mutant(1, Genre::FnValue, "0", (2, 5)),
        mutant(2, Genre::BinaryOperator, "-", (2, 7)),
        mutant(3, Genre::BinaryOperator, "*", (2, 7)),
    ];
    let woven = weave(text, &mutants.iter().collect::<Vec<_>>()).unwrap();
    let at = |what: &str| {
        let start = woven.text.find(what).unwrap();
        start..start + what.len()
    };
    assert_eq!(woven.owners(&at("__l * __r"), false), [3]);
    assert_eq!(woven.owners(&at("return 0"), false), [1]);
    assert_eq!(woven.owners(&at("(match ((a), (b))"), false), [2, 3]);
    assert_eq!(woven.owners(&at("a), (b)) { (__l"), true), [2, 3]);
    let behind = woven.text.len() - 1..woven.text.len();
    assert_eq!(woven.owners(&behind, true), [1]);
}
