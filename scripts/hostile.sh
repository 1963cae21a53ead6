#!/usr/bin/env bash
# Runs the tests on an unfriendly machine, twice in random order: SIGINT and SIGHUP ignored as under nohup, two busy
# processes beside them, a dumb terminal, the C locale, another time zone, and colours both forced and forbidden.
#
#     scripts/hostile.sh [PYTEST_ARGUMENT ...]
#
# SEEDS="1 2" repeats the orders of an earlier run; it prints them.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-.venv/bin/python}
seeds=${SEEDS:-$RANDOM $RANDOM}
started=()

stop() {
    for pid in "${started[@]}"; do
        kill "$pid" 2>/dev/null || true
    done
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

for _ in 1 2; do
    # The time limit ends it even if this script is killed.
    timeout 7200 "$python" -c 'while True: pass' &
    started+=($!)
done

variables=("HOME=$HOME" "PATH=$PATH" TERM=dumb LANG=C TZ=Pacific/Auckland NO_COLOR=1 FORCE_COLOR=1 COLUMNS=40)
for name in ULLAGE_DATA ULLAGE_BENCH; do
    if [ -n "${!name:-}" ]; then
        variables+=("$name=${!name}")
    fi
done

for seed in $seeds; do
    echo "hostile: --randomly-seed=$seed"
    (
        trap '' INT HUP
        exec env -i "${variables[@]}" \
            "$python" -m pytest -n 4 --dist=worksteal --randomly-seed="$seed" "$@"
    ) &
    tests=$!
    started+=("$tests")
    wait "$tests"
done
