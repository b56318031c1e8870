#!/bin/bash
# The same load on every GPU of several hosts: one command a host, results onto a path that all share.
# Submit it again with the same RESULTS to do what is missing.
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
#SBATCH --time=01:00:00
RESULTS=${RESULTS:-$SLURM_SUBMIT_DIR/runs/fleet-gemm}
srun jouletrace fleet run gemm --config size=8192 --dtype bf16 --mode graph --repeats 10 -o "$RESULTS" --json > /dev/null
jouletrace fleet report "$RESULTS" -o "$RESULTS.html"
