# Two commands matter: `make demo` and `make test`. Each does all its own set-up.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# A tier starts some hundred Pythons. Where the shell forbids bytecode, each would compile all that it imports.
export PYTHONDONTWRITEBYTECODE :=

VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
EXAMPLE := examples/local.yaml
# The real-Slurm tier has this checkout's own cloud: own directory, own port, own namespaces.
TEST_STATE := $(shell scripts/test-state)

.PHONY: help demo test lint audit types unit property contract golden slurm racks month sdk bench focus coverage mutants house clean distclean setup setup-demo setup-test aws-test aws-test-clean

help: ## Show the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

setup: ## Install what the CLI and the local cloud need (system packages, .venv)
	@scripts/setup local

setup-demo:
	@scripts/setup demo

setup-test: ## Install what the tests need as well
	@scripts/setup test

demo: setup-demo ## From nothing to a model trained through a spot interruption, and what it cost
	@$(BIN)/python -m toolkit.demo --config $(EXAMPLE)

# Three at once: the Slurm tier is the longest and mostly waits, so it comes first. Each prints all that it said when it is over,
# and goes on after a failure: a first failed test must not hide a second.
TIERS := slurm contract pure

test: setup-test ## Everything: lint, unit, property, contract, golden, oldest SDK, real Slurm
	@$(MAKE) --no-print-directory -j $(words $(TIERS)) $(TIERS:%=tier-%)

.PHONY: pure $(TIERS:%=tier-%)
$(TIERS:%=tier-%): tier-%:
	@scripts/buffered $* $(if $(filter-out slurm,$*),nice -n 15) $(MAKE) --no-print-directory --keep-going -j1 $*

pure: lint types unit property golden sdk

lint: setup-test ## ruff, import-linter, ansible-lint, cfn-lint, shellcheck, detect-secrets
	@scripts/lint

audit: setup-test ## Known vulnerabilities of the packages; asks PyPI, or OSV (AUDIT=osv)
	@scripts/audit $(AUDIT)

types: setup-test ## mypy strict
	@$(BIN)/mypy

# Two halves at once, not xdist: its workers would each collect all of them, which takes the longest.
UNIT_HALF := tests/unit/training tests/unit/commands tests/unit/jobscripts
PURE := --disable-socket --allow-unix-socket -q -o tmp_path_retention_policy=failed
# Where fsync costs nothing: it is a sixth of these tests' time.
MEMORY := $(firstword $(wildcard /dev/shm) /tmp)

unit: setup-test ## Pure code, no sockets, random order
	@$(MAKE) --no-print-directory --output-sync -j2 unit-half unit-rest

.PHONY: unit-half unit-rest
unit-half:
	@TMPDIR=$(MEMORY) $(PYTEST) $(UNIT_HALF) $(PURE)

unit-rest:
	@TMPDIR=$(MEMORY) $(PYTEST) tests/unit $(UNIT_HALF:%=--ignore=%) $(PURE)

property: setup-test ## Laws, by hypothesis
	@$(PYTEST) tests/property -n auto $(PURE)

# The two long tiers say what took them long: the aim for all of it is 25 minutes.
SLOWEST := --durations=20 --durations-min=5

contract: setup-test ## One suite against the fake EC2, moto and the local cloud; torchrun on loopback
	@$(PYTEST) tests/contract -n 3 --dist loadfile -q $(SLOWEST)

golden: setup-test ## Rendered slurm.conf, stack, user data
	@$(PYTEST) tests/golden $(PURE)

# All that calls AWS in slurmplugins. Ubuntu 24.04's botocore calls utcnow(), which its Python warns of.
SDK_TESTS := tests/unit/slurmplugins/cloud tests/golden/launch tests/contract/local/test_engine_port.py \
  $(patsubst %,tests/contract/engine/test_%.py,sdk_calls cloud_port credentials head_node_faults secrets)

sdk: ## slurmplugins on the oldest AWS SDK of the supported systems (tests/sdk/systems.toml)
	@scripts/setup sdk
	@.sdk-venv/bin/python -m pytest $(SDK_TESTS) -q -p no:cacheprovider \
	  -W 'ignore:datetime.datetime.utcnow:DeprecationWarning'

slurm: setup-test ## Real machines, real Slurm, real torchrun (needs root)
	@TOOLKIT_LOCAL_DIR=$(TEST_STATE) scripts/with-cleanup scripts/slurm-tier

# Not part of `make test`: the two files take 10 and 30 minutes (docs/testing.md).
RACKS := tests/slurm/joined_racks.py tests/slurm/long_join.py
racks: setup-test ## A join of a site of racks, on real machines (needs root)
	@TOOLKIT_LOCAL_DIR=$(TEST_STATE) scripts/with-cleanup $(BIN)/python -m pytest -q -p no:randomly --durations=20 \
	  -o log_cli=true -o log_cli_level=WARNING $(RACKS)

# Not part of `make test`: half an hour, and packages of its own (docs/testing.md).
month: setup-test ## A month of three accounts, closed and corrected, on real machines (needs root)
	@TOOLKIT_LOCAL_DIR=$(TEST_STATE) scripts/with-cleanup $(BIN)/python -m pytest -q -p no:cacheprovider \
	  -o log_cli=true -o log_cli_level=WARNING tests/slurm/month_of_accounts.py

bench: setup-test ## Against aws-parallelcluster-node on one throttled fake EC2; docs/benchmarks.md
	@$(BIN)/python -m tests.bench $(BENCH)

# Not part of `make test`: each needs an environment of its own (docs/finance.md).
focus: setup-test ## FinOps's focus-validator and OpenChargeback on FOCUS files; docs/finance.md
	@$(PYTEST) tests/focus -q -p no:cacheprovider

coverage: setup-test ## Branches of the core that no unit, property or golden test takes
	@scripts/coverage

# Not part of `make test`: it takes ten minutes or more. MODULES="slurmplugins/launch/fallback.py" takes one or two.
mutants: setup-test ## Whether the tests would notice; docs/testing.md (MODULES=...)
	@for table in $(if $(MODULES),,by-hand mended); do nice $(BIN)/python -m tests.mutants $$table; done
	@nice $(BIN)/python -m tests.mutants $(MODULES)

house: setup-test ## Files by room, circles, docstrings against the rules, modules that one launch needs
	@$(BIN)/python -m tests.house

# Not part of `make test`: it spends money, at most AWS_TEST_CAP_USD (docs/testing.md).
aws-test: setup-test ## On AWS itself: SIZE=small, gpu or efa, and AWS_TEST_CAP_USD=...
	@$(BIN)/python -m tests.aws $(or $(SIZE),$(error SIZE is small, gpu or efa)) $(AWS_TEST)

aws-test-clean: setup-test ## Delete what a killed aws-test left on AWS
	@$(BIN)/python -m tests.aws clean

clean: ## Remove every machine, namespace, mount and process that demo and tests made
	@scripts/clean

distclean: clean ## clean, and the cached images and the virtual environment too
	@scripts/clean --caches
	@rm -rf $(VENV) .sdk-venv .bench-venv
