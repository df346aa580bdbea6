# Everything sets itself up: `make demo` and `make test` work on a machine that has Python >= 3.11 and make.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed

.PHONY: demo test test-browser test-services lint format clean
.DELETE_ON_ERROR:

demo: $(INSTALLED)
	$(BIN)/deeplda train

test: lint
	$(BIN)/pytest

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

lint: $(INSTALLED)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(INSTALLED)
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis
