# Everything that a person or a build server runs. It needs GNU make and Python 3.11 or newer, nothing else: every
# target sets up what it needs in .venv, and nothing outside this folder is changed. Start with `make help`.

# The interpreter that makes .venv; e.g. `make setup PYTHON=python3.12`.
PYTHON ?= python3
# make demo: the input file; empty = the sources of Python's standard library.
INPUT ?=
# make sim, sim-shell: the number of simulated runs, and the seed of the first.
SEEDS ?= 5000
SEED ?= 1
# make sim-long: run for this number of hours; the ledger gets a line for each batch of runs.
HOURS ?= 1
LEDGER := docs/simulation-ledger.txt
LONG = $(if $(filter file,$(origin SEEDS)),--hours $(HOURS),--seeds-in-all $(SEEDS))
# make sim-coverage: branches of the core, the driver and the store that few of a thousand runs take, with reasons.
BRANCHES := tests/simulation/rare_branches.txt
# make cluster-*: where the three nodes keep data and logs.
RUN ?= run
# make cluster-up: brokers for messages, of three nodes each, and a name server; 0 = a log of raw entries.
BROKERS ?= 0
# make cluster-up, demo: 1 = TLS for all connections, and users of brokers.
SECURE ?=
# make unit, sim, mutants, crashpoints: worker processes.
WORKERS ?= 2
# make bench-peers: rounds, seconds of a workload in each, and the systems beside ours; empty = all.
ROUNDS ?= 3
SECONDS ?= 3
PEERS ?=
# make test: tests at a time. They mostly wait, so three of them keep two cores busy.
AT_A_TIME ?= 3

# make bench-shape: axes to measure (empty: all), for SECONDS a point; runs of each point; the largest log; minutes of
# full load; a file whose other axes are kept. make bench-shape-draw: the file to draw.
AXES ?=
RUNS ?= 3
LOG_GIB ?= 1
MINUTES ?= 2
FILE ?=

SECURELY = $(if $(filter-out 0,$(SECURE)),--secure)

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.ready
# All of that, and the native module of these sources, if there is a C compiler.
READY := $(VENV)/.native
NATIVE_SOURCES := scripts/build_native.py $(wildcard dledger/native/*.[ch])
# A separate folder: if pandas can be imported, Arrow imports it in each process that Spark starts, which takes a third of
# a second every time; only declarative pipelines need it.
PANDAS := $(VENV)/pandas
# Zensical and its dependencies; only `make docs` needs them.
DOCS := $(VENV)/.docs
# Atheris; only `make fuzz` needs it.
FUZZ := $(VENV)/.fuzz
# Playwright; only `make console-browser` needs it.
BROWSER := $(VENV)/.browser
# Tools that look at packages, in an environment of their own: wheel, lock, audit.
SUPPLY := $(VENV)/supply
# make fuzz: runs of all decoders together, and the seed of the changes of inputs.
EXECUTIONS ?= 10000000
# Every file that is installed must have one of the hashes in requirements/, whatever index it is from.
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
LOCKED := --require-hashes --no-build-isolation --requirement requirements
SCRIPTS := $(wildcard scripts/*.py scripts/*/*.py)
# These tests only compute; Spark's tests and all others mostly wait. Spark's and the others run in parallel, and these
# run at low priority beside them, so the processor is always busy; a single test here may take long.
COMPUTING := $(addprefix tests/,simulation scenarios property trace)
COMPUTING_TIMEOUT_S := 2400

# Tests make and delete some hundred thousand small files; in memory that needs a third of the processor time that it
# needs on a disk. Empty (the usual folder) if there is little memory.
IN_MEMORY = $(shell scripts/space_in_memory.sh)

# Compiled modules are kept (in __pycache__), also if the environment disables that, as in images of build servers: the
# tests start hundreds of processes, and each would compile the project again.
export PYTHONDONTWRITEBYTECODE :=

MAKEFLAGS += --no-builtin-rules --no-print-directory
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test check lint format type contracts collected lists proto verify-proto advisories spark spark-cluster waiting computing unit scenarios sim sim-shell sim-brokers sim-long sim-coverage crashpoints bit-flips stalls mutants mutants-blind chaos kill-waiting streams \
	fuzz console-browser interop monitoring bench bench-peers bench-spark bench-shape bench-shape-draw docs wheel wheel-client lock console-assets audit \
	cluster-up cluster-down cluster-status clean distclean

##@ Start here

help: ## Show this list
	@awk 'BEGIN { FS = ":[^#]*## " } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo

demo: $(READY) ## Append a text to three nodes, kill the leader, read it all back; then as messages (INPUT=path SECURE=1)
	@$(BIN)/python scripts/demo/demo.py $(SECURELY) $(if $(INPUT),"$$INPUT")

test: $(READY) ## All checks and all tests; the gate of every change (at most 20 minutes on two cores)
	@$(MAKE) --jobs=2 check
	@$(MAKE) --jobs=3 spark waiting computing

setup: $(READY) ## Make .venv with all dependencies; quick when nothing has changed
	@:

# The build tools are installed first and build isolation is off, so that builds use the pinned versions, too (PySpark is
# built, because it is published as source only, 460 MB).
$(INSTALLED): pyproject.toml requirements/build.txt requirements/dev.txt requirements/pandas.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "make: Python 3.11 or newer is needed; '$(PYTHON)' is $$($(PYTHON) --version 2>&1 || true)." >&2; \
		echo "make: name another one, for example: make setup PYTHON=python3.12" >&2; exit 1; }
	@echo "Setting up $(VENV) (some minutes at first, for PySpark is large; only when pyproject.toml or requirements/ has changed)"
	@$(BIN)/python -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || $(PYTHON) -m venv --clear $(VENV) || { \
		echo "make: '$(PYTHON) -m venv' failed; on Debian and Ubuntu the package python3-venv is needed." >&2; exit 1; }
	@$(PIP_INSTALL) $(LOCKED)/build.txt
	@$(PIP_INSTALL) $(LOCKED)/dev.txt
	@$(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@rm -rf $(PANDAS)
	@$(PIP_INSTALL) $(LOCKED)/pandas.txt --no-deps --target $(PANDAS)
	@touch $@

$(READY): $(INSTALLED) $(NATIVE_SOURCES)
	@$(BIN)/python scripts/build_native.py
	@touch $@

##@ Checks

check: type collected lists lint contracts verify-proto advisories ## All checks without the tests

lint: $(READY) ## Style and likely mistakes (ruff)
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet . || { echo "make: run 'make format'" >&2; exit 1; }

format: $(READY) ## Rewrite the sources in the project's style
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format --quiet .

type: $(READY) ## Types (mypy --strict)
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/mypy --no-error-summary $(SCRIPTS)

contracts: $(READY) ## Which packages may import which others (import-linter)
	@report="$$($(BIN)/lint-imports --no-logo 2>&1)" || { echo "$$report"; exit 1; }

# One process compiles all test modules while mypy runs, not each worker of the tests again.
collected: $(READY) ## Every test module can be imported
	@report="$$($(BIN)/python -m pytest -q --collect-only tests 2>&1)" || { echo "$$report" | tail -n 60; exit 1; }

# A change of a condition in the core renames its branches; the simulated runs, which use the list, come last in the gate.
lists: $(READY) ## The lists of rare branches and planted bugs name what exists
	@report="$$($(BIN)/python -m pytest -q -p no:cacheprovider tests/simulation/test_branches.py tests/mutants/test_mutants.py \
		-k "listed_branches or names_are_unique or every_planted_bug or bug_names_exists" 2>&1)" || { echo "$$report" | tail -n 60; exit 1; }

proto: $(READY) ## Generate the stubs of proto/ again
	@$(BIN)/python scripts/generate_proto.py

verify-proto: $(READY) ## Fail if a committed stub differs from the one generated from proto/
	@$(BIN)/python scripts/generate_proto.py --check

advisories: $(READY) ## Compare pins and lower bounds of packages with known vulnerabilities; needs no network
	@$(BIN)/python scripts/supply/advisories.py

##@ Tests by kind, and measuring

# First an archive of Spark's classes in the form that a JVM loads: it halves the work of a JVM until its first query.
spark: $(READY) ## The tests of the Spark pipeline, by themselves: one Spark, one process (needs Java 17 or 21, else skipped)
	@$(BIN)/python scripts/spark_classes.py
	@$(BIN)/python -m pytest -q tests/spark

spark-cluster: $(READY) ## Each command of `dledger spark` as it is printed, on a cluster whose hosts lack this project; the long form
	@DLEDGER_SPARK_SUBMIT=all $(BIN)/python -m pytest -q tests/spark/test_standalone_cluster.py

waiting: $(READY) ## All tests that mostly wait, but Spark's: three at a time
	@TMPDIR="$${TMPDIR:-$(IN_MEMORY)}" $(BIN)/python -m pytest -q -n $(AT_A_TIME) --dist worksteal $(addprefix --ignore=,$(COMPUTING) tests/spark)

computing: $(READY) ## Simulated runs, scenarios and models, at low priority
	@nice -n 19 $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal --timeout=$(COMPUTING_TIMEOUT_S) $(COMPUTING)

unit: $(READY) ## The quick tests only
	@TMPDIR="$${TMPDIR:-$(IN_MEMORY)}" $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m "not slow and not spark"

scenarios: $(READY) ## The scripts of tests/scenarios, and random ones (SEEDS=5000 SEED=1)
	@$(BIN)/python -m pytest -q tests/scenarios
	@$(BIN)/python -m dledger.testing.script --random $(SEEDS) --seed $(SEED)

sim: $(READY) ## Simulated runs of three and five nodes with faults of every kind; a table (SEEDS=5000 SEED=1)
	@$(BIN)/python -m dledger.testing --seed $(SEED) --seeds $(SEEDS) --jobs $(WORKERS) --table

sim-shell: $(READY) ## Simulated runs of clients, connections and whole nodes with faults; a line for each (SEEDS=500 SEED=1)
	@$(BIN)/python -m dledger.testing --shell --seed $(SEED) --seeds $(if $(filter file,$(origin SEEDS)),500,$(SEEDS)) --jobs $(WORKERS)

sim-brokers: $(READY) ## Simulated runs of whole brokers with faults, while messages are due and transactions open (SEEDS=200 SEED=1)
	@DLEDGER_BROKER_SEED=$(SEED) DLEDGER_BROKER_SEEDS=$(if $(filter file,$(origin SEEDS)),200,$(SEEDS)) \
		$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal tests/simulation/test_brokers.py

sim-long: $(READY) ## The same with seeds that were never run, for HOURS=1, or SEEDS=n of them; a line a batch in docs/simulation-ledger.txt
	@$(BIN)/python -m dledger.testing $(LONG) --seeds 1000 --jobs $(WORKERS) --table --ledger $(LEDGER)

sim-coverage: $(READY) ## Which branches a thousand simulated runs take; fails on rare ones that no list explains (SEEDS, SEED)
	@$(BIN)/python -m dledger.testing --seed $(SEED) --seeds $(if $(filter file,$(origin SEEDS)),1000,$(SEEDS)) --jobs $(WORKERS) --table --branches $(BRANCHES)

crashpoints: $(READY) ## A crash at every file operation with every class of lost writes; the long form
	@DLEDGER_CRASH_POINTS=long $(BIN)/python -m pytest -q -n $(WORKERS) -s tests/crashpoints -k "not byte"

bit-flips: $(READY) ## Change every byte of a store in every bit; the long form
	@DLEDGER_BIT_FLIPS=long $(BIN)/python -m pytest -q -n $(WORKERS) -s tests/crashpoints -k "changed_byte or changes_a_byte"

stalls: $(READY) ## All tests but Spark's and those that compute, while processes are paused at random for up to 1.6 s
	@$(BIN)/python scripts/with_stalls.py $(BIN)/python -m pytest -q -n $(AT_A_TIME) --dist worksteal -m "not spark" \
		$(addprefix --ignore=,$(COMPUTING))

mutants: $(READY) ## Plant every bug of tests/mutants and see that it is caught; the table goes into docs/testing.md
	@$(BIN)/python scripts/mutants.py --jobs $(WORKERS) --write

mutants-blind: $(READY) ## What in the default gate finds each planted bug; continues where it stopped (an hour)
	@$(BIN)/python scripts/mutants_blind.py --jobs $(WORKERS)

fuzz: $(FUZZ) ## Fuzz every decoder of untrusted bytes, guided by coverage (EXECUTIONS=10000000 SEED=1)
	@$(BIN)/python -m tests.fuzz --executions $(EXECUTIONS) --seed $(SEED)

$(FUZZ): $(READY) requirements/fuzz.txt
	@$(PIP_INSTALL) $(LOCKED)/fuzz.txt
	@touch $@

console-browser: $(BROWSER) ## The console in Chromium: live elections, nine tabs, dark, narrow (Debian: apt-get install chromium)
	@$(BIN)/python -m pytest -q tests/browser

$(BROWSER): $(READY) requirements/browser.txt
	@$(PIP_INSTALL) $(LOCKED)/browser.txt
	@touch $@

chaos: $(READY) ## Real processes: kill -9 of leaders under load, restart of all nodes, 10,000 queues; the long form
	@DLEDGER_MANY_QUEUES=long DLEDGER_BROKER_KILLS="$${DLEDGER_BROKER_KILLS:-10}" $(BIN)/python -m pytest -q tests/chaos tests/integration/cluster/local_brokers/test_many_queues.py

streams: $(READY) ## Real processes: kill -9 of leaders and Spark drivers while a lake is written, optimized, vacuumed and deleted from; the long form
	@DLEDGER_STREAM_ENDS="$${DLEDGER_STREAM_ENDS:-11}" $(BIN)/python -m pytest -q -s tests/spark/test_killed_streams.py

kill-waiting: $(READY) ## Real processes: kill -9 of leaders while 100,000 delays, pops and transactions each are open; the long form
	@DLEDGER_WAITING=100000 DLEDGER_WAITING_KILLS=10 $(BIN)/python -m pytest -q -s tests/chaos/test_kills_while_all_waits.py

monitoring: $(READY) ## A real Prometheus reads three nodes, asks the queries of the dashboards, and sees alerts fire (Debian: prometheus)
	@$(BIN)/python scripts/monitoring/check.py

interop: $(READY) ## RocketMQ's program and ours on each other's stores, its clients with our broker (what is missing is skipped)
	@$(BIN)/python scripts/interop/interop.py

bench: $(READY) ## Measure three nodes, the message store, and a broker: speed, failover, memory; tables, and JSON in bench/
	@$(BIN)/dledger bench
	@$(BIN)/dledger bench-store
	@$(BIN)/dledger bench-broker

bench-peers: $(READY) ## Measure ours, a floor without Raft, NATS, etcd (need Go) and DLedger (Java, Maven) in turn (ROUNDS=3 SECONDS=3 PEERS="floor etcd")
	@$(BIN)/python scripts/peers/bench_peers.py --rounds $(ROUNDS) --seconds $(SECONDS) $(PEERS)

bench-spark: $(READY) ## Measure the data pipeline (needs Java): each figure beside its target, and JSON in bench/
	@$(BIN)/python scripts/bench_spark.py

bench-shape: $(READY) ## Measure throughput, latency and CPU over sizes and numbers (AXES="body nodes" SECONDS=3 RUNS=3 LOG_GIB=1 MINUTES=2); JSON in bench/
	@$(BIN)/python scripts/shape/bench_shape.py $(AXES) --seconds "$(SECONDS)" --runs "$(RUNS)" --log-gib "$(LOG_GIB)" --minutes "$(MINUTES)" $(if $(FILE),--into "$(FILE)")

bench-shape-draw: $(READY) ## Draw its plots and write its tables into docs/ (FILE=bench/shape-....json; default: the newest)
	@$(BIN)/python scripts/shape/draw_shape.py "$(or $(FILE),$(lastword $(sort $(wildcard bench/shape-*.json))))"

##@ Documentation

docs: $(DOCS) ## Build docs/ as a site in build/docs/site; a link to a page or heading that does not exist fails
	@$(BIN)/python scripts/build_docs.py

$(DOCS): $(READY) requirements/docs.txt
	@$(PIP_INSTALL) $(LOCKED)/docs.txt
	@touch $@

##@ Packages

wheel: $(READY) $(SUPPLY) ## Build the wheel into dist/, the same bytes each time, and its bill of materials (CycloneDX)
	@$(BIN)/python scripts/wheel.py --tools $(SUPPLY)/bin

wheel-client: $(READY) ## Build the wheel for applications into dist/: the clients alone, as dledger_client
	@$(BIN)/python scripts/client_wheel.py

lock: $(READY) $(SUPPLY) ## Write requirements/ again: versions of constraints.txt, with hashes (needs a package index)
	@$(SUPPLY)/bin/python scripts/lock.py

console-assets: $(READY) ## Compare the console's scripts of others with the published packages (needs npm)
	@$(BIN)/python scripts/console_assets.py --check

audit: $(SUPPLY) ## Look for known vulnerabilities of all pinned packages (needs the network, for its database)
	@for each in requirements/*.txt; do $(SUPPLY)/bin/pip-audit --progress-spinner off --disable-pip --strict --require-hashes --requirement "$$each" || exit 1; done

$(SUPPLY): requirements/supply.txt
	@$(PYTHON) -m venv --clear $@
	@$@/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement $<
	@touch $@

##@ A cluster to try

cluster-up: $(READY) ## Start three nodes on this machine, on free ports; BROKERS=1: of a broker for messages; SECURE=1: TLS, users (RUN=folder)
	@$(BIN)/python scripts/local_cluster.py start --folder "$(RUN)" --brokers "$(BROKERS)" $(SECURELY)

cluster-down: $(READY) ## Stop them; data and logs are kept
	@$(BIN)/python scripts/local_cluster.py stop --folder "$(RUN)"

cluster-status: $(READY) ## Show them
	@$(BIN)/python scripts/local_cluster.py status --folder "$(RUN)"

##@ Clean up

clean: ## Remove caches and build output (not .venv, and not the cluster's data)
	@rm -rf build dist .cache .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean ## The same, and .venv
	@rm -rf $(VENV)
