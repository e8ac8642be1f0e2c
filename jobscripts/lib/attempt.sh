# shellcheck shell=bash
# Which attempt of which job this is.
#
# settle_attempt   drops what another job's environment says of that: sbatch passes on what it is
#                  called with, and slurmd sets SLURM_RESTART_COUNT (before 26.05) only for a restart
#                  and SLURM_ARRAY_… only for a task. Where slurmctld does not answer, they stay. And what
#                  was that job's own: its sweep, and what it replays, unless this one is given another.
# mark_own         says whose these are, for the jobs that this one submits
# hold_attempt REASON     holds the job of a restart, with the reason in its comment
# patiently COMMAND…      tries a restart's command for a minute, a first start's for two seconds
# slurm_says JOB FORMAT   what slurmctld says of one job; of the last task of an array, of all tasks

_settled=

settle_attempt() {
  [[ -z $_settled ]] || return 0
  _settled=1
  _drop_anothers
  [[ -n ${SLURM_ARRAY_JOB_ID:-} || ${SLURM_RESTART_COUNT:-0} != 0 ]] || return 0
  local task restarts
  read -r task restarts < <(_own --Format=JobID,ArrayTaskID,RestartCnt)
  [[ $task != N/A ]] || unset "${!SLURM_ARRAY_@}"
  # Any other number may be a later attempt's, where Slurm has given up this one.
  [[ $restarts != 0 ]] || export SLURM_RESTART_COUNT=0
}

_OF_ONE_JOB=(TOOLKIT_SWEEP TOOLKIT_REPLAY_OF)

mark_own() {
  local name own=$SLURM_JOB_ID
  for name in "${_OF_ONE_JOB[@]}"; do own+="|$name=${!name:-}"; done
  export TOOLKIT_OF_JOB=$own
}

_drop_anothers() {
  local name
  [[ -n ${TOOLKIT_OF_JOB:-} && ${TOOLKIT_OF_JOB%%|*} != "$SLURM_JOB_ID" ]] || return 0
  for name in "${_OF_ONE_JOB[@]}"; do
    [[ $TOOLKIT_OF_JOB\| == *"|$name=${!name:-}|"* ]] || continue
    # Somebody may have meant it, unless it is a sweep's default name.
    [[ $name != TOOLKIT_SWEEP || ${!name:-} =~ ^(sweep-.*)?$ ]] ||
      echo "[toolkit] sweep ${!name} is of job ${TOOLKIT_OF_JOB%%|*}, which submitted this one, and left out" >&2
    unset "$name"
  done
}

hold_attempt() {
  local name=$SLURM_JOB_ID reason=${1//[\'\"\`\\|]/ } restarts comment
  [[ $name != "${SLURM_ARRAY_JOB_ID:-}" ]] || name+=_$SLURM_ARRAY_TASK_ID # the number is every task's
  patiently _ask_restarts || return 1
  # Slurm has given up this attempt: the job is a later one's, and this may be taken for its end.
  ((${restarts:-0} <= ${SLURM_RESTART_COUNT:-0})) || exit 85
  [[ $restarts == "${SLURM_RESTART_COUNT:-0}" ]] || return 1
  comment=$(_own --format='%A %k')
  comment=${comment#'(null)'}
  trap '' TERM # holding a job ends it, this script included
  patiently timeout --signal=KILL 30 scontrol update "jobid=$name" \
    "comment=${comment:+$comment | }toolkit: held: $reason; to go on: scontrol release $name"
  patiently timeout --signal=KILL 30 scontrol requeuehold "$name" || return 1
  echo "[toolkit] held; to go on: scontrol release $name" >&2
}

# Sets `restarts`, to nothing where slurmctld does not know the job. Fails where it does not answer.
_ask_restarts() {
  local said
  said=$(slurm_says "$SLURM_JOB_ID" --Format=JobID,RestartCnt 2>&1) ||
    grep -q 'Invalid job id specified' <<<"$said" || return 1
  read -r restarts < <(sed -n "s/^$SLURM_JOB_ID  *//p" <<<"$said") || restarts=
}

# A shared folder that fails over says no for a while. A first start may be a mistake.
patiently() {
  local pause pauses=(1 1 3 5 10 20 20)
  ((${SLURM_RESTART_COUNT:-0} > 0)) || pauses=(1 1)
  for pause in "${pauses[@]}"; do
    ! "$@" || return 0
    sleep "$pause"
  done
  "$@"
}

# For more than one job squeue would load the whole queue. The user's SQUEUE_… would leave jobs out.
slurm_says() {
  env -i PATH="$PATH" ${SLURM_CONF:+SLURM_CONF="$SLURM_CONF"} timeout 5 \
    squeue --all --noheader --states=all --jobs="$1" "$2"
}

_own() {
  slurm_says "$SLURM_JOB_ID" "$1" 2>/dev/null | sed -n "s/^$SLURM_JOB_ID  *//p"
}
