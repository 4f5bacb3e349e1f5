# People and CI use the same targets (.ci/run calls `make lint` and `make test`).
# Every target first looks for what it needs and installs only what is missing (scripts/setup).

.DEFAULT_GOAL := help
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
# Programs that the command takes the place of under their names, in a directory of its own.
STAND_INS = $(shell scripts/dist stand-ins)
.PHONY: help run test quick bench mutants lint packages least api guest images man book install fio-engine dist deb setup clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## a real ext4 image made, read, copied out, overwritten and measured; no root; V=1 for all that it prints
	@scripts/demo

test: ## format, all tests, small memlock, interleavings, golden walk, power cuts, fuzz slices
	@scripts/setup test
	@scripts/test $(PARTS)

quick: ## format, clippy, the unit tests and some of the whole: minutes, for each change
	@scripts/setup quick
	@scripts/test format quick

bench: ## the experiments of `diorite bench`, printed and kept in target/bench
	@scripts/setup bench
	@scripts/bench

lint: ## rustfmt, clippy, documentation, packages and cargo-deny, warnings denied
	@scripts/setup lint
	@scripts/lint

packages: ## packs every crate and compiles each package alone, as `cargo publish --dry-run` does: minutes
	@scripts/setup packages
	@scripts/packages verified

least: ## the oldest versions of dependencies that Cargo.toml permits suffice: minutes
	@scripts/setup least
	@scripts/least

api: ## what of the public API has changed since the last tag, or since BASE=, and whether that breaks programs
	@scripts/setup api
	@scripts/api $(BASE)

mutants: ## changes to the code that no test notices, in the modules that hold data: hours, FILES= for some
	@scripts/setup mutants
	@scripts/mutants $(FILES)

guest: ## a Debian kernel boots in QEMU from an NBD export, and is killed with it; WHAT=polled: NVMe disks that are polled: minutes, no root
	@scripts/setup guest
	@scripts/guest $(WHAT)

images: ## the test images and their manifests in target/images
	@scripts/setup images
	@cargo xtask images

man: ## man pages and shell completions in target/man and target/completions
	@cargo run --quiet --release -p diorite-cli -- generate man target/man
	@cargo run --quiet --release -p diorite-cli -- generate completions target/completions

book: ## the book in target/book, with a page for each command (mdbook)
	@scripts/setup book
	@scripts/book

install: man ## the command, its man pages and completions (bash, zsh, fish), and libdiorite, under PREFIX (default /usr/local)
	@scripts/library build
	scripts/library install "$(DESTDIR)" "$(PREFIX)" "$(LIBDIR)"
	install -D -m 755 target/release/diorite "$(DESTDIR)$(PREFIX)/bin/diorite"
	install -d "$(DESTDIR)$(PREFIX)/share/man/man1"
	install -m 644 target/man/*.1 "$(DESTDIR)$(PREFIX)/share/man/man1"
	install -D -m 644 target/completions/diorite.bash "$(DESTDIR)$(PREFIX)/share/bash-completion/completions/diorite"
	install -D -m 644 target/completions/_diorite "$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_diorite"
	install -D -m 644 target/completions/diorite.fish "$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/diorite.fish"
	install -d "$(DESTDIR)$(PREFIX)/lib/diorite"
	for program in $(STAND_INS); do ln -sf ../../bin/diorite "$(DESTDIR)$(PREFIX)/lib/diorite/$$program" || exit; done

dist: ## a static binary (musl) in an archive with man pages, completions and licences, in target/dist
	@scripts/setup dist
	@scripts/dist

fio-engine: ## an external engine of fio over libdiorite, built against the headers of the installed fio: target/fio/fio-diorite.so
	@scripts/fio-engine

deb: ## a Debian package of the same binary, and libdiorite, in target/dist
	@scripts/setup deb
	@scripts/dist deb

setup: ## install what the other targets need, and say why
	@scripts/setup all

clean: ## remove what was built, and the scratch files of `make run`
	cargo clean
	rm -rf fuzz/target
	rm -rf "$${TMPDIR:-/tmp}/diorite-run"
