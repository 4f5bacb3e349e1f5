//! A compiler's work on a mount.
//!
//! Input: a generated program of some hundred files. Output: what it prints, and what make(1) says of times. Invariant: what make has built
//! is up to date, also after the next mount. Limits: needs make and cc.

use crate::bed::{Bed, has, said, within};
use std::fmt::Write;
use std::fs;

const DIRS: u64 = 6;
const FILES: u64 = 40;

/// Writes the program. It prints the sum of what its functions return.
fn sources(bed: &Bed) {
    let mut main = String::from("#include <stdio.h>\n");
    let mut calls = String::new();
    for dir in 0..DIRS {
        fs::create_dir_all(bed.path(&format!("src/d{dir}"))).unwrap();
        let header = format!("#define BASE_{dir} {}\n", dir * 1000);
        fs::write(bed.path(&format!("src/d{dir}/base.h")), header).unwrap();
        for n in 0..FILES {
            let text = format!(
                "#include \"base.h\"\nlong f_{dir}_{n}(void) {{ return BASE_{dir} + {n}; }}\n"
            );
            fs::write(bed.path(&format!("src/d{dir}/f{n}.c")), text).unwrap();
            writeln!(main, "long f_{dir}_{n}(void);").unwrap();
            write!(calls, " + f_{dir}_{n}()").unwrap();
        }
    }
    writeln!(
        main,
        "int main(void) {{ printf(\"%ld\\n\", 0L{calls}); return 0; }}"
    )
    .unwrap();
    fs::write(bed.path("src/main.c"), main).unwrap();
    let makefile = "DIRS := $(wildcard d*)\nLIBS := $(DIRS:%=lib%.a)\n\
        program: main.c $(LIBS)\n\t$(CC) -O0 -pipe -o $@ $^\n\
        define library\nlib$(1).a: $(patsubst %.c,%.o,$(wildcard $(1)/*.c))\n\trm -f $$@\n\tar rc $$@ $$^\n\
        $(1)/%.o: $(1)/%.c $(1)/base.h\n\t$$(CC) -O0 -pipe -c -o $$@ $$<\nendef\n\
        $(foreach dir,$(DIRS),$(eval $(call library,$(dir))))\n";
    fs::write(bed.path("src/Makefile"), makefile).unwrap();
}

#[test]
fn a_program_is_built_and_runs() {
    if !has("make") || !has("cc") {
        return;
    }
    let Some(bed) = Bed::new(&["-N", "4096"]) else {
        return;
    };
    bed.mount(&[]);
    sources(&bed);
    let dir = bed.path("src");
    let dir = dir.to_str().unwrap();
    let make = |args: &[&str]| {
        within("make", &[&["-s", "-C", dir], args].concat())
            .status
            .code()
    };
    let sum = |base: u64| {
        let each = FILES * (FILES - 1) / 2;
        let bases: u64 = (1..DIRS).map(|dir| dir * 1000).sum();
        format!("{}\n", DIRS * each + FILES * (bases + base))
    };
    let program = bed.path("src/program");
    assert_eq!(make(&["-j4"]), Some(0));
    assert_eq!(said(&program, &[]), sum(0));
    assert_eq!(make(&["-q"]), Some(0), "all is up to date");
    bed.unmount();
    bed.check();
    bed.mount(&[]);
    assert_eq!(make(&["-q"]), Some(0), "all is up to date after a mount");
    assert_eq!(said(&program, &[]), sum(0));
    fs::write(bed.path("src/d0/base.h"), "#define BASE_0 7\n").unwrap();
    assert_eq!(make(&["-q"]), Some(1), "a header has changed");
    assert_eq!(make(&["-j4"]), Some(0));
    assert_eq!(said(&program, &[]), sum(7));
    bed.end();
}
