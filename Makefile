# The commands of the project; `make help` lists them. Everything is built by cargo; scripts/setup brings the tools.

.PHONY: sim test guest-test bench clean distclean help
.DEFAULT_GOAL := help

sim: ## Set up, build, and run jobs/demo.fio on the simulated card
	scripts/setup
	cargo build --locked --release
	cargo run --locked --release --quiet -- sim jobs/demo.fio

test: ## Set up (proof tools too), then format check, clippy and all tests
	scripts/setup formal
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo test --locked --workspace --no-fail-fast

guest-test: ## Fetch the guest (once), then the tests under QEMU: Linux's nvme driver, ours by VFIO, and a guest that dies
	scripts/setup
	scripts/setup-guest
	cargo test --locked --test guest -- --ignored --test-threads 1 own

bench: ## The benchmarks whose figures the README gives
	scripts/setup formal
	cargo bench --locked --workspace --bench '*'

clean: ## Remove what was built, cached models too; the tools stay
	cargo clean
	rm -rf .tools/cache/verilated

distclean: clean ## Remove the tools too
	rm -rf .tools

help: ## List the commands
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1	\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 18
