# A thin face on `cargo xtask`: each command installs what it needs, says so, and does one thing.
# Anything after ARGS= goes to the program that the command runs: make boot ARGS="--memory 2048"

export PATH := $(HOME)/.cargo/bin:$(PATH)
ARGS ?=

help:
	@echo "make build   dist/wireboot.efi (the network boot program), dist/doctor.efi (examines the machine), dist/recorder.efi (its driver), dist/wireboot (the host command)"
	@echo "make boot    build, then boot a virtual machine over the network       (wireboot lab boot)"
	@echo "make bench   build, then measure wireboot beside other network boots   (wireboot lab bench)"
	@echo "make results build, then measure most figures of the documents (hours, as root), ARGS=\"bench-ipv4\" for one"
	@echo "make doctor  build, then measure where the seconds of a network boot go, stock firmware and wireboot, all into docs/results (hours)"
	@echo "make soak    build, start the server ten times beside others, then boot 200 times, with a fault each (wireboot lab soak)"
	@echo "make test    every gate and test, whole boots included; ends with a table"
	@echo "make fuzz    fuzz each parser and the driver, FUZZ_SECONDS=60 each"
	@echo "make mutants change the code and see whether tests notice (hours), ARGS=\"--crate ring\" for one crate"
	@echo "make lint    formatting, clippy, documents, licences and advisories"
	@echo "make clean   remove dist/ and target/"
	@echo 'Pass arguments on with ARGS, for example: make boot ARGS="--help"'

build boot bench results doctor soak test fuzz mutants lint:
	@scripts/setup.sh
	@cargo xtask $@ $(ARGS)

clean:
	rm -rf dist target fuzz/target

.PHONY: help build boot bench results doctor soak test fuzz mutants lint clean
