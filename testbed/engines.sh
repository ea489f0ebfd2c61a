#!/bin/sh
# engines.sh - install the engines that the tests run, and print where they are.
#
#   testbed/engines.sh NAME        prints the path of the engine's program
#
# NAME is a row of the table below; without one it is claude. The version is
# the one of testbed/engines/package.json. The package comes
# through npm, from whatever registry npm is set up to use. The cache folder is
# <repository>/.cache/engines, or BOTBOX_ENGINES_DIR; a second run finds the
# program there and does nothing. What is done is said on stderr.
set -eu

fail() {
	printf 'engines.sh: %s\n' "$1" >&2
	printf 'hint: %s\n' "$2" >&2
	exit 1
}

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
pins=$here/engines/package.json

# Row: name, package, program. A new engine is a line here and a pin in
# package.json.
case ${1:-claude} in
claude) package=@anthropic-ai/claude-code program=claude ;;
codex) package=@openai/codex program=codex ;;
gemini) package=@google/gemini-cli program=gemini ;;
opencode) package=opencode-ai program=opencode ;;
grok) package=@vibe-kit/grok-cli program=grok ;;
# No engine: the first Node line whose fetch knows proxies. Debian's is older.
node) package=node program=node ;;
*) fail "no such engine: $1" "known: claude codex gemini opencode grok node" ;;
esac

version=$(sed -n "s|^ *\"$package\": *\"\([0-9][0-9A-Za-z.-]*\)\",*\$|\1|p" "$pins")
[ -n "$version" ] || fail "$package has no exact version in $pins" "write one, without ^ or ~"

cache=${BOTBOX_ENGINES_DIR:-$here/../.cache/engines}
mkdir -p "$cache"
cache=$(CDPATH='' cd -- "$cache" && pwd)
final=$cache/${package##*/}-$version
bin=$final/node_modules/.bin/$program

if [ ! -x "$bin" ]; then
	command -v npm >/dev/null || fail "npm is not installed" "run testbed/setup.sh test"
	# The folder ignores itself, so no clean checkout ever offers it to git.
	[ -e "$cache/.gitignore" ] || printf '*\n' >"$cache/.gitignore"
	# Installed aside and renamed: a broken download never looks finished.
	work=$(mktemp -d "$cache/.new.XXXXXX")
	trap 'rm -rf -- "$work"' EXIT
	printf 'engines.sh: installing %s %s in %s\n' "$package" "$version" "$final" >&2
	printf '{"private": true}\n' >"$work/package.json"
	# The vendor's install script puts the native program in place of a
	# placeholder, so install scripts must run.
	npm install --prefix "$work" --no-package-lock --no-audit --no-fund \
		--no-save --loglevel=error --ignore-scripts=false \
		"$package@$version" >&2 ||
		fail "npm could not install $package $version" "see npm's own lines above"
	# The tests run engines as an unprivileged user.
	chmod -R a+rX "$work"
	rm -rf -- "$final"
	mv -- "$work" "$final"
	trap - EXIT
fi
[ -x "$bin" ] || fail "$bin is missing after the installation" "remove $final and try again"
printf '%s\n' "$bin"
