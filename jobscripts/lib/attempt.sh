# shellcheck shell=bash
# Find out which attempt of which job this is, and hold a job.
#
# settle_attempt          drops variables of the job that submitted this one. sbatch passes on its whole
#                         environment. slurmd sets SLURM_RESTART_COUNT (before 26.05) only for a restart
#                         and SLURM_ARRAY_… only for a task. If slurmctld does not answer, they stay.
# mark_own                records which variables are this job's, for the jobs that it submits
# hold_attempt REASON     holds the job of a restart, with the reason in its comment
# with_retries COMMAND…   tries a restart's command for a minute, a first start's for two seconds
# query_squeue JOB FORMAT prints squeue's line of one job; for an array's last task, of all its tasks

_is_settled=

settle_attempt() {
  [[ -z $_is_settled ]] || return 0
  _is_settled=1
  _drop_foreign_variables
  [[ -n ${SLURM_ARRAY_JOB_ID:-} || ${SLURM_RESTART_COUNT:-0} != 0 ]] || return 0
  local task restarts
  read -r task restarts < <(_query_own_job --Format=JobID,ArrayTaskID,RestartCnt)
  [[ $task != N/A ]] || unset "${!SLURM_ARRAY_@}"
  # Any other number may be a later attempt's, if Slurm has given up this one.
  [[ $restarts != 0 ]] || export SLURM_RESTART_COUNT=0
}

_OF_ONE_JOB=(TOOLKIT_SWEEP TOOLKIT_REPLAY_OF)

mark_own() {
  local name own=$SLURM_JOB_ID
  for name in "${_OF_ONE_JOB[@]}"; do own+="|$name=${!name:-}"; done
  export TOOLKIT_OF_JOB=$own
}

_drop_foreign_variables() {
  local name
  [[ -n ${TOOLKIT_OF_JOB:-} && ${TOOLKIT_OF_JOB%%|*} != "$SLURM_JOB_ID" ]] || return 0
  for name in "${_OF_ONE_JOB[@]}"; do
    [[ $TOOLKIT_OF_JOB\| == *"|$name=${!name:-}|"* ]] || continue
    # The user may have set it for this job, unless it is a sweep's default name.
    [[ $name != TOOLKIT_SWEEP || ${!name:-} =~ ^(sweep-.*)?$ ]] ||
      echo "[toolkit] TOOLKIT_SWEEP=${!name} is ignored: it belongs to job ${TOOLKIT_OF_JOB%%|*}, which submitted this one" >&2
    unset "$name"
  done
}

hold_attempt() {
  local name=$SLURM_JOB_ID reason=${1//[\'\"\`\\|]/ } restarts comment
  [[ $name != "${SLURM_ARRAY_JOB_ID:-}" ]] || name+=_$SLURM_ARRAY_TASK_ID # the last task has the array's id
  with_retries _read_restarts || return 1
  # Slurm has given up this attempt. A later one runs, and Slurm may take this end for its end.
  ((${restarts:-0} <= ${SLURM_RESTART_COUNT:-0})) || exit 85
  [[ $restarts == "${SLURM_RESTART_COUNT:-0}" ]] || return 1
  comment=$(_query_own_job --format='%A %k')
  comment=${comment#'(null)'}
  trap '' TERM # holding a job ends it, and this script too
  with_retries timeout --signal=KILL 30 scontrol update "jobid=$name" \
    "comment=${comment:+$comment | }toolkit: held: $reason; to go on: scontrol release $name"
  with_retries timeout --signal=KILL 30 scontrol requeuehold "$name" || return 1
  echo "[toolkit] job $name is held; to continue it: scontrol release $name" >&2
}

# Sets `restarts`, to nothing if slurmctld does not know the job. Fails if it does not answer.
_read_restarts() {
  local output
  output=$(query_squeue "$SLURM_JOB_ID" --Format=JobID,RestartCnt 2>&1) ||
    grep -q 'Invalid job id specified' <<<"$output" || return 1
  read -r restarts < <(sed -n "s/^$SLURM_JOB_ID  *//p" <<<"$output") || restarts=
}

# A shared folder that fails over refuses for a while. A first start may be a user's mistake.
with_retries() {
  local pause pauses=(1 1 3 5 10 20 20)
  ((${SLURM_RESTART_COUNT:-0} > 0)) || pauses=(1 1)
  for pause in "${pauses[@]}"; do
    ! "$@" || return 0
    sleep "$pause"
  done
  "$@"
}

# squeue loads the whole queue for more than one job. The user's SQUEUE_… variables could hide jobs.
query_squeue() {
  env -i PATH="$PATH" ${SLURM_CONF:+SLURM_CONF="$SLURM_CONF"} timeout 5 \
    squeue --all --noheader --states=all --jobs="$1" "$2"
}

_query_own_job() {
  query_squeue "$SLURM_JOB_ID" "$1" 2>/dev/null | sed -n "s/^$SLURM_JOB_ID  *//p"
}
