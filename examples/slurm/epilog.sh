#!/bin/bash
# Slurm epilog: ends the recording that prolog.sh began for this job, and waits at most $JOULETRACE_PATIENCE seconds
# for its Run. A recorder that takes longer is killed. It never fails a job.
RUNS=${JOULETRACE_RUNS:-/var/lib/jouletrace}
JOB=$RUNS/$SLURM_JOB_ID-$(hostname -s)
mkdir -p "$RUNS" || exit 0
{
    [ -f "$JOB.pid" ] || exit 0  # nothing was recorded
    pid=$(cat "$JOB.pid")
    rm -f "$JOB.pid"
    # Another process may have the number of a recorder that was lost.
    if tr '\0' ' ' < "/proc/$pid/cmdline" | grep -qF -- "-o $JOB "; then
        kill -INT "$pid"
        for ((tenths = 10 * ${JOULETRACE_PATIENCE:-10}; tenths > 0; tenths--)); do
            kill -0 "$pid" || exit 0
            sleep 0.1
        done
        kill -KILL "$pid"  # "jouletrace show" recovers what it had recorded
        echo "job $SLURM_JOB_ID: the recorder $pid was killed; what it recorded is in $JOB" >&2
    else
        echo "job $SLURM_JOB_ID: the recorder $pid was lost; what it recorded until then is in $JOB" >&2
    fi
} 2>> "$RUNS/epilog.log"
exit 0
