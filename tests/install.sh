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
cat > "$place/use.c" <<'END'
#include <luce.h>
int main(void)
{
    luce_model *m;
    luce_error err = { 0 };
    luce_model_params nothing = { 0 };
    return luce_model_open(&m, &nothing, &err) == LUCE_E_ARG ? 0 : 1;
}
END
# shellcheck disable=SC2046
cc "$place/use.c" $(pkg-config --cflags --libs luce) -o "$place/use"
"$place/use"
echo "install: the command runs, a program builds with $(pkg-config --modversion luce)"
