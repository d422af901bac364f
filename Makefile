# What a person types. Everything is done by cargo and the scripts.
.PHONY: build demo test setup suite simulate check bpf clean

# Where rustup puts cargo, and where Debian keeps tools like `ip`.
export PATH := $(PATH):/usr/sbin:/sbin:$(HOME)/.cargo/bin

build:
	@scripts/setup rust
	cargo build --release --workspace

# Builds, serves a site from an unmodified nginx on Skink, and shows what happened.
demo:
	@scripts/setup rust demo
	cargo build --release --workspace
	@target/release/demo

# Everything that must hold.
test:
	@scripts/setup rust test
	@scripts/test

# Installs what the tests need, or says what is missing.
setup:
	@scripts/setup rust test

# Parts of `make test`: FILTER="xdp nginx" picks cases, SEEDS says how many simulations.
suite: build
	target/release/end-to-end $(FILTER)

simulate:
	cargo run --release --package skink-simulator -- --seeds $(or $(SEEDS),10000)

check:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

# Compiles the programs that run in the kernel anew (needs clang and libbpf's headers).
bpf:
	runtime/steering/bpf/build.sh

clean:
	cargo clean
