# Two commands are all that a newcomer needs: make run, make test.
# Each installs what it lacks from the distribution's packages; a second run
# installs nothing.

export CGO_ENABLED := 0
BUILD := $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo dev)
LDFLAGS := -s -w -X github.com/openmausbot/botbox/shared/wire.Build=$(BUILD)

.PHONY: build
build:
	go build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/botbox-supervisor ./supervisor
	go build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/botbox ./worker
	go build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/boxentry ./boxprobe/boxentry
	go build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/boxprobe ./boxprobe
