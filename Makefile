# Everything on a fresh machine: `make demo` or `make test`. Needs Python >= 3.10 and g++; downloads
# PyTorch (several GB) into .venv on first use.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
READY := $(VENV)/.ready
PYTHON_SOURCES := mnemosyne benchmarks demos tests $(filter-out scripts/%.sh,$(wildcard scripts/*))

.PHONY: demo test unit lint build encoder decoder encdec generate clean help

demo: $(READY) ## three Transformers train at once, checked against plain PyTorch
	$(RUN) demos/together.py

encoder decoder encdec: $(READY) ## one of the demos
	$(RUN) scripts/run-demo $@

test: $(READY) ## all tests; those of a GPU come last and alone, for they measure
	$(RUN) -m pytest --ignore tests/gpu --numprocesses auto --maxprocesses 4 --dist loadfile; \
	status=$$?; $(RUN) -m pytest tests/gpu && exit $$status

unit: $(READY) ## the tests that start no server
	$(RUN) -m pytest tests/unit

lint: $(READY) ## style, types, generated code
	$(VENV)/bin/ruff check $(PYTHON_SOURCES)
	$(VENV)/bin/ruff format --check $(PYTHON_SOURCES)
	$(VENV)/bin/mypy
	$(VENV)/bin/clang-format --dry-run -Werror csrc/*/*.cpp csrc/lane/cuda/*.cpp csrc/client_hook/*.h csrc/common/*.h csrc/lane/*.h csrc/lane/cuda/*.h benchmarks/*.cpp tests/fakecuda/*.cpp tests/fakecuda/*.h tests/fakecuda/*/*.cpp tests/native/*.cpp
	$(RUN) -m mnemosyne.codegen --check

generate: $(READY) ## writes what is generated from the specification
	$(RUN) -m mnemosyne.codegen

build: $(READY) ## libclient.so and the native module, in place
	$(VENV)/bin/pip install --quiet --no-deps --editable .

$(READY): pyproject.toml CMakeLists.txt $(wildcard csrc/*/*)
	test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV); on first use this downloads PyTorch, several GB."
	$(VENV)/bin/pip install --editable '.[dev,demos]'
	touch $@

clean: ## removes .venv, build and the demo's output
	rm -rf build $(VENV) demo-output

help: ## this list
	@sed -n 's/^\([a-z ]*\):.* ## /\1\t/p' Makefile | expand -t 28
