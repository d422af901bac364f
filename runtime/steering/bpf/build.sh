#!/bin/sh
# Compiles steer.bpf.c and ingress.bpf.c to the objects that the crate embeds: build.sh [DIRECTORY]
# Needs clang, llvm-strip and libbpf's headers. The objects hold no path of the machine they are made on.
set -eu
directory=$(cd "$(dirname "$0")" && pwd)
output=${1:-$directory}
case $output in /*) ;; *) output=$PWD/$output ;; esac
cd "$directory"
multiarch=/usr/include/$(uname -m)-linux-gnu
for program in steer ingress; do
    object=$output/$program.bpf.o
    ${CLANG:-clang} -O2 -g -Wall -Werror -target bpf -mcpu=v3 -fdebug-prefix-map="$directory"=. \
        -fdebug-compilation-dir=. -isystem "$multiarch" -c $program.bpf.c -o "$object"
    # DWARF and line information go; the BTF that describes the maps stays.
    ${LLVM_STRIP:-llvm-strip} -g -x --remove-section .BTF.ext --remove-section .rel.BTF.ext "$object"
done
