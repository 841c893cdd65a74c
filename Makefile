# Needs Python 3.11+ (with venv) and make; everything else is installed into .venv.

PYTHON ?= python3
# One more than there are cores: many tests wait for processes, leases and clocks.
JOBS   ?= $(shell $(PYTHON) -c "import os; print((os.cpu_count() or 1) + 1)")
ARGS   ?=

VENV := .venv
BIN  := $(VENV)/bin
RUN  := $(VENV)/.installed
DEV  := $(VENV)/.installed-dev
PIP  := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.DEFAULT_GOAL := help
.PHONY: help install demo test check house format bench load faults properties pooler postgres clean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name what; do \
		printf '  make %-10s %s\n' "$$name" "$$what"; done

install: $(DEV) ## Create .venv with everything development needs

demo: $(RUN) ## Orders with a killed worker, vendors with a killed service, an invoice on its contract, an approval over HTTP; SERVE=1 leaves the server running
	@$(BIN)/python examples/order.py $(ARGS)
	@$(BIN)/python examples/machines_services.py
	@$(BIN)/python examples/contracts_invoice.py
	@$(BIN)/python examples/steps_approval.py $(if $(SERVE),--serve --port 8080)

test: check ## Lint, types, layers, then all tests
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(ARGS)

check: $(DEV) ## Lint, format, types and layers, without running anything
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

house: $(DEV) ## Measure the sources: sizes, siblings, cycles, kinds outside their table, docstrings against the rule
	@$(BIN)/python -m tests.house $(ARGS)

format: $(DEV) ## Let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(DEV) ## Measure against the bars; writes build/bench.json and the figures in docs/benchmarks.md
	@$(BIN)/python -m benchmarks $(ARGS)

load: $(DEV) ## 200 clients for 30 s against a server and a worker; fails on a 5xx, a wrong step, a history or stream out of order, growth
	@$(BIN)/python -m benchmarks.load $(ARGS)

faults: properties ## The proof: long properties, then kills, crashes and freezes; writes build/faults.json, docs/reliability.md
	@$(BIN)/python -m faults $(ARGS)

properties: $(DEV) ## The long profile: property tests by the hundred thousand, sagas by the thousand, plans at a million rows
	HOLDFAST_PROFILE=long $(BIN)/python -m pytest -n $(JOBS) tests/core tests/doors/envelope tests/runtime/test_model.py
	HOLDFAST_PROFILE=long $(BIN)/python -m pytest tests/server/test_schemathesis.py tests/server/test_hostile_input.py
	HOLDFAST_PROFILE=long $(BIN)/python -m pytest tests/sagas/test_random_sagas.py tests/runtime/test_two_processes.py
	HOLDFAST_PROFILE=long $(BIN)/python -m pytest -n $(JOBS) tests/machines/test_random_offices.py tests/machines/test_claim_plans.py
	HOLDFAST_FAST_PATHS=0 $(BIN)/python -m pytest -n $(JOBS) tests/sagas tests/runtime/test_model.py
	HOLDFAST_PROFILE=long $(BIN)/python -m pytest tests/store/test_plans.py tests/store/test_priorities.py tests/store/test_task_rows.py

pooler: $(DEV) ## Run the pooler tests against PgBouncer, fetched on Debian and Ubuntu if it is not installed
	@$(BIN)/python tests/poolers/fetch.py
	HOLDFAST_POOLER=pgbouncer $(BIN)/python -m pytest tests/poolers $(ARGS)

postgres: $(DEV) ## Store and runtime on another PostgreSQL: that of HOLDFAST_TEST_DSN, or those below /usr/lib/postgresql
	$(BIN)/python tests/on_postgres.py -n $(JOBS) --dist worksteal $(or $(ARGS),tests/store tests/runtime)

clean: ## Stop servers started below build/, remove caches and build results (not .venv)
	@if test -x $(BIN)/python; then $(BIN)/python -c "$$STOP_BUILD_SERVERS"; fi
	rm -rf build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests examples benchmarks faults -name __pycache__ -type d -prune -exec rm -rf {} +

define STOP_BUILD_SERVERS
from pathlib import Path
for mark in Path("build").glob("*/holdfast-embedded"):
    from holdfast.store import embedded
    embedded.stop(mark.parent)
endef
export STOP_BUILD_SERVERS

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Holdfast needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(RUN): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable '.[api]'
	@touch $@

$(DEV): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable '.[dev]'
	@touch $@ $(RUN)
