#!/usr/bin/env bash
# The whole-model table of the README: calibrates the board, then profiles each case.
#   PYTHONPATH=src bash benchmarks/table.sh OUTPUT_FOLDER
set -u
out=${1:?where the Runs go}
mkdir -p "$out"
jt="python3 -m jouletrace"
$jt calibrate -o "$out/calibration.zip" > "$out/calibration.txt"
profile() { name=$1; shift; $jt profile "$@" -o "$out/$name.zip" > "$out/$name.txt" || echo "failed: $*"; }
profile deit-b-1-eager deit-b --batch 1 --mode eager
profile deit-b-1-graph deit-b --batch 1 --mode graph
profile deit-b-64-graph deit-b --batch 64 --mode graph
profile deit-t-1-graph deit-t --batch 1 --mode graph
profile deit-s-1-graph deit-s --batch 1 --mode graph
profile bert-b-128-graph bert-b --seq-len 128 --mode graph
profile bert-b-384-graph bert-b --seq-len 384 --mode graph
profile bert-l-320-graph bert-l --seq-len 320 --mode graph
$jt show "$out"/*-eager.zip "$out"/*-graph.zip --format markdown | tee "$out/table.md"
