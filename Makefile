# make demo | test | lint | setup: each sets up .venv from requirements.lock when that is missing or out of date.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-long test-slow shapes test-robot test-mujoco4 lint docs format results gpu clean

PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP = $(BIN)/pip install -qq --disable-pip-version-check
PYTEST_WORKERS ?= 2
ROBOT_PYTHON ?= python3.10
ROBOT_VENV ?= .venv-robot
MUJOCO4 ?= .venv-mujoco4
ROBOT_TESTS := tests/test_robot.py tests/core tests/apps/cli/test_config.py tests/apps/test_doctor.py
# The pure parts, whose tests are quick with every call checked; those that learn for a while are left out.
SHAPE_TESTS := tests/core tests/nets tests/rl tests/sim/tasks/stl tests/sim/tasks/swarm/test_terms.py \
  $(addprefix tests/data/test_,normalizer.py replay.py windows.py) \
  $(addprefix tests/policies/,test_executor.py tuned/test_fine_tuned.py base/test_generative.py \
    test_observation_senses.py base/test_process.py base/test_realtime.py flight/test_vision.py) \
  $(addprefix tests/sim/,engines/quad/test_craft.py engines/quad/test_dynamics.py flight/test_flight_observer.py \
    tasks/flight/test_tracking.py) \
  tests/hardware/test_last_metre.py $(addprefix tests/hardware/loop/test_,plan.py timing.py)
NOT_SHAPES := not learns and not rises and not teach and not lowers and not solved and not resumed and not controllers \
  and not decorator and not hot_loop
ARGS ?=
DOCS = NO_MKDOCS_2_WARNING=1 PYTHONPATH=. $(BIN)/python -m mkdocs build --strict
# One thread per process: two test workers on two cores would otherwise fight over them.
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
# Many containers keep Python from writing bytecode: every worker and every program under test would compile anew.
TEST_ENV := $(ONE_THREAD) PYTHONDONTWRITEBYTECODE=

help: ## what can be made
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "make %-12s  %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## the virtual environment .venv, from requirements.lock
	@:

demo: $(STAMP) ## the main job, from demonstrations to a report in runs/demo (ARGS="key=value ...")
	@$(BIN)/robo-rl demo $(ARGS)

test: $(STAMP) ## the tests that this machine can run, without long ones (ARGS="-k name" for some)
	@$(TEST_ENV) $(BIN)/python -m pytest -q -n $(PYTEST_WORKERS) --dist worksteal $(ARGS)

test-long: $(STAMP) ## tests of more than five CPU-seconds, and long flights, which CI runs as well
	@$(TEST_ENV) $(BIN)/python -m pytest -q -n $(PYTEST_WORKERS) --dist worksteal -m "long and not slow" $(ARGS)

test-slow: $(STAMP) ## the exhaustive tests that `make test` leaves out: all MetaWorld tasks, a kill at every disk call, every benchmark with --quick
	@$(TEST_ENV) $(BIN)/python -m pytest -q -n $(PYTEST_WORKERS) --dist worksteal -m slow $(ARGS)

shapes: $(STAMP) ## tests of the pure parts with every call held to its annotations, shapes of tensors included
	@$(TEST_ENV) $(BIN)/python -m pytest -q -n $(PYTEST_WORKERS) --dist worksteal -p tests.shapes $(SHAPE_TESTS) \
	  -m "not slow and not long and not compile and not wrong_types" -k "$(NOT_SHAPES)" $(ARGS)

test-robot: ## the part that a robot installs, on ROBOT_PYTHON (3.10), without trainer and simulators
	@$(ROBOT_PYTHON) -m venv --clear $(ROBOT_VENV)
	@$(ROBOT_VENV)/bin/pip install -qq --disable-pip-version-check '.[robot]' pytest pytest-timeout hypothesis packaging
	@$(TEST_ENV) $(ROBOT_VENV)/bin/python -m pytest -q $(ROBOT_TESTS)

test-mujoco4: $(STAMP) ## scenes and manipulation on MuJoCo 4.0 instead of the lock's 3.9 (MetaWorld needs 3.9)
	@$(PIP) --no-deps --upgrade --target $(MUJOCO4) mujoco==4.0.0 mujoco-core==4.0.0 mujoco-studio==4.0.0
	@$(TEST_ENV) PYTHONPATH=$(MUJOCO4) $(BIN)/python -m pytest -q -n $(PYTEST_WORKERS) --dist worksteal \
	  tests/sim/actuators tests/sim/engines tests/sim/scenes tests/sim/tasks tests/sim/arms

lint: $(STAMP) ## ruff, mypy --strict, import-linter, tables of results, the site of docs/
	@failed=0; \
	$(BIN)/ruff check . || failed=1; \
	$(BIN)/ruff format --check . || failed=1; \
	$(BIN)/mypy || failed=1; \
	$(BIN)/lint-imports || failed=1; \
	$(BIN)/python benchmarks/readme_table.py --check || failed=1; \
	$(DOCS) -q || failed=1; \
	exit $$failed

docs: $(STAMP) ## the site of docs/ in build/site; a broken link fails
	@$(DOCS)
	@echo "Open build/site/index.html. The search works only from a server:"
	@echo "  $(BIN)/python -m http.server 8000 --bind 127.0.0.1 -d build/site, then http://127.0.0.1:8000"

format: $(STAMP) ## let ruff rewrite what it can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

results: $(STAMP) ## the tables of results in README.md and docs/results.md, from benchmarks/results/
	@$(BIN)/python benchmarks/readme_table.py

gpu: $(STAMP) ## all checks and figures that need a GPU (ARGS="--part engine" for one); without one it says so
	@$(ONE_THREAD) $(BIN)/python benchmarks/gpu.py --out $(ARGS)

clean: ## remove .venv, caches and builds; runs and data stay
	@rm -rf $(VENV) $(ROBOT_VENV) $(MUJOCO4) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

# Everything is tested on 3.11; 3.12 works too. Other versions are refused here, with what to do.
$(VENV)/.locked: requirements.lock
	@if [ -L $(VENV) ]; then \
	  echo "$(VENV) is a link, and what it points to would be emptied. Remove the link (rm $(VENV)), or name another" \
	       "folder: make VENV=<folder>" >&2; exit 1; fi
	@python=""; for candidate in $(PYTHON) python3.11 python3.12; do \
	  if $$candidate -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null; \
	  then python=$$candidate; break; fi; done; \
	if [ -z "$$python" ]; then \
	  echo "robo-rl needs Python 3.11 or 3.12, and neither $(PYTHON) nor another one was found. Install it (Debian," \
	       "Ubuntu: apt install python3.11 python3.11-venv), or name yours: make PYTHON=/path/to/python3.11" >&2; \
	  exit 1; fi; \
	echo "Setting up $(VENV) with $$($$python --version) from requirements.lock: once, a few minutes, 2 GB with a CPU torch."; \
	$$python -m venv --clear $(VENV) || { \
	  echo "This Python cannot make a virtual environment. Debian, Ubuntu: apt install python3.11-venv" >&2; exit 1; }
	@$(PIP) --no-deps -r requirements.lock
	@$(PIP) -c requirements.lock "$$(grep '^torch==' requirements.lock)"
	@touch $@

$(STAMP): $(VENV)/.locked setup.cfg setup.py
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@
	@echo "$(VENV) is ready. To use robo-rl in this shell: source $(VENV)/bin/activate"
