# Two commands for a fresh machine: `make demo` and `make test`. Each creates .venv and installs what it needs, no more.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

#: What `make quick` runs: the rules of the code base, and the packages that the rest is built on.
QUICK := tests/test_house.py tests/test_language.py tests/graph tests/layering tests/plan tests/nn

.PHONY: demo quick test lint types check docs fuzz test-extras test-gpu bench-cpu bench-gpu clean

demo: .venv/demo
	$(BIN)/python -m fourward.demo

# While working: under a minute on 2 cores.
quick: lint types
	$(BIN)/python -m pytest -q -n 2 --dist worksteal $(QUICK)

# Everything, as CI runs it: 6 to 8 minutes on 2 cores after the installation.
test: lint
	$(MAKE) -j 2 types docs
	$(MAKE) check

lint: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: .venv/ready
	$(BIN)/mypy

check: .venv/ready .venv/browser
	$(BIN)/python -m pytest -q -n 2 --dist worksteal

# Strictly: links, anchors, and that no page makes requests to other sites. Then open site/index.html.
docs: .venv/ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

# Mutated files through every reader, then infinities and NaN through every engine: make fuzz SECONDS=600 SEED=1
SECONDS ?= 60
SEED ?= 0
fuzz: .venv/ready
	$(BIN)/python tools/fuzz.py --seconds $(SECONDS) --seed $(SEED)
	$(BIN)/python tools/fuzz_values.py --seconds $(SECONDS) --seed $(SEED)

# Each extra in a new environment: several minutes and gigabytes. EXTRAS="base plot" tests these two.
test-extras: .venv/ready
	$(BIN)/python -m tools.test_extras $(EXTRAS)

# On a GPU: the contract suite and the large cases, compiled, then the memory checker.
test-gpu: .venv/ready
	$(BIN)/python tools/test_gpu.py

# BENCH="--only real --graphs DIR --before CHECKOUT": real graphs alone, in ten minutes, with circuits and an earlier commit.
bench-cpu: .venv/ready
	$(BIN)/python -m benchmarks.cpu $(BENCH)

# On a GPU: the grid and real graphs, which are written to GRAPHS first; circuits beside them as memctrl.npz and log2.npz are
# measured, too. Without an installation: PYTHONPATH=src python -m benchmarks.gpu, with torch, triton, numpy, scipy, networkx
# and numba. Ten minutes.
GRAPHS ?= build/graphs
bench-gpu: .venv/ready
	$(BIN)/python -m benchmarks.gpu
	$(BIN)/python -m benchmarks.real_graphs $(GRAPHS)
	$(BIN)/python -m benchmarks.gpu_real --graphs $(GRAPHS)

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/demo: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) --no-compile -e '.[demo]' # Python compiles what the demo imports
	touch $@

.venv/ready: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) -e '.[dev]'
	touch .venv/demo $@

# Debian's Chromium for the tests of the page, where this user may install it; else those tests are skipped.
.venv/browser: .venv/ready
	@test -n "$$FOURWARD_BROWSER" || command -v chromium >/dev/null || command -v google-chrome >/dev/null || { \
	  test "$$(id -u)" = 0 && apt-get update -qq >/dev/null 2>&1 && \
	  apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null 2>&1; \
	} || echo "no Chromium: the tests of the page are skipped; install it, or name one in FOURWARD_BROWSER"
	@touch $@

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis demo site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
