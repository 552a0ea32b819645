# Everything on a fresh machine: `make demo` or `make test`. Needs Python >= 3.10 and g++; downloads
# PyTorch (several GB) into .venv on first use.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
READY := $(VENV)/.ready
PYTHON_SOURCES := mnemosyne benchmarks demos tests $(filter-out scripts/%.sh,$(wildcard scripts/*))

.PHONY: demo test unit lint build encoder decoder encdec generate clean

demo: $(READY)
	$(RUN) demos/together.py

encoder decoder encdec: $(READY)
	$(RUN) scripts/run-demo $@

test: $(READY)
	$(RUN) -m pytest

unit: $(READY)
	$(RUN) -m pytest tests/unit

lint: $(READY)
	$(VENV)/bin/ruff check $(PYTHON_SOURCES)
	$(VENV)/bin/ruff format --check $(PYTHON_SOURCES)
	$(VENV)/bin/mypy
	$(VENV)/bin/clang-format --dry-run -Werror csrc/*/*.cpp csrc/lane/cuda/*.cpp csrc/client_hook/*.h csrc/common/*.h csrc/lane/*.h csrc/lane/cuda/*.h benchmarks/*.cpp tests/fakecuda/*.cpp tests/fakecuda/*.h tests/fakecuda/*/*.cpp tests/native/*.cpp
	$(RUN) -m mnemosyne.codegen --check

generate: $(READY)
	$(RUN) -m mnemosyne.codegen

# Builds libclient.so and the native module in place.
build: $(READY)
	$(VENV)/bin/pip install --quiet --no-deps --editable .

$(READY): pyproject.toml CMakeLists.txt $(wildcard csrc/*/*)
	test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV); on first use this downloads PyTorch, several GB."
	$(VENV)/bin/pip install --editable '.[dev,demos]'
	touch $@

clean:
	rm -rf build $(VENV) demo-output
