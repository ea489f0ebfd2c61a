# The image: bubblewrap, the four programs and the account maus. One target.
#
#   docker build --build-arg BUILD="$(git rev-parse --short=12 HEAD)" -t botbox .
#   docker run --rm -it --cap-add SYS_ADMIN --security-opt seccomp=init/docker-seccomp.json \
#       --security-opt systempaths=unconfined --security-opt apparmor=unconfined \
#       -v "$PWD:/workspace" -e ANTHROPIC_API_KEY botbox claude -p hello
#
# Build arguments:
#   BUILD     the name of the build, in all four programs
#   ENGINES   npm packages to install for everybody, such as "@anthropic-ai/claude-code"; brings Debian's nodejs
#   PACKAGES  Debian packages that boxes shall have, such as "git curl"
#   GOPROXY   where the modules come from; file:///… builds without a network

FROM golang:1.26-trixie AS build
ARG BUILD=dev
ARG GOPROXY
ARG GOFLAGS
WORKDIR /src
COPY . .
# The Makefile's own flags: the programs are the same, byte for byte.
RUN export CGO_ENABLED=0 GOTOOLCHAIN=local && mkdir /out && \
	build() { go build -trimpath -buildvcs=false -ldflags "-s -w -X github.com/openmausbot/botbox/shared/wire.Build=$BUILD" -o "/out/$1" "$2"; } && \
	build botbox-supervisor ./supervisor && \
	build botbox ./worker && \
	build boxentry ./boxprobe/boxentry && \
	build boxprobe ./boxprobe && \
	chmod 755 /out/* && \
	chmod 711 /out/botbox

# Debian's npm brings hundreds of packages, so it stays behind. Unquoted on
# purpose: one word a package. Some packages have files that anybody may write.
FROM debian:trixie-slim AS engines
ARG ENGINES=""
RUN mkdir /engines && if [ -n "$ENGINES" ]; then \
	export DEBIAN_FRONTEND=noninteractive && apt-get update -q && \
	apt-get install -y -q --no-install-recommends ca-certificates nodejs npm && \
	npm install --global --prefix /engines --no-fund --no-audit --no-update-notifier -- $ENGINES && \
	chown -R root:root /engines && chmod -R go-w /engines; fi

FROM debian:trixie-slim
ARG PACKAGES=""
ARG ENGINES=""
RUN export DEBIAN_FRONTEND=noninteractive && apt-get update -q && \
	apt-get install -y -q --no-install-recommends bubblewrap ca-certificates $PACKAGES ${ENGINES:+nodejs} && \
	rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin
COPY --from=engines /engines/ /usr/local/

# The account that worker and boxes run as, and the one folder that is theirs.
RUN useradd --system --create-home --shell /usr/sbin/nologin maus && install -d -o maus -g maus /workspace
COPY --from=build /out/ /usr/libexec/botbox/
RUN ln -s ../libexec/botbox/botbox /usr/bin/botbox

# Audit: what boxes see as the machine is root's, nobody else can write it, the
# programs are one build, and nothing that the box needs is missing. Whether the
# place that the container runs in allows boxes is not the image's affair.
RUN set -eu; \
	strange=$(find /usr /etc /opt ! -type l '(' ! -user root -o -perm /022 ')'); \
	if [ -n "$strange" ]; then echo "audit: not root's alone: $strange" >&2; exit 1; fi; \
	if [ "$(stat -c %a /usr/libexec/botbox/botbox)" != 711 ]; then echo "audit: botbox can be read" >&2; exit 1; fi; \
	build=$(botbox version); build=${build#botbox }; \
	if [ "$(/usr/libexec/botbox/botbox-supervisor --version)" != "botbox-supervisor $build" ]; then echo "audit: two builds" >&2; exit 1; fi; \
	said=$(setpriv --reuid maus --regid maus --clear-groups env HOME=/home/maus OMB_BOT_BOX=1 botbox detect --json) || true; \
	case $said in \
	*'"reason":null'* | *'"userns-'* | *'"mount-refused"'* | *'"proc-masked"'* | *'"net-refused"'*) echo "audit: $said" ;; \
	*) echo "audit: $said" >&2; exit 1 ;; \
	esac

# What a connector that grants capabilities may rely on: the first process needs
# SYS_ADMIN once, to remount /proc with hidepid, and SETPCAP once, to give up
# both and all but SETUID, SETGID and KILL before it starts anything.
LABEL org.openmausbot.botbox.gives-up="SYS_ADMIN SETPCAP"
# Here the box is on: a command runs in one, or not at all.
ENV OMB_BOT_BOX=1
WORKDIR /workspace
# With no command it serves until stopped; --plain -- CMD is a server that asks for boxes.
ENTRYPOINT ["/usr/libexec/botbox/botbox-supervisor"]
