#!/bin/sh
# Compiles steer.bpf.c to the object that the crate embeds: build.sh [OUTPUT]
# Needs clang, llvm-strip and libbpf's headers. The object holds no path of the machine it is made on.
set -eu
directory=$(cd "$(dirname "$0")" && pwd)
output=${1:-$directory/steer.bpf.o}
case $output in /*) ;; *) output=$PWD/$output ;; esac
cd "$directory"
multiarch=/usr/include/$(uname -m)-linux-gnu
${CLANG:-clang} -O2 -g -Wall -Werror -target bpf -mcpu=v3 -fdebug-prefix-map="$directory"=. \
    -fdebug-compilation-dir=. -isystem "$multiarch" -c steer.bpf.c -o "$output"
# DWARF and line information go; the BTF that describes the maps stays.
${LLVM_STRIP:-llvm-strip} -g -x --remove-section .BTF.ext --remove-section .rel.BTF.ext "$output"
