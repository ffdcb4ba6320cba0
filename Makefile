# SPDX-License-Identifier: Apache-2.0
# demo, test, bench, lint: the front door. Each installs what it lacks by Debian package name.

SHELL := /bin/bash
CARGO ?= cargo

.PHONY: all build demo test bench lint packages

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

bench: build
	@tests/packages run
	@tests/bench

lint: packages
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
