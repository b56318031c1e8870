#!/bin/bash
# The same with Ray: a head on the first host, workers on the others, and one command for all of them.
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
#SBATCH --time=01:00:00
RESULTS=${RESULTS:-$SLURM_SUBMIT_DIR/runs/fleet-gemm}
PORT=6379
HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun --nodes=1 --ntasks=1 --overlap -w "$HEAD" ray start --head --port=$PORT --block &
sleep 20
if [ "$SLURM_JOB_NUM_NODES" -gt 1 ]; then
  srun --nodes=$((SLURM_JOB_NUM_NODES - 1)) --ntasks-per-node=1 --overlap --exclude="$HEAD" \
    ray start --address="$HEAD:$PORT" --block &
  sleep 20
fi
srun --nodes=1 --ntasks=1 --overlap -w "$HEAD" jouletrace fleet run gemm --size 8192 --dtype bf16 --mode graph \
  --repeats 10 --engine ray --address "$HEAD:$PORT" -o "$RESULTS"
jouletrace fleet report "$RESULTS" -o "$RESULTS.html" --actions "$RESULTS.csv"
