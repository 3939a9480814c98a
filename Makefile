# Both commands set everything up on a fresh machine; the second time nothing is installed again.
# Paths are relative throughout, because make takes no target with a space in its name.

PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
# Scripts in $(BIN) name their interpreter by an absolute path; modules do not need one.
RUN := $(BIN)/python -m

.PHONY: run test format next

run: $(INSTALLED)
	$(RUN) graphmamba train
	@$(MAKE) --no-print-directory next

test: $(INSTALLED)
	$(RUN) ruff format --check .
	$(RUN) ruff check .
	$(RUN) mypy
	$(RUN) pytest -n 2 --dist worksteal
	@$(MAKE) --no-print-directory next

format: $(INSTALLED)
	$(RUN) ruff format .
	$(RUN) ruff check --fix .

next:
	@echo
	@echo "What to type next:"
	@echo "    source .venv/bin/activate"
	@echo "    graphmamba --help"

# The exact pins come first: torch==2.13.0 takes the CPU build where one is on offer.
$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing into .venv; this takes a few minutes"
	$(RUN) pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@
