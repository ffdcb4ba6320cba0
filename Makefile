# SPDX-License-Identifier: Apache-2.0
# demo, test, bench, lab, lint: the front door. Each installs what it lacks by Debian package name.

SHELL := /bin/bash
CARGO ?= cargo

.PHONY: all build demo test bench bench-baseline lab lint packages

all: build

packages:
	@tests/packages build

build: packages
	$(CARGO) build --release -p sluice -p tests

# `make demo KEEP=1` keeps serving until Ctrl-C.
demo:
	@tests/packages run || echo "demo: going on with what is there"
	$(CARGO) build --release -p sluice -p tests
	@$${CARGO_TARGET_DIR:-target}/release/demo $(if $(KEEP),--keep)

test:
	@tests/packages test
	@tests/run

# `make bench QUICK=1` is one short round.
bench: build
	@tests/packages run
	@tests/bench $(if $(QUICK),--quick)

# What tests/gate compares instruction counts with, after a change that is worth more of them.
bench-baseline:
	@tests/packages test
	@tests/gate --update

# The published cases beside ours: docs/lab-results.md and a page under target/lab. Exits 1 while any cell is outside its
# band, as some are: the page says which and why.
lab: build
	@$${CARGO_TARGET_DIR:-target}/release/sluice lab paper --html target/lab --json target/lab.json \
	  --markdown docs/lab-results.md --date "$$(date +%F)" --commit "$$(git rev-parse --short HEAD)"

lint: packages
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
