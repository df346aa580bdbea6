# Every target creates .venv if it is missing, so `make demo` and `make test` need only Python >= 3.11 and make.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed

.PHONY: demo test test-fast coverage test-browser test-services test-faults test-hosts fuzz lint format docs clean
.DELETE_ON_ERROR:

demo: $(INSTALLED)
	$(BIN)/deeplda train

# One worker per core. The tests in a file stay together because they share fixtures that are slow to build.
test: lint
	$(BIN)/pytest --numprocesses auto --dist loadfile

# Tests the mathematics, losses, predictors and estimators in under two minutes on two cores.
test-fast: $(INSTALLED)
	$(BIN)/pytest --numprocesses auto tests/core tests/test_losses.py tests/predictors tests/classical $(wildcard tests/estimators tests/test_estimator*.py)

# The tests of `make test`, slowed down by counting the lines of src that they run. Fails below 95 %.
coverage: $(INSTALLED)
	$(BIN)/pytest --numprocesses auto --dist loadfile --cov

# Needs Chromium, which is installed if it is missing and you are root on Debian. Without it, the tests fail rather
# than being skipped.
test-browser: $(INSTALLED)
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null \
	|| { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq \
	&& DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends chromium chromium-driver; } \
	|| { echo "the browser tests need chromium and chromedriver: apt-get install chromium chromium-driver" >&2; exit 1; }
	$(BIN)/pytest tests/browser

# Needs PostgreSQL, which is installed if it is missing and you are root on Debian. The tests start and stop their own
# server.
test-services: $(INSTALLED)
	@command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 \
	|| { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq \
	&& DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends postgresql; } \
	|| { echo "the service tests need the PostgreSQL server: apt-get install postgresql" >&2; exit 1; }
	$(BIN)/pytest tests/services

# Simulates kills, full disks, read-only folders and clock jumps. Takes minutes; some tests mount a small disk and
# therefore need root.
test-faults: $(INSTALLED)
	$(BIN)/pytest --capture=no tests/slow_faults

# Trains on two hosts, which are network namespaces of this machine, and cuts the link between them. Needs root and the
# command ip, of which the package iproute2 is installed if it is missing on Debian.
test-hosts: $(INSTALLED)
	@command -v ip >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq \
	&& DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends iproute2; } \
	|| { echo "the tests with two hosts need the command ip: apt-get install iproute2" >&2; exit 1; }
	$(BIN)/pytest tests/hosts

# The number of new malformed files for each reader; `make test` always uses the same 500.
EXAMPLES ?= 20000
fuzz: $(INSTALLED)
	DEEPLDA_FUZZ_EXAMPLES=$(EXAMPLES) $(BIN)/pytest --numprocesses auto tests/fuzz

lint: $(INSTALLED)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(INSTALLED)
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

# Writes to docs/_build. Warnings are errors, and the build needs no network.
docs: $(INSTALLED)
	$(BIN)/sphinx-build --fail-on-warning --quiet --builder html docs docs/_build

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage .coverage.* docs/_build
