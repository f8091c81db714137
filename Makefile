# Everything a contributor runs. `make help` lists it; a machine needs Python 3.11 or newer, git and make.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
RUN := $(BIN)/python
PROTO_FILES := $(wildcard proto/common/wire/v1/*.proto)
GENERATED := common/wire/v1
RUNTIME_STAMP := $(VENV)/.installed-runtime
DEVELOPMENT_STAMP := $(VENV)/.installed-development
SPARK := build/spark
# Modules are compiled on first import: compiling all of them takes longer than installing them.
PIP_INSTALL := $(RUN) -m pip install --quiet --disable-pip-version-check --no-compile
# Three processes, which keep two processors busy, since tests wait for daemons and disks; five take a tenth to a
# fifth more of their time. Each takes whole files: daemons and data that a file shares are started once. tests/conftest.py has the
# order of files.
PYTEST_ARGS ?= -n 3 --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup setup-runtime opendp chart descriptions spark febrl peers demo programs test test-long test-all lab fuzz chaos soak bench papers notebooks screenshots lint format types imports proto check-generated docs lock dist clean

help: ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

# --- environment: one virtual environment, installed from the lock files and only when they changed ---

$(RUN):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "error: $(PYTHON) is $$($(PYTHON) --version 2>&1 | tail -n 1); Python 3.11 or newer is needed" >&2; \
	  echo "hint: name one, for example: make $(or $(MAKECMDGOALS),setup) PYTHON=python3.12" >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { \
	  echo "hint: on Debian and Ubuntu, apt-get install python3-venv" >&2; rm -rf $(VENV); exit 2; }

$(RUNTIME_STAMP): requirements.lock pyproject.toml | $(RUN)
	@echo "installing what the programs need into $(VENV)"
	@$(PIP_INSTALL) --require-hashes -r requirements.lock
	@$(PIP_INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

$(DEVELOPMENT_STAMP): requirements-dev.lock $(RUNTIME_STAMP)
	@echo "installing the development tools into $(VENV)"
	@$(PIP_INSTALL) --require-hashes -r requirements-dev.lock
	@touch $@

setup: $(DEVELOPMENT_STAMP) ## make .venv with everything for development

setup-runtime: $(RUNTIME_STAMP) ## make .venv with only what the programs need

# What one job needs, beside the environment, each from a lock file of its own: heavy packages (180 to 450 MB), and one
# of which nothing but the data is used. Tests that need a folder that is not there are skipped with the reason.
build/%/.installed: requirements-%.lock $(RUNTIME_STAMP)
	@echo "installing $(@D)"
	@rm -rf $(@D)
	@$(PIP_INSTALL) --require-hashes --no-deps --no-build-isolation --target $(@D) -r $<
	@touch $@

opendp: build/opendp/.installed ## install OpenDP into build/opendp, for a test that compares its noise with ours

chart: build/chart/.installed ## install Helm's library into build/chart, for the tests of the Helm chart

descriptions: build/descriptions/.installed ## install validators into build/descriptions, for the tests of the descriptions of releases

spark: $(SPARK)/.installed $(SPARK)/classes.jsa ## install Spark into build/spark, for the tests of its engine (Java 17 comes from elsewhere)

# Half of the time of a Java process that lives for seconds is loading classes.
$(SPARK)/classes.jsa: $(SPARK)/.installed tests/spark_archive.py
	@if command -v java >/dev/null; then echo "archiving the classes of Spark"; $(RUN) -m tests.spark_archive; fi

peers: build/peers/.installed ## install AIM, MST, Anonymeter and SDMetrics into build/peers, for docs/comparison.md (Python 3.11)

febrl: build/febrl/.installed ## fetch persons with misspelt names into build/febrl, for the tests of match keys

# --- use ---

demo: $(RUNTIME_STAMP) ## real owner daemons, an aggregator, three releases under build/demo
	@$(RUN) -m deploy.demo

programs: $(DEVELOPMENT_STAMP) ## install the wheel into an environment of its own, as tests/system runs it
	@$(RUN) -m deploy.wheel_environment

test: $(DEVELOPMENT_STAMP) ## run the tests, but the long ones: eight minutes on two processors (PYTEST_ARGS="-k name" for some)
	@$(RUN) -m pytest -m "not lab and not long" $(PYTEST_ARGS)

test-long: $(DEVELOPMENT_STAMP) ## run the long tests: containers, Spark, chaos, kills, long walks through pages and commands
	@$(RUN) -m pytest -m "long and not lab" $(PYTEST_ARGS)

test-all: $(DEVELOPMENT_STAMP) ## run the tests of both targets in one call
	@$(RUN) -m pytest -m "not lab" $(PYTEST_ARGS)

lab: $(DEVELOPMENT_STAMP) ## run the tests of the experiments, and of the tutorial with its pictures and notebooks
	@$(RUN) -m pytest -m lab $(PYTEST_ARGS)

fuzz: $(DEVELOPMENT_STAMP) ## ten thousand mutations of every message and document (make test tries some)
	@TESSERA_FUZZ=10000 $(RUN) -m pytest tests/fuzz --timeout=3600 $(PYTEST_ARGS)

RUNS ?= 200
chaos: $(DEVELOPMENT_STAMP) ## crash releases at random: RUNS=200, again with the SEED that it prints (make test-long runs some)
	@PYTHONPATH=$(SPARK) $(RUN) -m tests.chaos --runs $(RUNS) $(if $(SEED),--seed $(SEED))

MINUTES ?= 15
soak: $(DEVELOPMENT_STAMP) ## ten owners, releases one after the other, random kills: what grows (MINUTES=15)
	@$(RUN) -m tests.chaos.soak --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

bench: $(DEVELOPMENT_STAMP) build/bench/.installed ## measure speed and memory (the Spark engine after make spark)
	@PYTHONPATH=$(SPARK):build/bench $(RUN) -m tests.benchmarks

papers: $(DEVELOPMENT_STAMP) ## repeat the experiments of the pages, an hour: TESSERA_DATA names the data
	@$(RUN) -m tests.papers --page docs/papers.md --page docs/risk.md --page docs/decisions.md \
		--page docs/synthetic.md --page docs/comparison.md

notebooks: $(DEVELOPMENT_STAMP) ## go through the tutorial, run docs/notebooks and write what they show: TESSERA_DATA names the data
	@$(RUN) -m tests.notebooks

screenshots: $(DEVELOPMENT_STAMP) ## take the pictures of docs/console.md and the tutorial, from real daemons in Chromium
	@$(RUN) -m tests.screenshots

# --- checks ---

lint: $(DEVELOPMENT_STAMP) ## rules and format of the code
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: $(DEVELOPMENT_STAMP) ## put the code into its format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

types: $(DEVELOPMENT_STAMP) ## strict type check
	@$(BIN)/mypy

imports: $(DEVELOPMENT_STAMP) ## who may import whom
	@$(BIN)/lint-imports --no-logo

# --- generated code ---

# $(1): folder to generate into. The plugins for types are found through PATH.
generate = PATH="$(abspath $(BIN)):$$PATH" $(RUN) -m grpc_tools.protoc -Iproto --python_out=$(1) \
  --grpc_python_out=$(1) --mypy_out=quiet:$(1) --mypy_grpc_out=quiet:$(1) $(PROTO_FILES)

proto: $(DEVELOPMENT_STAMP) ## generate common/wire/v1 from proto/
	@rm -f $(GENERATED)/*_pb2*.py $(GENERATED)/*_pb2*.pyi
	@$(call generate,.)

check-generated: $(DEVELOPMENT_STAMP) ## fail if common/wire/v1 differs from what proto/ gives
	@rm -rf build/generated && mkdir -p build/generated
	@$(call generate,build/generated)
	@diff -ru --exclude=__init__.py --exclude=__pycache__ $(GENERATED) build/generated/$(GENERATED) || { \
	  echo "error: $(GENERATED) is not what proto/ gives; run: make proto" >&2; exit 1; }

# --- documentation ---

docs: $(DEVELOPMENT_STAMP) ## build the site of the documentation into build/site, links checked
	@NO_MKDOCS_2_WARNING=1 PYTHONPATH=. $(BIN)/mkdocs build --quiet
	@echo "build/site/index.html; browsers search it only through a server: python3 -m http.server --directory build/site"

# --- packaging ---

# One set of versions for Python 3.11 and newer on Linux and macOS; no index is written down.
RESOLVE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --fork-strategy fewest \
  --generate-hashes --no-header --no-emit-index-url --no-emit-find-links --no-annotate --no-config
COMPILE := $(RESOLVE) --extra postgresql --extra console pyproject.toml

lock: ## re-make the lock files (UPGRADE=--upgrade to move to newer versions)
	@test -x $(BIN)/uv || { echo "error: no uv in $(VENV); run: make setup" >&2; exit 2; }
	@$(COMPILE) $(UPGRADE) --group build -o requirements.lock
	@$(COMPILE) $(UPGRADE) --extra explore --extra labelled --group build --group dev -c requirements.lock -o requirements-dev.lock
	@$(RESOLVE) $(UPGRADE) --group spark -c requirements.lock -o requirements-spark.lock
	@$(RESOLVE) $(UPGRADE) --group febrl --no-deps -o requirements-febrl.lock
	@$(RESOLVE) $(UPGRADE) --group peers -o requirements-peers.lock
	@$(RESOLVE) $(UPGRADE) --group descriptions -o requirements-descriptions.lock
	@for group in opendp chart bench; do \
	  $(RESOLVE) $(UPGRADE) --group $$group -c requirements-dev.lock -o requirements-$$group.lock || exit 1; done
	@! grep -n -i -E 'https?://|--(extra-)?index|find-links' requirements*.lock

dist: $(DEVELOPMENT_STAMP) ## source archive and wheel in dist/ (the wheel always has the same bytes)
	@$(RUN) -m build --sdist --no-isolation --outdir dist .
	@$(RUN) -m deploy.wheel_environment dist

clean: ## remove what was built (not .venv)
	@rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +
