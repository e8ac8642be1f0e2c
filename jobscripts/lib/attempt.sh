# shellcheck shell=bash
# Which attempt of which job this is.
#
# settle_attempt   drops what another job's environment says of that: sbatch passes on what it is
#                  called with, and slurmd sets SLURM_RESTART_COUNT (before 26.05) only for a restart
#                  and SLURM_ARRAY_… only for a task. Where slurmctld does not answer, they stay.
# slurm_says JOB FORMAT   what slurmctld says of one job; of the last task of an array, of all tasks

_settled=

settle_attempt() {
  [[ -z $_settled ]] || return 0
  _settled=1
  [[ -n ${SLURM_ARRAY_JOB_ID:-} || ${SLURM_RESTART_COUNT:-0} != 0 ]] || return 0
  local task restarts
  read -r _ task restarts < <(
    slurm_says "$SLURM_JOB_ID" --Format=JobID,ArrayTaskID,RestartCnt 2>/dev/null | grep "^$SLURM_JOB_ID "
  )
  [[ $task != N/A ]] || unset "${!SLURM_ARRAY_@}"
  # Any other number may be a later attempt's, where Slurm has given up this one.
  [[ $restarts != 0 ]] || export SLURM_RESTART_COUNT=0
}

# For more than one job squeue would load the whole queue. The user's SQUEUE_… would leave jobs out.
slurm_says() {
  env -i PATH="$PATH" ${SLURM_CONF:+SLURM_CONF="$SLURM_CONF"} timeout 5 \
    squeue --all --noheader --states=all --jobs="$1" "$2"
}
