#!/bin/bash
# A grid of profiles in four parts, each a task of an array, on any nodes, into a folder that all share:
#     sbatch sweep_array.sh deit-b --batch 1,8,64,256 --dtype fp16,bf16
# Submit it again with the same RESULTS to do what is missing.
#SBATCH --array=1-4
#SBATCH --gpus=1
#SBATCH --time=01:00:00
RESULTS=${RESULTS:-$SLURM_SUBMIT_DIR/runs/grid}
jouletrace sweep "$@" --part "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" -o "$RESULTS"
# When all tasks have ended, this prints the whole table: jouletrace sweep deit-b --batch ... --dtype ... -o RESULTS
