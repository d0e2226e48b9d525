#!/bin/bash
# What CMake makes of LUCE_CUDA_ARCHS: code that the kernels' host side counts on, or a message.
set -euo pipefail
cd "$(dirname "$0")/.."
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
if ! command -v nvcc > /dev/null; then
    echo "configure: skipped: no nvcc"
    exit 0
fi
configure() {
    rm -rf "$place/build"
    cmake -G Ninja -S . -B "$place/build" -DLUCE_CUDA=ON "-DLUCE_CUDA_ARCHS=$1" > "$place/log" 2>&1
}
for wrong in 61 native "75 90a"; do
    if configure "75-real;$wrong" || ! grep -q "LUCE_CUDA_ARCHS: '$wrong' is no" "$place/log"; then
        cat "$place/log"
        echo "configure: '$wrong' is not refused"
        exit 1
    fi
done
configure 90-real || { cat "$place/log"; exit 1; }
grep -q "code=\[sm_90a\]" "$place/build/build.ninja" || { echo "configure: code for 90, without warp-group products"; exit 1; }
echo "configure: architectures are those that kernels are written for"
