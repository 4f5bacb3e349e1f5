# What a person types here is what CI types (.ci/run calls `make lint` and `make test`).
# Every target first looks for what it needs and installs only what is missing (scripts/setup).

.DEFAULT_GOAL := help
.PHONY: help run test bench lint images setup clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## a real ext4 image made, read, copied out, overwritten and measured; no root
	@scripts/setup run
	@scripts/demo

test: ## format, all tests, small memlock, interleavings, fuzz slices, golden walk
	@scripts/setup test
	@scripts/test

bench: ## every experiment of `diorite bench`, printed and kept in target/bench
	@scripts/setup bench
	@scripts/bench

lint: ## rustfmt, clippy, documentation and cargo-deny, warnings denied
	@scripts/setup lint
	@scripts/lint

images: ## the test images and their manifests in target/images
	@scripts/setup images
	@cargo xtask images

setup: ## install what the other targets need, and say why
	@scripts/setup all

clean: ## remove what was built, and the scratch files of `make run`
	cargo clean
	rm -rf "$${TMPDIR:-/tmp}/diorite-run"
