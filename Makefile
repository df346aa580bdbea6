# Everything sets itself up: `make demo` and `make test` work on a machine that has Python >= 3.11 and make.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed

.PHONY: demo test test-browser test-services test-faults fuzz lint format docs clean
.DELETE_ON_ERROR:

demo: $(INSTALLED)
	$(BIN)/deeplda train

# A worker a core, the tests of a file together, so that what they share is made once.
test: lint
	$(BIN)/pytest --numprocesses auto --dist loadfile

# In Debian's Chromium, fetched where it is missing and may be; without it the tests fail, they are not passed over.
test-browser: $(INSTALLED)
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null \
	|| { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq \
	&& DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends chromium chromium-driver; } \
	|| { echo "the browser tests need chromium and chromedriver: apt-get install chromium chromium-driver" >&2; exit 1; }
	$(BIN)/pytest tests/browser

# On Debian's PostgreSQL, fetched where it is missing and may be; the tests start and stop a server of their own.
test-services: $(INSTALLED)
	@command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 \
	|| { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq \
	&& DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends postgresql; } \
	|| { echo "the tests of services need PostgreSQL's server: apt-get install postgresql" >&2; exit 1; }
	$(BIN)/pytest tests/services

# Kills, full disks, read-only folders, a clock that jumps: minutes; as root on a small disk that is mounted for it.
test-faults: $(INSTALLED)
	$(BIN)/pytest --capture=no tests/slow_faults

# So many files that lie for each of twenty readers, other ones each time; `make test` has 500 that stay the same.
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

# Pages in docs/_build; a warning is an error, and nothing is fetched.
docs: $(INSTALLED)
	$(BIN)/sphinx-build --fail-on-warning --quiet --builder html docs docs/_build

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis docs/_build
