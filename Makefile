# Two commands for a fresh machine: `make demo` and `make test`. Each makes .venv and installs what it needs.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint types check test-gpu bench-cpu bench-gpu clean

demo: .venv/ready
	$(BIN)/python -m fourward.demo

test: lint types check

lint: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: .venv/ready
	$(BIN)/mypy

check: .venv/ready .venv/browser
	$(BIN)/python -m pytest -q -n 2

# On a card: the contract suite and the large cases, compiled, then the memory checker.
test-gpu: .venv/ready
	$(BIN)/python tools/test_gpu.py

bench-cpu: .venv/ready
	$(BIN)/python -m benchmarks.cpu

# On a card. Without an installation: PYTHONPATH=src python -m benchmarks.gpu, with torch, triton, numpy, networkx and
# numba; ten minutes.
bench-gpu: .venv/ready
	$(BIN)/python -m benchmarks.gpu

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

# Debian's Chromium for the tests of the page, where this user may install it; else those tests are skipped.
.venv/browser: .venv/ready
	@test -n "$$FOURWARD_BROWSER" || command -v chromium >/dev/null || command -v google-chrome >/dev/null || { \
	  test "$$(id -u)" = 0 && apt-get update -qq >/dev/null 2>&1 && \
	  apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null 2>&1; \
	} || echo "no Chromium: the tests of the page are skipped; install it, or name one in FOURWARD_BROWSER"
	@touch $@

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis demo
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
