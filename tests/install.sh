#!/bin/bash
# What `make install` leaves must be enough to use the command and to build against the library.
set -euo pipefail
cd "$(dirname "$0")/.."
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
make install PREFIX="$place" > "$place/log" 2>&1 || { cat "$place/log"; exit 1; }
"$place/bin/luce" --version
"$place/bin/luce_server" --help > "$place/help" # whole: grep -q would close the pipe early
grep -q "luce serve" "$place/help"
export PKG_CONFIG_PATH="$place/lib/pkgconfig:$place/lib/$(cc -dumpmachine)/pkgconfig"
sed -n '/^```c$/,/^```$/{/^```/!p}' docs/library.md > "$place/use.c"
# shellcheck disable=SC2046
cc -Wall -Wextra -Werror "$place/use.c" $(pkg-config --cflags --libs luce) -o "$place/use"
if "$place/use" nothing.gguf text 2> "$place/says"; then exit 1; fi
grep -q "nothing.gguf: cannot open" "$place/says"
echo "install: the command runs, the program of docs/library.md builds with $(pkg-config --modversion luce)"
