# `make demo` and `make test` are the two commands of the README; both work from a fresh clone.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test acceptance chaos chaos-short bench install lock lint docs clean

install: $(STAMP)

# The lock pins every package by hash; the project itself is installed on top, editable, with the locked builder.
$(STAMP): requirements.lock pyproject.toml
	@echo "installing into $(VENV), which takes a minute or two …"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

lock:
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-header --no-emit-index-url \
	  --no-emit-find-links --generate-hashes --no-strip-extras --all-extras --group dev -o requirements.lock pyproject.toml

demo: install
	$(BIN)/rung demo

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m schemas.generate --check
	$(BIN)/python -m deploy.docs --check

# The tests start their own servers, one Kafka and one PostgreSQL for each of the workers; nothing needs to run before.
WORKERS ?= 2
test: lint
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(PYTEST_ARGS)

# The acceptance test by itself; `ENGINE=faust` runs it, and the crash suite, with the processor on the other engine.
ENGINE ?= quix
acceptance: install
	$(BIN)/python -m pytest tests/acceptance --engine $(ENGINE) $(PYTEST_ARGS)

# The crash suite: every crash point once and the quick faults in its short form; the long form takes about an hour,
# prints its table and writes it to chaos.md.
chaos-short: install
	$(BIN)/python -m pytest tests/chaos --engine $(ENGINE) -p no:randomly -s $(PYTEST_ARGS)

chaos: install
	$(BIN)/python -m pytest tests/chaos --chaos=long --engine $(ENGINE) -p no:randomly -s $(PYTEST_ARGS)

# Each part beside a baseline of the same run; `BENCH="outbox journal"` runs some of them.
bench: install
	$(BIN)/python -m tests.benchmarks --json bench.json $(BENCH)

docs: install
	$(BIN)/python -m schemas.generate
	$(BIN)/python -m deploy.docs

clean:
	rm -rf $(VENV) .rung .pytest_cache .mypy_cache .ruff_cache .hypothesis
