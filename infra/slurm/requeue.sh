# Sourced by the batch scripts. `before_the_limit COMMAND...` runs a command. Slurm sends USR1 some time before the
# limit (`#SBATCH --signal=B:USR1@120`); the job then goes back into the queue, and its next start continues the work.
before_the_limit() {
  local work status=0
  "$@" &
  work=$!
  trap 'scontrol requeue "$SLURM_JOB_ID" && kill -TERM "$work"' USR1
  while true; do
    status=0
    wait "$work" || status=$?
    # USR1 ends `wait` before the command ends.
    if [ "$status" -le 128 ] || ! kill -0 "$work" 2> /dev/null; then return "$status"; fi
  done
}
