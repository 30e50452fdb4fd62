# The commands of the project; `make help` lists them. Everything is built by cargo; scripts/setup brings the tools.

.PHONY: sim test guest-test guest-bench fio fuzz bench clean distclean help
.DEFAULT_GOAL := help

GUEST_TEST = cargo test --locked --test guest -- --ignored --test-threads 1

sim: ## Set up, build, and run jobs/demo.fio on the simulated card
	scripts/setup
	cargo build --locked --release
	cargo run --locked --release --quiet -- sim jobs/demo.fio

test: ## Set up (proof tools too), then format check, clippy and all tests, the guest's too where a guest can be had
	scripts/setup formal
	scripts/setup-fio
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo test --locked --workspace --no-fail-fast
	@if scripts/setup-guest; then $(GUEST_TEST); \
	else echo "make test: WITHOUT the tests in a QEMU guest, for the reason above; make guest-test runs them alone"; fi

guest-test: ## Fetch the guest (once), then the tests under QEMU: Linux's nvme driver, ours by VFIO, and a guest that dies
	scripts/setup
	scripts/setup-guest
	$(GUEST_TEST)

fio: ## Real fio on the host, over NBD, on the simulated card: fio's output and the card's statistics
	scripts/setup
	scripts/setup-fio
	cargo build --locked --release
	scripts/fio-on-card

FUZZ_TIME ?= 600
fuzz: ## Random messages, commands and completions, FUZZ_TIME seconds each (600)
	scripts/setup
	WEIR_FUZZ_SECONDS=$(FUZZ_TIME) cargo test --locked --test serve random_messages -- --nocapture
	WEIR_FUZZ_SECONDS=$(FUZZ_TIME) cargo test --locked --test fuzz_commands -- --nocapture
	WEIR_FUZZ_SECONDS=$(FUZZ_TIME) cargo test --locked --package weir-driver --test fuzz -- --nocapture

guest-bench: ## Guest instructions an I/O: our driver, Linux's nvme, and Linux's own accounting (docs/cost.md)
	scripts/setup
	scripts/setup-guest
	cargo bench --locked --bench guest_cost -- --only own,accounting,card

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
