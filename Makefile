# make nightly   environment, CPU zoo, database, summary     make dashboard   look at it
# make test      the test suite                              make check       lint, types, import rules, tests
# make gpu       the tests that need a GPU, file by file     PYTHON=python3 runs them with a Python of yours
# make chaos     kills, full disks, damage and thousands of mutated inputs; another seed tries others (SEED=2)
# TORCH=torch==2.12.0 chooses another torch; TORCH_INDEX_URL an index to take it from; VENV another folder.
PYTHON ?= python3
VENV ?= .venv
DB ?= inductor-watch.db
# On a CPU half of the cores, which then share them; on a GPU as many as the command itself takes.
WORKERS ?= $(shell command -v nvidia-smi >/dev/null && exit; n=$$(nproc); if [ $$n -ge 8 ]; then echo $$((n / 2)); \
    elif [ $$n -ge 2 ]; then echo 2; else echo 1; fi)
export PYTHONDONTWRITEBYTECODE ?= 1

.PHONY: help setup nightly dashboard test check lint slow gpu browser data hostile chaos bench-store bench-dashboard
help:
	@sed -n '1,5p' Makefile | cut -c3-

# Each recipe asks the bootstrap for the Python to use, which is all that it prints to standard output: no pipe hides
# that it failed. It installs nothing that is already there.
BOOTSTRAP = $(PYTHON) scripts/bootstrap.py $(VENV)

setup:
	@$(BOOTSTRAP)

nightly:
	@python=$$($(BOOTSTRAP)) && $$python -m jobs.cli nightly --db $(DB) $(addprefix --workers ,$(WORKERS)) $(NIGHTLY)

dashboard:
	@python=$$($(BOOTSTRAP)) && INDUCTOR_WATCH_DB=$(DB) $$python -m streamlit run dashboard/app.py

data:
	@python=$$($(BOOTSTRAP)) && $$python -m jobs.cli ingest data/nights --db $(DB)

test:
	@python=$$($(BOOTSTRAP) --dev) && $$python -m pytest -n 2 --dist worksteal $(PYTEST)

slow:
	@python=$$($(BOOTSTRAP) --dev) && $$python -m pytest -m "slow and not gpu" $(PYTEST)

# Each file in a process of its own. The Python needs torch for CUDA and pytest; without PYTHON=... it is that of .venv.
gpu:
	@python=$(if $(filter file,$(origin PYTHON)),$$($(BOOTSTRAP) --dev),$(PYTHON)) && exec $$python scripts/gpu_tests.py $(PYTEST)

# The dashboard in a real browser, slow tests too; SCREENSHOTS=FOLDER keeps a picture of every page.
browser:
	@python=$$($(BOOTSTRAP) --dev) && INDUCTOR_WATCH_SCREENSHOTS=$${INDUCTOR_WATCH_SCREENSHOTS:-$(SCREENSHOTS)} \
	    $$python -m pytest -m "not gpu" tests/e2e/test_browser.py tests/e2e/test_tasks.py \
	    tests/e2e/test_real_data.py tests/e2e/test_accessibility.py tests/e2e/test_site.py $(PYTEST)

# The tests on a machine that is set up badly, in random order; HOSTILE="--cores 1 --no-uv --seed 7 tests/jobs".
hostile:
	@python=$$($(BOOTSTRAP) --dev) && $$python scripts/hostile.py -n 2 --dist worksteal $(HOSTILE)

chaos:
	@python=$$($(BOOTSTRAP) --dev) && INDUCTOR_WATCH_CHAOS=$(or $(SEED),1) \
	    $$python -m pytest -m "not gpu" --timeout 1800 tests/chaos $(PYTEST)

lint:
	@python=$$($(BOOTSTRAP) --dev) && $$python -m ruff check . && $$python -m ruff format --check . && \
	    $$python -m mypy && bin=$$(dirname $$python) && $$bin/lint-imports && \
	    $$bin/zizmor --offline --quiet --no-progress --persona pedantic .github action.yml && \
	    $$bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml && \
	    $$bin/check-jsonschema --builtin-schema custom.github-workflows-require-timeout .github/workflows/*.yml && \
	    $$bin/check-jsonschema --builtin-schema vendor.github-actions action.yml

check: lint test

# How fast and how large a full store is, on both databases; a few minutes. STORE="--commits 60" makes it smaller.
bench-store:
	@python=$$($(BOOTSTRAP) --dev) && $$python -m benchmarks store --postgres $(STORE)

# How fast the dashboard answers on a full store, in headless Chromium; ten minutes. DASHBOARD="--db FILE --rounds 2" keeps the store.
bench-dashboard:
	@python=$$($(BOOTSTRAP) --dev) && $$python -m benchmarks dashboard $(DASHBOARD)
