# belay: every target says what it does; `make` alone lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
VENV := .build/venv
PY := $(CURDIR)/$(VENV)/bin/python
export BELAY_PYTHON ?= $(PY)
# A Node.js with the packages of the tests' TypeScript server.
NODE := .build/node
export BELAY_TEST_NODE ?= $(CURDIR)/$(NODE)

.PHONY: help build demo test lint generate bench fuzz clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 12

build: bin/belay ## build the program: bin/belay

demo: bin/belay $(VENV)/.ready ## run a scripted conversation and scripted jobs with their hooks visible
	@echo "A conversation. Its hooks are Python functions in the agent's folder, examples/clinic."
	@bin/belay chat examples/clinic --trace --data "$$(mktemp -d)" < examples/clinic/demo.txt
	@echo
	@echo "A job. Its hooks are MCP functions of a plugin, examples/guarded-github; what they escalate waits for a person."
	@examples/guarded-github/demo.sh --yes
	@echo
	@echo "Two more jobs, of examples/guardrails: a known secret leaves by its name alone, and a model of its own judges a call."
	@examples/guardrails/demo.sh --yes

test: $(VENV)/.ready $(NODE)/.ready ## set up, lint, and pass every test (Go with the race detector, Python)
	@bash .ci/check

lint: $(VENV)/.ready ## check format, vet, staticcheck, ruff and mypy
	@bash .ci/lint

generate: ## write the files that are made from the table of insertion points and from SQL
	go generate ./...

bench: bin/belay $(VENV)/.ready ## print the speed figures beside their budgets
	go run ./bench

fuzz: ## run each fuzz target for a short time
	@bash .ci/fuzz


clean: ## remove what was built
	rm -rf bin .build

.PHONY: bin/belay
bin/belay:
	@mkdir -p bin
	go build -trimpath -o bin/belay ./cmd/belay

$(VENV)/.ready: sdk/python/pyproject.toml sdk/python/requirements-dev.txt
	python3 -c 'import sys; sys.exit(sys.version_info < (3, 11) and "belay needs Python 3.11 or newer: put one first on the PATH")'
	python3 -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -r sdk/python/requirements-dev.txt
	@touch $@

$(NODE)/.ready: $(VENV)/.ready tests/testdata/sdks/package.json tests/testdata/sdks/package-lock.json
	@bash .ci/node $(PY) $(NODE)
	@touch $@
