# `make` prints what there is.
.DEFAULT_GOAL := help
.PHONY: help setup demo dev test test-unit test-oldest test-all lint types imports contracts servers browser bench drill pins clean

BIN := .venv/bin
INSTALLED := .venv/.installed
MEMBERS := $(wildcard pyproject.toml contracts/pyproject.toml services/*/pyproject.toml examples/*/pyproject.toml)
SHORT := not soak and not bench and not browser
SOURCES := src contracts services examples tests

help: ## print this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1	\2/p' Makefile | expand -t 18

setup: $(INSTALLED) ## make .venv with everything installed (the others call it)

$(INSTALLED): requirements/all.txt $(MEMBERS) deploy/local/setup.sh
	@deploy/local/setup.sh
	@touch $@

demo: setup ## the whole journey on real servers, with faults, and its facts checked
	@$(BIN)/python -m invoices.demo

dev: setup ## the stack in the foreground, restarted on change; Ctrl-C ends all of it
	@$(BIN)/python -m filaviva.dev --app invoices.app:app --reload

test: setup lint types imports contracts servers ## everything CI runs
	@$(BIN)/pytest -n 3 --dist loadfile -m "not alone and $(SHORT)"
	@$(BIN)/pytest -m "alone and $(SHORT)"

test-unit: setup ## the tests that need no server
	@$(BIN)/pytest tests/unit

test-oldest: setup servers ## what asks PostgreSQL, on the oldest that is supported
	@$(BIN)/pytest --postgres 15 -n 3 --dist loadfile -m "not alone and $(SHORT)" tests/integration

test-all: setup lint types imports contracts servers browser test-oldest ## everything, also what is long or measures
	@$(BIN)/pytest

lint: setup ## rules and format
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/ruff format --check $(SOURCES)

types: setup ## mypy, strict
	@$(BIN)/mypy

imports: setup ## who may import whom
	@$(BIN)/lint-imports

contracts: setup ## what is released stays readable: our own messages, and the example's
	@$(BIN)/filaviva contracts check --project contracts
	@$(BIN)/filaviva contracts check --project examples/invoices

servers: setup ## install what the tests need: RabbitMQ of the machine and 4.3, Prometheus, Node.js
	@$(BIN)/python -m filaviva.dev.prepare
	@deploy/local/typescript.sh || [ -z "$$CI" ] # only the tests of the example ask for it

browser: ## install the browser that `make test-all` drives
	@deploy/local/browser.sh

bench: setup ## measure, with raw loops as the yardstick
	@PYTHONPATH=tests $(BIN)/python -m benchmarks

drill: setup ## cut a provider for two minutes on the stack that runs here (else on one of its own)
	@$(BIN)/filaviva drill --start --app invoices.app:app

pins: setup ## compile requirements/all.txt anew (needs uv)
	@deploy/local/pins.sh

clean: ## remove what was made here (.venv and caches)
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
