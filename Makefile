# make build | test | demo | lint | models | bench | bench-overhead | sanitize | clean
#
# PYTHON names an interpreter that already has torch and the tools (`make test PYTHON=python3.11`); without it a
# virtual environment .venv is made with everything needed. BUILD is the build folder, so that several builds can
# live side by side.

BUILD ?= build
BASE_PYTHON ?= python3.11
PACKAGES = torch==2.13.0 numpy transformers pytest pytest-xdist hypothesis expecttest rich meson ninja meson-python

ifdef PYTHON
ENV_READY =
else
PYTHON = $(CURDIR)/.venv/bin/python
ENV_READY = .venv/ready
endif

# Tools such as ninja are looked for beside the interpreter first.
export PATH := $(dir $(PYTHON)):$(PATH)
export PYTHONPATH := $(CURDIR)/python
# Kernels that tests compile do not belong among the user's.
export KINTSUGI_CACHE_DIR ?= $(abspath $(BUILD))/kernels
MESON = $(PYTHON) -m mesonbuild.mesonmain

.PHONY: wheel faults docs gpu op-suite op-table build oracle every-k test fuzz-kernels bench-kernels bench-sizes test-aarch64 test-c test-matrix test-py test-watch demo documents models fullgraph settings libraries bench bench-mkl bench-overhead lint sanitize clean

build: $(ENV_READY)
	@PYTHON=$(PYTHON) tools/dev_build.sh $(BUILD)

.venv/ready:
	$(BASE_PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --upgrade pip
	.venv/bin/python -m pip install --quiet $(PACKAGES)
	touch $@

test: lint test-c build
	@tools/run_tests.sh $(PYTHON) $(BUILD)

test-c: $(ENV_READY)
	@PYTHON=$(PYTHON) tools/test_c.sh $(BUILD)-c

# Random tensor programs, compiled, against the interpreter: make fuzz-kernels SEED=7 COUNT=2000
SEED ?= 1
COUNT ?= 1000
fuzz-kernels: test-c
	$(BUILD)-c/tests/c/test_fuzz_kernels $(SEED) $(COUNT)

# PyTorch's operator database, compiled with kernels against eager; SHARD=2/12 is a part (numbered from 0).
op-suite: build
	OMP_NUM_THREADS=1 $(PYTHON) tests/kernels/op_suite.py --samples $(or $(SAMPLES),3) --shard $(or $(SHARD),0/1)

# The same as a report: docs/ops.md (some ten minutes).
op-table: build
	OMP_NUM_THREADS=1 $(PYTHON) tests/kernels/op_suite.py --samples $(or $(SAMPLES),2) --table docs/ops.md

test-py: build
	OMP_NUM_THREADS=1 $(PYTHON) -m pytest -q $(wildcard $(addprefix tests/,py diagnostics kernels lower training guardeval corpus diff models rules oracle seeds shape))

# A share of the tests with each pair of CPython and torch that is named; writes docs/versions.json and docs/versions.md:
# make test-matrix ARGS="--venv 3.12=2.13.0 --root trixie --root forky"; without ARGS, the interpreter at hand.
test-matrix: $(ENV_READY)
	$(PYTHON) tools/test_matrix.py $(ARGS)

test-watch: $(ENV_READY)
	@$(PYTHON) tests/watch/run.py $(BUILD)-watch

# Each case of the corpus, left before every step in turn (`make test` tries two steps of each); SHARD=2/8 is the second eighth.
every-k: build
	OMP_NUM_THREADS=1 KIN_SHARD=$(SHARD) $(PYTHON) -m pytest -q tests/corpus/test_corpus.py --every-k -k forced_exits

oracle: build
	OMP_NUM_THREADS=1 KIN_ORACLE_CHANGES=$${KIN_ORACLE_CHANGES:-0} KIN_ORACLE_FUZZ=$${KIN_ORACLE_FUZZ:-50} \
	KIN_ORACLE_MODELS="$${KIN_ORACLE_MODELS:-all}" $(PYTHON) -m pytest -q tests/oracle

# Cross-compiled for aarch64 and run under qemu: src/core's tests (some minutes; KIN_AARCH64_TESTS="test_ir test_store" are a few of them), then a share
# of the Python tests with Debian's CPython, if PYTHON is of its version, and a PyTorch from PyPI.
test-aarch64: $(ENV_READY)
	@PYTHON=$(PYTHON) tools/test_aarch64.sh $(BUILD)-aarch64

# Wheels for the interpreters that are there (dist/), LLVM inside, this one tried in a fresh environment: ARGS="--python 3.12 --try none".
wheel: $(ENV_READY)
	tools/need_llvm.sh
	$(PYTHON) tools/make_wheels.py $(ARGS)

# The documentation as a site, build/site/index.html; needs no network to be read. What draws it, if PYTHON does not have it, goes into a
# folder of its own: nothing is installed into PYTHON's environment.
DOCS_ENV = $(BUILD)-docs
docs: build
	@$(PYTHON) -c 'import material' 2>/dev/null || test -e $(DOCS_ENV)/ready || \
	  { $(PYTHON) -m pip install --quiet --target $(DOCS_ENV) mkdocs-material && touch $(DOCS_ENV)/ready; }
	PYTHONPATH=$(CURDIR)/python:$(abspath $(DOCS_ENV)) $(PYTHON) tools/make_docs.py $(BUILD)

# The programs of four texts on torch.compile, as they stand, under Kintsugi and stock: docs/documents.md (some ten minutes).
documents: build
	$(PYTHON) tools/documents.py --docs docs/documents.md $(ARGS)

demo: build
	$(PYTHON) -m kintsugi.demo

models: build
	$(PYTHON) tests/models/run_models.py $(ARGS)

# What fullgraph=True accepts, here and in stock; writes docs/fullgraph.md and docs/fullgraph.json.
fullgraph: build
	PYTHONPATH=python $(PYTHON) tools/fullgraph.py

# Every name of PyTorch's own settings and what becomes of it; writes docs/settings.md.
settings: build
	PYTHONPATH=python $(PYTHON) tools/settings.py

# Libraries as their READMEs use them, against eager; writes docs/libraries.md. The libraries come from PYTHON's environment.
libraries: build
	PYTHONPATH=python $(PYTHON) tools/libraries.py --docs docs/libraries.md

# On a machine with a GPU, with the kintsugi that PYTHON has installed (docs/design/gpu.md).
gpu:
	env -u PYTHONPATH $(PYTHON) tests/gpu/check.py --minutes 15 --json $(BUILD)/gpu.json $(ARGS)

# Everything, with stock, in 28 minutes on two idle cores; rows for which there is no time say so, ARGS=--resume goes on.
# ARGS="--rows mlp --quick" is short.
bench: build
	$(PYTHON) -m kintsugi bench --minutes 28 --json docs/bench.json --docs docs --second docs/bench-mkl.json $(ARGS)

# The same where MKL takes the code it keeps for Intel's processors, for the second table of docs/bench.md; then the page anew.
bench-mkl: build
	$(PYTHON) -m kintsugi bench --minutes 28 --mkl-fast-path --no-first --json docs/bench-mkl.json $(ARGS)
	$(PYTHON) -m kintsugi bench --report docs/bench.json --docs docs --second docs/bench-mkl.json

# Ten minutes on an idle machine; ARGS=--quick for less.
bench-overhead: build
	$(PYTHON) bench/overhead.py --minutes 9 --json docs/overhead.json --docs docs/overhead.md $(ARGS)

# Programs whose sizes keep changing; ARGS="--quick" is the share of continuous integration, ARGS="--stock" adds torch.compile.
bench-sizes: build
	$(PYTHON) bench/sizes.py $(ARGS)

bench-kernels: build
	$(PYTHON) -m ninja -C $(BUILD) bench/bench_kernels >/dev/null || ninja -C $(BUILD) bench/bench_kernels >/dev/null
	$(BUILD)/bench/bench_kernels

lint: $(ENV_READY)
	$(PYTHON) tools/check_layers.py
	$(PYTHON) tools/check_headers.py
	$(PYTHON) tools/gen_opcodes.py --check
	$(PYTHON) tools/check_breaks.py
	$(PYTHON) tools/check_tree.py
	$(PYTHON) tools/gen_tiering.py --check
	$(PYTHON) tools/gen_aten_index.py --check

# The extension under ASan and UBSan; the interpreter needs the sanitizer's library loaded first.
sanitize: $(ENV_READY)
	@PYTHON=$(PYTHON) tools/sanitize.sh $(BUILD)-asan

# Random programs with the extension in which allocations, calls of LLVM and writes to disk fail: always eager's result.
faults: $(ENV_READY)
	@mkdir -p $(BUILD)-faults/python && cp -r python/kintsugi $(BUILD)-faults/python/ && rm -f $(BUILD)-faults/python/kintsugi/*.so
	@PYTHON=$(PYTHON) PLACE=$(BUILD)-faults/python/kintsugi tools/dev_build.sh $(BUILD)-faults -Dfaults=true
	PYTHONPATH=$(BUILD)-faults/python OMP_NUM_THREADS=1 $(PYTHON) tests/diff/fuzz_faults.py $(ARGS)

clean:
	rm -rf $(BUILD) $(BUILD)-c $(BUILD)-docs $(BUILD)-watch $(BUILD)-asan $(BUILD)-faults python/kintsugi/*.so
