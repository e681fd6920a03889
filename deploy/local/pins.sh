#!/usr/bin/env bash
# Compiles requirements/all.txt: every dependency pinned and hashed, no index named. `make pins` calls it.
set -euo pipefail
cd "$(dirname "$0")/../.."

members=(pyproject.toml contracts/pyproject.toml services/*/pyproject.toml examples/invoices/pyproject.toml)
ours=()
for member in "${members[@]}"; do
    ours+=(--no-emit-package "$(sed -n 's/^name = "\(.*\)"/\1/p' "$member" | head -n 1)")
done
uv pip compile "${members[@]}" --group check --extra dev --universal --generate-hashes \
    --python-version 3.11 --no-header --no-emit-index-url --no-emit-find-links \
    "${ours[@]}" --quiet -o requirements/all.txt "$@"
if grep -nE '://|^-' requirements/all.txt; then
    echo "pins: requirements/all.txt names a host or an option" >&2
    exit 1
fi
