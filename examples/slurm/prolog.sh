#!/bin/bash
# Slurm prolog: records the GPUs of a job into the Run $JOULETRACE_RUNS/JOBID-HOST until epilog.sh ends it.
# Prolog=/etc/slurm/prolog.sh in slurm.conf; it runs as root on each node. It never fails a job.
# JOULETRACE_DEVICE replaces the job's GPUs by other devices, such as sim:h100 to try it without one.
RUNS=${JOULETRACE_RUNS:-/var/lib/jouletrace}
JOB=$RUNS/$SLURM_JOB_ID-$(hostname -s)
mkdir -p "$RUNS" || exit 0
{
    devices=()
    if [ -n "$JOULETRACE_DEVICE" ]; then
        devices=(-d "$JOULETRACE_DEVICE")
    elif [ -n "${SLURM_JOB_GPUS:-$CUDA_VISIBLE_DEVICES}" ]; then
        # By UUID: Slurm counts GPUs as nvidia-smi does, and CUDA may count them otherwise.
        uuids=$(timeout 10 nvidia-smi --query-gpu=uuid --format=csv,noheader -i "${SLURM_JOB_GPUS:-$CUDA_VISIBLE_DEVICES}")
        for uuid in $uuids; do devices+=(-d "$uuid"); done
    fi
    [ ${#devices[@]} -eq 0 ] && exit 0  # a job without GPUs
    if [ -z "$SLURM_JOB_NAME" ]; then  # which Slurm sets for tasks only
        SLURM_JOB_NAME=$(timeout 5 squeue -h -j "$SLURM_JOB_ID" -o %j)
        export SLURM_JOB_NAME
    fi
    unset CUDA_VISIBLE_DEVICES
    setsid jouletrace monitor "${devices[@]}" -f json -o "$JOB" < /dev/null > "$JOB.json" 2> "$JOB.log" &
    echo $! > "$JOB.pid"
} 2>> "$RUNS/prolog.log"
exit 0
