# Every target sets up what it needs; `make` alone lists the targets.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
UV := $(VENV)/bin/uv
READY := $(VENV)/.ready
# The archive halves the CPU time of Spark's start; without it, workers start more slowly.
ARCHIVE := $(VENV)/spark.jsa
export LOGHUB_CLASS_ARCHIVE := $(abspath $(ARCHIVE))
# The native part of service and worker is built where there is a cargo, and nothing needs it.
CARGO := $(or $(shell command -v cargo),$(wildcard $(HOME)/.cargo/bin/cargo))
NATIVE := native/Cargo.toml native/Cargo.lock native/pyproject.toml $(wildcard native/src/*.rs)
WHEELS := build/wheels
CARGO_CACHE := $${XDG_CACHE_HOME:-$$HOME/.cache}/loghub-operator/cargo
# Tests and demo start hundreds of processes, so keep compiled bytecode.
export PYTHONDONTWRITEBYTECODE :=
# Each is a distribution of its own; here all of them are installed together.
PACKAGES := loghub service/loghub_service worker/loghub_consumer worker/loghub_worker worker/loghub_spark \
	operator/loghub_operator operator/loghub_cli
LOCKS := locks/bootstrap.txt locks/dev.txt
# Installs Debian packages as root; LOGHUB_INSTALL=no declines.
DEBIAN := sh operator/loghub_cli/demo/debian.sh

.PHONY: help setup native jars demo test test-cluster check check-deep bench docs lock crds clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(READY) ## create .venv with the locked packages

$(READY): $(LOCKS) pyproject.toml $(PACKAGES:%=%/pyproject.toml) locks/native.txt $(NATIVE)
	@echo "setting up $(VENV) with the locked packages"
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed; name one with: make PYTHON=python3.12 ...")'
	@test -x $(PY) || $(PYTHON) -c 'import ensurepip' 2>/dev/null || $(DEBIAN) python3-venv || \
		{ echo "venv needs ensurepip: apt-get install python3-venv"; exit 1; }
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r locks/bootstrap.txt
	@$(UV) pip sync --quiet --compile-bytecode --python $(PY) --require-hashes locks/bootstrap.txt locks/dev.txt
	@$(UV) pip install --quiet --python $(PY) --no-deps --no-build-isolation $(PACKAGES:%=--editable ./%)
	@# Without them Spark's Python processes import the compiled pyspark (see the Dockerfile).
	@rm -f $(VENV)/lib/python3*/site-packages/pyspark/python/lib/*.zip
	@rm -f $(ARCHIVE)
	@$(if $(CARGO),{ $(BUILD_NATIVE); } >$(VENV)/native.log 2>&1 || { tail -n 5 $(VENV)/native.log; \
		echo "the native part was not built ($(VENV)/native.log has all of it); Python does the same"; })
	@touch $@

# What cargo compiles of other crates is kept for every checkout. Cargo's own lock ends before maturin takes the
# library, which another checkout may replace meanwhile, so one build waits for the other.
define BUILD_NATIVE
rm -rf $(WHEELS) \
	&& $(UV) pip install --quiet --python $(PY) --require-hashes -r locks/native.txt \
	&& mkdir -p "$(CARGO_CACHE)" \
	&& { if command -v flock >/dev/null; then flock 9; fi \
		&& PATH="$(dir $(CARGO)):$$PATH" CARGO_TARGET_DIR="$(CARGO_CACHE)" \
		$(VENV)/bin/maturin build --quiet --release --locked --manifest-path native/Cargo.toml --out $(WHEELS) \
		9>&-; } 9>"$(CARGO_CACHE)/build.lock" \
	&& $(UV) pip install --quiet --python $(PY) --no-deps --reinstall $(WHEELS)/*.whl
endef

native: $(READY) ## build the wheel of the native part of service and worker and install it; needs cargo, Rust 1.83 or newer
	@test -n "$(CARGO)" || { echo "cargo is not on PATH: install Rust 1.83 or newer"; exit 1; }
	@$(BUILD_NATIVE)

jars: $(READY) ## fetch Spark's connector to Kafka for the workers of `loghub up`; the worker's image has it
	@sh operator/loghub_cli/demo/ensure_java.sh
	@$(PY) -m loghub_worker.image.spark_jars locks/jars.txt
	@# It is of the jars that were there when it was made.
	@rm -f $(ARCHIVE)

demo: $(READY) ## run the demo on this machine and verify its output; LOGS=file, ARGS=--keep
	@sh operator/loghub_cli/demo/ensure_java.sh
	@$(PY) -m loghub_cli.demo $(if $(LOGS),--logs "$(LOGS)") $(ARGS)

# Parts, their processes and their budgets are in tests/suite/parts.py. The shell outlives Ctrl-C, so that it
# waits until the tests have cleaned up.
SUITE := trap : INT; $(PY) -m tests.suite

check: $(READY) ## run the fast tests, in a minute: no process of ours, no Spark, no Kubernetes
	@$(SUITE) check

test: $(READY) ## run each real component and each guarantee once; what cannot run on this machine is skipped with a reason
	@$(SUITE) test

test-cluster: $(READY) ## run the tests on a real Kubernetes; uses kind if a Docker engine is available
	@$(SUITE) cluster

check-deep: $(READY) ## run every combination and the long searches, for hours; MINUTES=30 a slice of them, SEED=n the same one again
	@$(SUITE) deep $(if $(MINUTES),--minutes "$(MINUTES)") $(if $(SEED),--seed "$(SEED)")

# `make setup` and `make jars` delete it, since it fits only the jars that were there when it was made.
$(ARCHIVE): $(READY)
	@sh operator/loghub_cli/demo/ensure_java.sh
	$(PY) -m loghub_worker.image.cds_archive $@

bench: $(ARCHIVE) ## run the benchmarks: start of the service by its data, its CPU time for requests and how it grows, the memory of subscriptions, the wire of Kafka and its endpoint next to a Kafka broker, the endpoint of Pulsar next to a Pulsar broker, consumers of subscriptions, the worker's CPU time and its peers', round trips, latency, pace, memory and start, commit log, operator with 500 groups (an hour)
	$(PY) -m tests.loghub.bench_recovery
	$(PY) -m tests.loghub.bench_service
	$(PY) -m tests.loghub.bench_growth
	$(PY) -m tests.loghub_service.subscription.bench_memory
	$(PY) -m tests.loghub_service.kafka.bench_wire
	$(PY) -m tests.loghub_service.kafka.bench_broker
	$(PY) -m tests.compat.pulsar.bench_dispatch
	$(PY) -m tests.loghub_consumer.bench_subscription
	$(PY) -m tests.loghub_worker.bench_readers
	$(PY) -m tests.loghub_worker.bench_pipeline
	$(PY) -m tests.loghub_worker.bench_peers
	$(PY) -m tests.loghub_worker.bench_round_trips
	$(PY) -m tests.loghub_worker.bench_latency
	$(PY) -m tests.loghub_worker.bench_trigger
	$(PY) -m tests.loghub_worker.bench_memory
	$(PY) -m tests.loghub_worker.bench_start
	$(PY) -m tests.loghub_worker.bench_processor
	$(PY) -m tests.loghub_worker.bench_commit_log
	$(PY) -m tests.loghub_operator.bench_scale

docs: $(READY) ## write the docs as a site to build/docs/site, and as build/docs.zip to read it without a network
	@$(PY) -m tests.house.docs_site

lock: $(READY) ## regenerate locks/ from what the distributions require
	$(PY) tests/house/lock.py

crds: $(READY) ## regenerate crds/, the chart's copy, docs/fields.md and the reasons from the models
	$(PY) -m loghub_operator.api.crd > crds/.made && mv crds/.made crds/loghubconsumergroups.loghub.dev.yaml
	cp crds/loghubconsumergroups.loghub.dev.yaml charts/loghub-operator/files/crd.yaml
	$(PY) -m loghub_operator.tools.fields_page > docs/.made && mv docs/.made docs/fields.md
	$(PY) -m loghub_operator.tools.reasons_page > docs/.made && mv docs/.made docs/reasons.md
	$(PY) -m loghub_operator.tools.reasons_page json > docs/.made && mv docs/.made operator/loghub_cli/reasons.json

clean: ## remove the venv and build outputs of this folder
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
