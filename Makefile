# Everything runs in .venv, made on first use: .venv/.runtime is what bsd needs to run, .venv/.installed
# adds what tests and checks need. Versions are those of requirements.lock.

PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK = 1
# A user who has no cache of pip's is left none; an existing one is used.
ifeq ($(PIP_CACHE_DIR)$(wildcard $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/pip $(HOME)/Library/Caches/pip),)
export PIP_NO_CACHE_DIR ?= 1
endif
# Every program that a test starts would compile all of bsd anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-all soak bench growth fleet-scale cost-table lint format lock generated docs deb release booted compat \
	compat-install clean .venv

help: ## this list
	@grep -hE '^[a-z.-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## / · /' | column -t -s '·'

demo: .venv/.runtime ## extract and restore generated sessions, before your eyes
	$(BIN)/bsd demo

# Many tests wait for a daemon, a clock or a disk: four workers on two cores. With more, a slow
# machine misses limits of time that the product promises.
WORKERS ?= $(shell echo $$(( 2 * $$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1) )))

PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -p no:cacheprovider

# What takes minutes and repeats a promise in another form is left to soak (marker `soak`).
# What takes long or needs servers, programs of npm or a browser is left to test-all.
test: .venv ## the tests; some minutes, nothing but .venv is needed
	$(PYTEST) -m "not (slow or chaos or compat or servers or web or soak)" $(TESTS)

# What cannot be installed is skipped, with the reason; with CI=true that is a failure.
test-all: .venv ## also slow tests, the page in Chromium, servers, agents' programs (1.5 GB from npm)
	$(BIN)/python -m tests.compat.install --background || test "$$CI" != true
	$(PYTEST) -m "not soak" --durations=40 $(TESTS)

soak: .venv compat-install ## what test-all leaves out; chaos, crashes and properties at full length: 30 s of writers, 50 kills, 300 examples
	$(BIN)/mypy --platform darwin bsd packaging
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --timeout 3600 -p no:cacheprovider -m "soak and not chaos"
	BSD_CHAOS_SECONDS=30 BSD_KILLS=50 BSD_WORKSPACE_SECONDS=20 \
		$(BIN)/python -m pytest --timeout 3600 -p no:cacheprovider -s -m chaos
	BSD_EXAMPLES=300 $(BIN)/python -m pytest -n $(WORKERS) --timeout 3600 -p no:cacheprovider \
		-m "hypothesis and not daemon"
	BSD_CRASH_ALL=1 BSD_KILL_EVERY=1 \
		$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --timeout 3600 -p no:cacheprovider \
		-m crash
	BSD_FULL_DISKS=30 BSD_MANY_SESSIONS=10000 BSD_MANY_ENTRIES=10000 \
		$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --timeout 3600 -p no:cacheprovider \
		tests/daemon/test_full_disk.py tests/http/web/test_frame.py tests/http/web/test_reading.py

bench: .venv ## measure bsd beside its peers; BENCH_MB=64 sets the corpus
	$(BIN)/python -m tests.bench

growth: .venv ## measure how time and memory grow, and draw tests/bench/growth.svg
	$(BIN)/python -m tests.bench.growth

fleet-scale: .venv ## measure the catalogue with 5 million entries; a quarter of an hour, PostgreSQL's programs
	$(BIN)/python -m tests.bench.fleet_scale

cost-table: .venv ## play recorded sessions back, and write the tables of contrib/docs/cost.md
	$(BIN)/python -m tests.bench.cost_table

lint: .venv ## ruff, mypy, and the floors
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: .venv ## put the code into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Not of .venv/.runtime: what is to be resolved may contradict the lock file that there is.
lock: ## resolve pyproject.toml's requirements anew
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python .ci/lock.py > requirements.lock.new
	mv requirements.lock.new requirements.lock

generated: .venv ## write man page, completions, config/config.json and generated documents anew
	$(BIN)/python packaging/generate.py

# The cache of the generator would lie beside its configuration.
docs: .venv ## build the documents into build/docs/; broken links and files from the network are errors
	$(BIN)/zensical build --strict --clean --config-file .zensical.toml
	rm -rf .cache
	$(BIN)/python packaging/check_site.py build/docs

deb: .venv ## build the Debian package, into dist/
	$(BIN)/python packaging/build_deb.py dist

# RELEASE_URL: where the source archive will be found, for the Homebrew formula.
release: .venv ## build the files of a release, into dist/: archives, deb, SBOM, checksums, notes
	rm -rf dist
	$(BIN)/python packaging/release.py $(if $(RELEASE_URL),--url $(RELEASE_URL)) dist

booted: .venv ## boot a Debian in a container, with the package in it (root; debootstrap, systemd-nspawn)
	BSD_BOOT=$${BSD_BOOT:-$(CURDIR)/build/debian} $(BIN)/python -m pytest -p no:cacheprovider \
		tests/packaging/test_booted.py

compat-install: .venv ## pi, Codex and Claude Code from npm, servers of object storage, into tests/compat (1.7 GB)
	$(BIN)/python -m tests.compat.install

compat: compat-install ## only the tests with the real readers; nothing is skipped
	CI=true $(BIN)/python -m pytest -p no:cacheprovider tests/compat

clean: ## remove what can be made again
	rm -rf .venv .bench .cache build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache \
		.hypothesis tests/compat/node_modules tests/compat/codex/node_modules tests/compat/s3/.venv
	find bsd tests .ci -name __pycache__ -type d -prune -exec rm -rf {} +

.venv: .venv/.installed

.venv/.runtime: pyproject.toml requirements.lock
	@test -n "$(PYTHON)" || { echo "bsd needs Python 3.11 or newer (Debian: apt install python3-venv)" >&2; exit 1; }
	@$(PYTHON) -c "import ensurepip, venv" || { echo "This Python cannot make environments." >&2; \
		echo "Try: apt install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	PIP_CONSTRAINT=requirements.lock PIP_BUILD_CONSTRAINT=requirements.lock \
		$(BIN)/python -m pip install --quiet --editable .
	@touch $@

.venv/.installed: .venv/.runtime
	$(BIN)/python -m pip install --quiet --no-deps -r requirements.lock
	@touch $@
