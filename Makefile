# make demo   install, build a failing model, reduce it, and show that the repro fails
# make quick  lint, and all tests that need no torch, except those that mostly start and
#             kill processes: after each change
# make test   install, lint, type-check, test; two models of transformers; the tests
#             marked "every_run" that compile with AOTInductor: the tutorial, a CUDA
#             program without a GPU, a sweep over sizes, and others
# make test-all   also every case of repros/ and of tests/planted/, 500 random programs
#                 (an hour and a half), and every model of tests/models/
# make coverage   the lines of shrinkfx, except the worker, that the tests of make quick run
# make reference  write the tables of options in docs/reference.md again
# make docs   the documentation as a site: build/html/index.html
# make dist   the wheel and the source distribution, checked for a registry: dist/
# make test-versions  a short selection of real reductions with each supported pair of
#                 PyTorch and Python: about 5 GB and ten minutes per pair; writes the
#                 table in docs/versions.md
# make test-torch211  the tests of CUDA without a GPU, with torch 2.11 and triton 3.6
# make gpu    on a GPU, in eight minutes: tests/cuda, which columns show each case of
#             repros/cuda_*, and the seconds of a check; with the torch that $(PYTHON)
#             has, nothing is installed

PYTHON ?= python3
BIN := .venv/bin
CASE ?= assert_roll_bound
QUICK := --without-torch -m "not slow and not processes" --hypothesis-profile quick

.PHONY: demo quick test fast aoti test-all coverage test-versions test-torch211 gpu \
	lint reference docs dist clean

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		-c constraints.txt --editable '.[dev]'
	touch $@

# 130 MB to download, 550 MB on disk; only shrinkfx triage --ray needs a part.
.venv/models: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		-c constraints.txt --editable '.[dev,models,ray,release]'
	touch $@

.venv/release: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		-c constraints.txt --editable '.[dev,release]'
	touch $@

demo: .venv/installed
	rm -rf demo
	@echo "the bug of this demo is planted: repros/$(CASE)/planted.py; some minutes"
	$(BIN)/python -W ignore repros/export.py $(CASE) demo/model.pt2
	$(BIN)/shrinkfx demo/model.pt2 --preload repros/$(CASE)/planted.py --out demo/out
	@echo; echo "--- demo/out/repro.py"; cat demo/out/repro.py
	@echo; echo "--- python repro.py, in an empty folder:"
	@mkdir demo/empty && cp demo/out/repro.py demo/empty
	@cd demo/empty && if ../../$(BIN)/python repro.py 2>output.txt; \
		then echo "it passes: something is wrong"; exit 1; fi
	@grep -v '^ ' demo/empty/output.txt | grep -v '^frame' | cut -c1-160 | tail -n 4
	@echo "it fails, as it should"

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy shrinkfx tests benchmarks

quick: lint
	$(BIN)/python -m pytest -n 2 $(QUICK)

test: .venv/models lint
	$(BIN)/python -m pytest -n 2 --dist worksteal --durations 20 \
		-m "not cuda and not slow and (not aoti or every_run)"

# The two halves of make test, for several machines.
fast: .venv/models
	$(BIN)/python -m pytest -n 2 --durations 10

aoti: .venv/models
	$(BIN)/python -m pytest -n 2 --dist worksteal --durations 0 \
		-m "aoti and every_run"

test-all: .venv/models lint
	$(BIN)/python -m pytest -m "not cuda"

coverage: .venv/installed
	$(BIN)/python -m pytest -n 2 $(QUICK) --cov --cov-report term

test-versions:
	$(PYTHON) tests/try_versions.py

# What `make test` runs, with the oldest PyTorch: an environment of its own, with gigabytes
# of CUDA. No GPU is needed; that there is none is part of what it tries.
test-torch211:
	$(PYTHON) -m venv .venv211
	.venv211/bin/python -m pip install --quiet --disable-pip-version-check \
		torch==2.11.0 triton==3.6.0 --editable '.[dev]'
	.venv211/bin/python -m pytest -n 2 --dist worksteal \
		-m "not cuda and not slow and not browser and (not aoti or every_run)"

# Where there is a GPU, its torch is taken as it is, and nothing is installed.
gpu:
	@if $(PYTHON) -c 'import torch' 2>/dev/null; then python=$(PYTHON); \
		else $(MAKE) --silent .venv/installed && python=$(BIN)/python; fi && \
		$$python -W ignore benchmarks/gpu.py

reference: .venv/installed
	$(BIN)/python -m shrinkfx.cli.reference docs/reference.md
	$(BIN)/python benchmarks/campaign/gallery.py

# MkDocs reads one folder: links to the files, which keep their places.
docs: .venv/release
	rm -rf build/site build/html
	mkdir -p build/site/tests build/site/benchmarks
	ln -s $(CURDIR)/*.md $(CURDIR)/docs build/site
	ln -s $(CURDIR)/tests/README.md build/site/tests
	ln -s $(CURDIR)/benchmarks/README.md $(CURDIR)/benchmarks/results build/site/benchmarks
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

dist: .venv/release
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/twine check --strict dist/*

clean:
	rm -rf .venv .venv211 .venv-versions demo build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
