# Two commands are all that a newcomer needs: make run, make test.
# Each installs what it lacks from the distribution's packages; a second run
# installs nothing.

export CGO_ENABLED := 0
BUILD ?= $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo dev)
GOBUILD = go build -trimpath -buildvcs=false -ldflags '-s -w -X github.com/openmausbot/botbox/shared/wire.Build=$(BUILD)'
ARGS ?=

# Tests of the supervisor, and those that become another user, need root. Its
# HOME is its own, so that no file of root's gets into the caller's caches.
ROOT = $(if $(filter 0,$(shell id -u)),,sudo env "PATH=$$PATH" "CGO_ENABLED=$$CGO_ENABLED" "BOTBOX_MUST_RUN=$$BOTBOX_MUST_RUN" "BOTBOX_FRESH=$$BOTBOX_FRESH")

.PHONY: install uninstall deb build run test test-vm test-systemd test-image test-fresh image check bench fuzz setup-run setup-test clean

build:
	@mkdir -p bin
	$(GOBUILD) -o bin/botbox-supervisor ./supervisor
	$(GOBUILD) -o bin/botbox ./worker
	$(GOBUILD) -o bin/boxentry ./boxprobe/boxentry
	$(GOBUILD) -o bin/boxprobe ./boxprobe

# The demonstration, or what ARGS names: make run ARGS='-- claude -p hello'
run: setup-run build
	@$(GOBUILD) -o bin/standin ./testbed/standin
	@$(GOBUILD) -o bin/sweeper ./testbed/sweeper
	@sh testbed/demo/run.sh $(ARGS)

# Everything, with real boxes, sockets, namespaces and a real engine. One
# package after the other: their tests start hundreds of processes, and time
# limits are kept on a quiet machine only. A part of it: make test TESTS=./shared/...
TESTS ?= ./...
test: setup-test build
	$(ROOT) go test -count=1 -p 1 -timeout 40m $(TESTS)

# The part of it that boots virtual machines: cgroup limits, Landlock, AppArmor
# and vsock for real, the report for the host, an engine's turn, and the
# supervisor as the first process of a machine.
test-vm: setup-test
	$(ROOT) go test -count=1 -v ./testbed/vm

# The unit, the account, the journal and the watchdog under a real systemd.
test-systemd: setup-test
	$(ROOT) go test -count=1 -v ./testbed/systemd

# The two commands, the Debian package and the page for a laptop, each on a fresh
# Debian 12 and 13. BOTBOX_FRESH=all runs all of `make test` there, not a part.
test-fresh: setup-test
	$(ROOT) go test -count=1 -v -timeout 3h ./testbed/fresh

# The Dockerfile, built and run with every set of flags.
test-image: setup-test
	$(ROOT) go test -count=1 -v ./testbed/image

# The image, with whatever builds images here: make image CONTAINER=podman. It
# is started once to see what it needs.
CONTAINER ?= docker
image:
	$(CONTAINER) build --build-arg BUILD=$(BUILD) -t botbox .
	sh testbed/image/figures.sh $(CONTAINER) botbox

# What a change has to pass before it is handed in. The other beds run programs
# that are built without -race, once in test.
RACED_BEDS = ./testbed ./testbed/provider ./testbed/rig ./testbed/vsockhost
check: test
	@test -z "$$(gofmt -l .)" || { gofmt -l .; exit 1; }
	go vet ./...
	go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...
	CGO_ENABLED=1 $(ROOT) go test -count=1 -p 1 -race ./shared/... ./worker/internal/... $(RACED_BEDS)
	$(MAKE) fuzz FUZZTIME=10s

# Every fuzz target, one after the other.
FUZZTIME ?= 60s
fuzz:
	@go list -f '{{.Dir}}' ./... | while read -r dir; do \
		for target in $$(grep -ho '^func Fuzz[A-Za-z0-9]*' "$$dir"/*_test.go 2>/dev/null | cut -c6-); do \
			echo "$$dir $$target"; \
			go test "$$dir" -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) || exit 1; \
		done; \
	done

# The programs, the unit, the account's and the journal's data, man pages and
# completions. Nothing is started; DESTDIR is for packages. The worker's program
# is 0711: who cannot read it cannot look into its process either.
LIBEXEC = $(DESTDIR)/usr/libexec/botbox
SHARE = $(DESTDIR)/usr/share
SYSTEMD = $(DESTDIR)/usr/lib
install: build
	install -d -m 755 $(LIBEXEC) $(DESTDIR)/usr/bin $(SHARE)/man/man1 $(SHARE)/bash-completion/completions \
		$(SYSTEMD)/systemd/system $(SYSTEMD)/systemd/catalog $(SYSTEMD)/sysusers.d $(SYSTEMD)/tmpfiles.d
	install -m 755 bin/botbox-supervisor bin/boxentry bin/boxprobe $(LIBEXEC)
	install -m 711 bin/botbox $(LIBEXEC)
	ln -sfn ../libexec/botbox/botbox $(DESTDIR)/usr/bin/botbox
	umask 022 && bin/botbox man >$(SHARE)/man/man1/botbox.1
	umask 022 && bin/botbox completion bash >$(SHARE)/bash-completion/completions/botbox
	install -m 644 init/systemd/botbox.service $(SYSTEMD)/systemd/system/botbox.service
	install -m 644 init/systemd/botbox.catalog $(SYSTEMD)/systemd/catalog/botbox.catalog
	install -m 644 init/systemd/botbox.sysusers.conf $(SYSTEMD)/sysusers.d/botbox.conf
	install -m 644 init/systemd/botbox.tmpfiles.conf $(SYSTEMD)/tmpfiles.d/botbox.conf

# Everything that install put there, and nothing else.
uninstall:
	rm -f $(LIBEXEC)/botbox-supervisor $(LIBEXEC)/botbox $(LIBEXEC)/boxentry $(LIBEXEC)/boxprobe $(DESTDIR)/usr/bin/botbox \
		$(SHARE)/man/man1/botbox.1 $(SHARE)/bash-completion/completions/botbox \
		$(SYSTEMD)/systemd/system/botbox.service $(SYSTEMD)/systemd/catalog/botbox.catalog \
		$(SYSTEMD)/sysusers.d/botbox.conf $(SYSTEMD)/tmpfiles.d/botbox.conf
	[ ! -d $(LIBEXEC) ] || rmdir --ignore-fail-on-non-empty $(LIBEXEC)

# A Debian package of it, in bin: the same bytes each time for one commit.
deb:
	@BUILD=$(BUILD) sh init/debian/package.sh bin

bench: setup-test build
	go run ./bench
	go run ./bench/gates

setup-run:
	@sh testbed/setup.sh run

setup-test:
	@sh testbed/setup.sh test

clean:
	rm -rf bin
