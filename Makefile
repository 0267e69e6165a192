# What a newcomer runs; `make` alone lists it. A Rust toolchain, Python 3.11 or newer, make and the package
# registries are enough: the rest goes into .venv, .cache, dist, out and target, which `make clean` removes.
#
# Each step leaves a stamp in .venv that is older than what it was made from when it must run again, so that
# a second `make test` builds nothing.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
DENY_VERSION := 0.20.2
DENY := .cache/cargo-deny-$(DENY_VERSION)/bin/cargo-deny

# pyo3 is compiled again whenever these change, so they are the same for cargo and for maturin.
export PYO3_PYTHON := $(CURDIR)/$(BIN)/python
export PYO3_BUILD_EXTENSION_MODULE := 1

# Folders are among the sources so that a deleted file counts as a change.
SOURCES := Cargo.toml Cargo.lock pyproject.toml requirements/build.txt $(shell find crates proto python \
	-name __pycache__ -prune -o \( -type d -o -name '*.rs' -o -name '*.toml' -o -name '*.proto' \
	-o -name '*.py' -o -name '*.pyi' -o -name py.typed \) -print)
PYTHON_SOURCES := $(wildcard python tests/python examples benchmarks site .ci)

##@ Use

.PHONY: demo
demo: .venv/.wheel .venv/.demo ## Train from slow storage with and without Hotset (DATA=folder: your images)
	$(BIN)/python -m examples.demo $(if $(DATA),--data "$(DATA)") $(ARGS)

.PHONY: demo-cluster
demo-cluster: .venv/.wheel .venv/.demo etcd ## Train over three nodes and an etcd on this machine, and kill a node
	$(BIN)/python -m examples.cluster $(ARGS)

.PHONY: wheel
wheel: .venv/.wheel ## Build the Python wheel into dist/ and install it into .venv
	@ls -l dist/*.whl

.PHONY: release-wheel
release-wheel: .venv/.release ## Build a wheel for any Linux with glibc 2.28 or newer into out/release/
	@rm -f out/release/*.whl
	CARGO_ZIGBUILD_PYTHON_PATH=$(CURDIR)/$(BIN)/python \
		$(BIN)/maturin build --release --zig --compatibility manylinux_2_28 --out out/release
	$(BIN)/auditwheel show out/release/*.whl

.PHONY: sdist
sdist: .venv/.release ## Build the source distribution into out/release/
	@rm -f out/release/*.tar.gz
	$(BIN)/maturin sdist --out out/release

.PHONY: docs
docs: .venv/.docs ## Build the documentation as a site into out/site/, and check its links
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict --config-file site/mkdocs.yml
	@echo "out/site/index.html"

.PHONY: docs-picture
docs-picture: docs ## Take a picture of the site's front page, with Chromium
	$(call debian,chromium,chromium)
	@mkdir -p docs/pictures
	chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --host-resolver-rules="MAP * ~NOTFOUND" \
		--window-size=1280,1500 --screenshot=docs/pictures/site.png file://$(CURDIR)/out/site/index.html

.PHONY: bench
bench: .venv/.wheel .venv/.bench redis ## Measure the hit path beside the page cache and Redis
	$(BIN)/python -m benchmarks.hits $(ARGS)

.PHONY: bench-store
bench-store: .venv/.wheel ## Measure a miss-only epoch and a listing of 1.28 million keys beside their limits
	$(BIN)/python -m benchmarks.store.miss_path
	$(BIN)/python -m benchmarks.store.listing

.PHONY: bench-live
bench-live: .venv/.wheel ## Measure what strategies and policies save on storage bound by requests, bytes or nothing
	$(BIN)/python -m benchmarks.live.savings $(ARGS)
	$(BIN)/python -m benchmarks.live.savings --bound bytes --repeat 1
	$(BIN)/python -m benchmarks.live.savings --bound compute $(ARGS)
	$(BIN)/python -m benchmarks.live.reports

.PHONY: bench-peers
bench-peers: .venv/.wheel ## Measure Hotset beside other loaders on one slow store, counted there (ARGS=--quick)
	$(BIN)/python -m benchmarks.peers $(ARGS)

.PHONY: soak
soak: .venv/.wheel ## Train six jobs for MINUTES=30 while jobs, servers and storage fail, and look for what is amiss
	$(BIN)/python -m benchmarks.soak --jobs 6 --minutes $(or $(MINUTES),30) $(ARGS)

##@ Develop

.PHONY: test
test: .venv/.wheel azurite etcd ## Run all Rust and Python tests and print their counts
	@.ci/test

.PHONY: lint
lint: .venv/.wheel deny ## Check formats, lints, types, documentation and licences
	cargo fmt --all --check
	cargo clippy --release --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --release --workspace --no-deps
	$(BIN)/ruff check $(PYTHON_SOURCES)
	$(BIN)/ruff format --check $(PYTHON_SOURCES)
	$(BIN)/mypy python/hotset $(wildcard examples/demo examples/cluster) $(wildcard benchmarks)
	$(BIN)/python -m mypy.stubtest hotset._core --allowlist <(echo hotset._core.__all__) # pyo3 adds it
	@echo "lint: all clean"

.PHONY: deny
deny: $(DENY) ## Check licences, banned crates and sources of all dependencies
	$(DENY) --log-level error check licenses bans sources

.PHONY: ci
ci: ## Tests, then all checks, as CI runs them
	@.ci/run

.PHONY: fmt
fmt: .venv/.requirements ## Format Rust and Python
	cargo fmt --all
	$(BIN)/ruff check --fix --quiet $(PYTHON_SOURCES)
	$(BIN)/ruff format $(PYTHON_SOURCES)

.PHONY: clean
clean: ## Remove everything that was built, downloaded or measured
	rm -rf .venv .cache dist out target .pytest_cache .mypy_cache .ruff_cache
	find python tests examples benchmarks -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

.PHONY: help
help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@/ { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# --- the environment -------------------------------------------------------------------------------------

.venv/.created:
	@command -v cargo >/dev/null || { echo "cargo is missing: install a Rust toolchain first" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "$(PYTHON) is older than 3.11: make PYTHON=<a newer one>" >&2; exit 1; }
	@if [ ! -x $(BIN)/python ]; then \
		if $(PYTHON) -c 'import torch' 2>/dev/null; then site=--system-site-packages; else site=; fi; \
		$(PYTHON) -m venv $$site .venv; \
	fi
	@touch $@

# A torch that the base Python has is kept, with the torchvision that fits it.
.venv/.torch: .venv/.created requirements/torch.txt
	@if $(BIN)/python -c 'import torch, torchvision' 2>/dev/null; then \
		:; \
	elif $(BIN)/python -c 'import torch' 2>/dev/null; then \
		$(INSTALL) torchvision "torch==$$($(BIN)/python -c 'import torch; print(torch.__version__)')"; \
	else \
		echo "installing torch (once; some minutes)"; \
		$(INSTALL) -r requirements/torch.txt; \
	fi
	@touch $@

# The Azure server of the tests, where there is npm to install it; without it those tests are skipped, and say so.
.PHONY: azurite
azurite: .cache/azurite/.installed ## Install the Azure server of the tests, if npm is there

.cache/azurite/.installed: requirements/azurite/package.json requirements/azurite/package-lock.json
	@mkdir -p $(@D) && cp $^ $(@D)
	@if command -v npm >/dev/null && command -v node >/dev/null; then \
		echo "installing Azurite (once; half a minute)"; \
		(cd $(@D) && npm ci --silent --omit=dev --omit=optional --ignore-scripts --no-audit --no-fund && touch $(@F)) \
			|| echo "Azurite could not be installed: the tests of az:// will be skipped" >&2; \
	else \
		echo "npm is missing: the tests of az:// will be skipped"; \
	fi

.venv/.requirements: .venv/.torch requirements/build.txt requirements/test.txt requirements/s3.txt \
		requirements/frameworks.txt
	@echo "installing what build and tests need"
	@$(INSTALL) -r requirements/build.txt -r requirements/test.txt
	@$(INSTALL) --no-deps -r requirements/s3.txt
	@$(INSTALL) --no-deps -r requirements/frameworks.txt
	@touch $@

.venv/.demo .venv/.bench: .venv/.%: requirements/%.txt requirements/test.txt .venv/.requirements
	@echo "installing what make $* needs"
	@$(INSTALL) -r $<
	@touch $@

# Neither packages nor pages need torch.
.venv/.docs .venv/.release: .venv/.%: requirements/%.txt requirements/build.txt requirements/test.txt .venv/.created
	@echo "installing what builds $*"
	@$(INSTALL) -r $<
	@touch $@

.venv/.wheel: .venv/.requirements $(SOURCES)
	@rm -rf dist
	$(BIN)/maturin build --release --out dist
	@$(INSTALL) --force-reinstall --no-deps dist/*.whl
	@touch $@

$(DENY):
	@echo "building cargo-deny $(DENY_VERSION) (once; about a minute)"
	@cargo install cargo-deny --version $(DENY_VERSION) --locked --debug --quiet \
		--root .cache/cargo-deny-$(DENY_VERSION) --target-dir .cache/cargo-deny-target
	@rm -rf .cache/cargo-deny-target

# What Debian has of the servers that tests and benchmarks run beside Hotset: command, package, and the exit code where it is
# missing and cannot be installed.
define debian
	@command -v $(1) >/dev/null || { \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "installing $(2)"; \
			apt-get install --yes --quiet=2 $(2) >/dev/null \
				|| { apt-get update --quiet=2 && apt-get install --yes --quiet=2 $(2) >/dev/null; }; \
		else \
			echo "$(1) is missing: install it (Debian: apt-get install $(2))" >&2; exit $(3); \
		fi; }
endef

.PHONY: redis
redis:
	$(call debian,redis-server,redis-server,1)

.PHONY: etcd
etcd: ## Install etcd and what else the tests of clusters run on; without it they are skipped
	$(call debian,etcd,etcd-server,0)
	$(call debian,etcdctl,etcd-client,0)
	$(call debian,ip,iproute2,0)
	$(call debian,openssl,openssl,0)
