#!/usr/bin/env bash
# Compiles requirements/: every dependency pinned and hashed, no index named. `make pins` calls it.
#   all.txt      a clone: runtime, checks, embedded servers, examples
#   runtime.txt  an image: what the services import (the same versions)
#   build.txt    an image's build stage: what makes our wheels
#   node.txt     Node.js, for machines that have none (deploy/local/typescript.sh)
set -euo pipefail
cd "$(dirname "$0")/../.."

members=(pyproject.toml contracts/pyproject.toml services/*/pyproject.toml)
examples=(examples/*/pyproject.toml)
ours=()
for member in "${members[@]}" "${examples[@]}"; do
    ours+=(--no-emit-package "$(sed -n 's/^name = "\(.*\)"/\1/p' "$member" | head -n 1)")
done

compile() {
    local target=$1
    shift
    uv pip compile "$@" --universal --generate-hashes --python-version 3.11 --no-header \
        --no-emit-index-url --no-emit-find-links "${ours[@]}" --quiet -o "requirements/$target"
    if grep -nE '://|^-' "requirements/$target"; then
        echo "pins: requirements/$target names a host or an option" >&2
        exit 1
    fi
}

compile all.txt "${members[@]}" "${examples[@]}" --group check --extra dev --extra traces
compile runtime.txt "${members[@]}" "${examples[@]}" --extra traces --constraints requirements/all.txt
compile build.txt --group build --constraints requirements/all.txt
compile node.txt --group node
