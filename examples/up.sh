#!/bin/sh
# Runs Mooring in the foreground; `make up` calls it. Who has no configuration yet gets the examples of this folder, in
# .mooring beside it, where nothing of the user's own is touched.
set -eu
examples=$(cd "$(dirname "$0")" && pwd)
own="${XDG_CONFIG_HOME:-$HOME/.config}/mooring/mooring.toml"

if [ -n "${MOORING_HOME:-}" ]; then
    echo "Using MOORING_HOME=$MOORING_HOME"
elif [ -f "$own" ]; then
    echo "Using your configuration, $own"
else
    export MOORING_HOME="${examples%/*}/.mooring"
    mkdir -p -m 700 "$MOORING_HOME" "$MOORING_HOME/conf.d"
    echo '*' >"$MOORING_HOME/.gitignore"
    [ -f "$MOORING_HOME/mooring.toml" ] || cp "$examples/mooring.toml" "$MOORING_HOME/mooring.toml"
    echo "Using the example configuration, $MOORING_HOME/mooring.toml: time, git, fetch"
    if command -v npx >/dev/null; then
        [ -f "$MOORING_HOME/conf.d/node.toml" ] || cp "$examples/node.toml" "$MOORING_HOME/conf.d/node.toml"
        echo "and $MOORING_HOME/conf.d/node.toml: filesystem, memory"
    else
        echo "Skipped: filesystem and memory. They run with npx, which is not installed (Debian: apt-get install nodejs npm)."
    fi
fi
exec mooring up
