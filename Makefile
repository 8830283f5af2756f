# What to build and how is in scripts/; this file only names it.
PYTHON ?= python3
VENV_PYTHON := .venv/bin/python
# Given to pytest by 'make test' and 'make check', for example PYTEST_ARGS='-k conv'.
PYTEST_ARGS ?=
# Two workers that run programs of several threads share the processors: threads that wait must not keep them busy.
PYTEST := OMP_WAIT_POLICY=passive $(VENV_PYTHON) -m pytest -n 2 $(PYTEST_ARGS)

# ninja uses all processors by itself.
.NOTPARALLEL:

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: venv
venv: ## Set up .venv with all that the build, tests and benchmarks need
	@$(PYTHON) scripts/setup_venv.py --dev

.PHONY: build-venv
build-venv:
	@$(PYTHON) scripts/setup_venv.py

.PHONY: sd-cli
sd-cli: build-venv ## Build build/bin/sd-cli (SDCPP_SRC=DIR takes a checkout of your own)
	@$(VENV_PYTHON) scripts/build.py sd-cli

.PHONY: native
native: build-venv ## Build the runtime alone, as a shared library, with what the tests need
	@$(VENV_PYTHON) scripts/build.py native

.PHONY: baseline
baseline: build-venv ## Build the same sources unpatched, to compare with, in three configurations
	@$(VENV_PYTHON) scripts/build.py baseline baseline-llamafile baseline-avx2

.PHONY: lint
lint: venv ## Check the Python code with ruff and mypy
	$(VENV_PYTHON) -m ruff check .
	$(VENV_PYTHON) -m ruff format --check .
	$(VENV_PYTHON) -m mypy

.PHONY: check
check: lint native sd-cli ## Run the quick tests
	$(PYTEST) -m "not slow"

.PHONY: test
test: lint native sd-cli ## Run all tests
	$(PYTEST)
	@$(VENV_PYTHON) scripts/test_ggml.py

.PHONY: test-ggml
test-ggml: build-venv ## Run ggml's own tests of the operations that the kernels take
	@$(VENV_PYTHON) scripts/test_ggml.py

.PHONY: sanitize
sanitize: build-venv ## Run the tests of graphs with the runtime compiled for the address and undefined behaviour sanitizers
	@$(VENV_PYTHON) scripts/sanitize.py

.PHONY: demo
demo: venv sd-cli ## Make one picture with ggml's kernels and with these (MODEL=PATH takes a checkpoint of your own)
	@$(VENV_PYTHON) bench/demo.py $(if $(MODEL),--model '$(MODEL)')

.PHONY: sdgen-bench
sdgen-bench: build-venv ## Build build/bin/sdgen-bench, which times kernels and operations
	@$(VENV_PYTHON) scripts/build.py sdgen-bench

.PHONY: bench-upstream
bench-upstream: build-venv ## Build what sdgen-bench's forms upstream, upstream-llamafile and upstream-avx2 run: ggml's own kernels
	@$(VENV_PYTHON) scripts/build.py bench-upstream bench-upstream-llamafile bench-upstream-avx2

.PHONY: bench
bench: venv sd-cli baseline bench-upstream ## Time kernels and operations against the FMA peak (BENCH_ARGS='--forms assembly,upstream'), then whole pictures against the unpatched builds
	@$(VENV_PYTHON) scripts/build.py sdgen-bench
	@build/bin/sdgen-bench --threads 1 $(BENCH_ARGS)
	@build/bin/sdgen-bench $(BENCH_ARGS)
	@$(VENV_PYTHON) bench/compare.py $(if $(MODEL),--model '$(MODEL)')

.PHONY: bench-attention
bench-attention: venv ## Measure attention through ggml's API, beside the unpatched builds (BENCH_ARGS=--quick for a short version)
	@$(VENV_PYTHON) bench/attention.py $(BENCH_ARGS)

# What cannot be installed bench/peers.py leaves out.
.PHONY: peers
peers: venv sd-cli baseline ## Time a step and the VAE in OpenVINO and PyTorch as well (1.3 GB; PEERS_ARGS='--level avx2')
	@$(PYTHON) scripts/setup_venv.py --peers || true
	@$(VENV_PYTHON) bench/peers.py $(PEERS_ARGS)

.PHONY: clean
clean: ## Remove what was built, but for .venv and the downloads
	@find build -mindepth 1 -maxdepth 1 ! -name download -exec rm -rf {} + 2>/dev/null || true
