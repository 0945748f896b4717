# Two commands are enough on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
TORCH  ?= torch==2.13.0
BIN    := $(VENV)/bin
comma  := ,
# The tests of a file stay together: they share what they build.
ABREAST ?= -n auto --dist loadfile

.PHONY: docs look pictures demo test test-all test-fast lint spec evidence evidence-anew bench clean

# The stamp depends on pyproject.toml, so that a changed dependency installs itself.
$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(if $(TORCH),$(BIN)/python -m pip install --quiet '$(TORCH)')
	$(BIN)/python -m pip install --quiet --editable '.[dev$(if $(TORCH),$(comma)trainers$(comma)onnxruntime)]'
	$(BIN)/python -m compileall -q src  # as installing a wheel does; start-up then compiles nothing
	touch $@

demo: $(VENV)/.ready
	$(BIN)/weighbridge demo

test: $(VENV)/.ready
	$(BIN)/python -m pytest $(ABREAST) -m 'not exhaustive'

test-all: $(VENV)/.ready
	$(BIN)/python -m pytest $(ABREAST)

test-fast: $(VENV)/.ready
	$(BIN)/python -m pytest $(ABREAST) -m 'not slow and not exhaustive' --hypothesis-profile quick

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/weighbridge lint

# The page of spec/ that follows from the code.
spec: $(VENV)/.ready
	$(BIN)/weighbridge schema --quantities > spec/quantities.md

# The documentation as a site, strictly: a dead link or a warning ends it. It needs neither torch nor the tests.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

$(VENV)/.docs: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	touch $@

# The page in headless Chromium: CHROMIUM, or the one on the path; it fails without one and where the console says anything.
look: $(VENV)/.ready
	$(BIN)/python scripts/look.py --demo --into .weighbridge/look --keep docs/pictures/page.png

# The pictures of the documentation, of what the commands print today.
pictures: $(VENV)/.ready
	$(BIN)/python scripts/terminal_picture.py

# What this project has shown of itself: measured again where it is STALE or missing, on a checkout without changes.
evidence: $(VENV)/.ready
	$(BIN)/python scripts/record_evidence.py $(CONTRACTS)

# The same from nothing; until a release is tagged.
evidence-anew: $(VENV)/.ready
	$(BIN)/python scripts/record_evidence.py --anew

# What measures a cost and needs no argument; the other benchmarks say in their first lines what they read.
bench: $(VENV)/.ready
	for bench in compare evidence forward_parity gguf_header label_plausibility ledger packed recorder report_page run_log \
	    start_up traces trials watched_log watching; do \
	  $(BIN)/python -m benchmarks.$$bench || exit 1; done

clean:
	rm -rf $(VENV) .weighbridge build dist
