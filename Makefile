# make demo: set everything up and show the product on embedded data. make test: set everything up and pass the tests.
# Needs Python 3.11+, make and the package index; works in its own virtual environment, .venv.

PYTHON ?= python3
BIN := .venv/bin
# A file's tests run in one process, so that what they share is made once; tests/conftest.py has the long files first.
PYTEST := $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# Tests start many processes, and each starts faster with cached bytecode, whatever the environment says.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test pytest test-light coverage test-portable fuzz lint lint-page docs constraints clean

demo: .venv/installed
	$(BIN)/earmark demo --out demo

# Types are checked while the tests run: a first mypy, without its cache, takes one core about a minute.
test: .venv/installed-dev
	@$(MAKE) --no-print-directory --jobs 2 lint pytest

pytest: .venv/installed-dev
	$(PYTEST)

# Most of the suite, with the extra `test` alone: without Ray, JAX, Keras and the like.
test-light: .venv/installed-test
	$(PYTEST) -m "not slow" -q

# The same, with the share of lines that it runs; raise the floor when it is exceeded by far.
FLOOR ?= 84
coverage: .venv/installed-test
	$(PYTEST) -m "not slow" -q --cov --cov-report=term:skip-covered --cov-fail-under=$(FLOOR)

# The suite as on other processors: PyTorch selects its kernels by ATEN_CPU_CAPABILITY and splits sums over threads.
test-portable: .venv/installed-dev
	@for change in "" ATEN_CPU_CAPABILITY=avx2 ATEN_CPU_CAPABILITY=default OMP_NUM_THREADS=2; do \
		setting="$${change:-ATEN_CPU_CAPABILITY unset}"; \
		echo "Running the tests with $$setting"; \
		env -u ATEN_CPU_CAPABILITY -u OMP_NUM_THREADS $$change $(PYTEST) -q \
			|| { echo "The tests fail with $$setting"; exit 1; }; \
	done

# Hostile input for every reader; MINUTES=5 for less, FUZZ="audio:123" to repeat a case.
MINUTES ?= 30
fuzz: .venv/installed-dev
	PYTHONPATH=tests $(BIN)/python -m fuzz --minutes $(MINUTES) --workers 2 $(FUZZ)

lint: .venv/installed-dev lint-page
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The types of the review page's scripts (JSDoc). TypeScript comes from npm; without it, nothing else is missed.
TYPESCRIPT := 7.0.2
TSC := .venv/typescript-$(TYPESCRIPT)/node_modules/.bin/tsc
lint-page: .venv/created
	@if ! command -v npm > /dev/null; then \
		echo "The types of the review page are not checked: npm was not found"; \
	elif ! [ -x $(TSC) ] && ! npm install --no-audit --no-fund --prefix .venv/typescript-$(TYPESCRIPT) \
			typescript@$(TYPESCRIPT) > /dev/null 2>&1; then \
		echo "The types of the review page are not checked: npm could not install TypeScript"; \
	else \
		echo "$(TSC) --project tsconfig.json" && $(TSC) --project tsconfig.json; \
	fi

# The documentation site, in site/index.html; warnings, such as broken links between pages, are errors.
docs: .venv/installed-docs
	$(BIN)/python -m sphinx --quiet --fresh-env --fail-on-warning --keep-going -b html docs site
	@echo "Documentation: site/index.html"

.venv/created:
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv .venv
	touch $@

.venv/installed: .venv/created pyproject.toml constraints.txt
	@echo "Installing earmark into .venv (about a minute the first time) ..."
	$(INSTALL) -e .
	touch $@

.venv/installed-dev: .venv/created pyproject.toml constraints.txt
	@echo "Installing earmark and its test tools into .venv (some minutes the first time) ..."
	$(INSTALL) -e '.[dev]'
	touch $@ .venv/installed .venv/installed-test

.venv/installed-test: .venv/created pyproject.toml constraints.txt
	$(INSTALL) -e '.[test]'
	touch $@ .venv/installed

.venv/installed-docs: .venv/installed-dev pyproject.toml constraints.txt
	$(INSTALL) -e '.[docs]'
	touch $@

# Write constraints.txt anew from the newest versions that satisfy pyproject.toml; torch stays where it is pinned.
constraints:
	tools/freeze $(PYTHON)

clean:
	rm -rf .venv demo build dist site jupyter_execute .hypothesis .mypy_cache .pytest_cache .ruff_cache
