# shellcheck shell=bash
# Let one attempt at a time write to a run's folder: the one whose fence is in checkpoints/owner.
#
# own_run_dir   takes the run over, and exports TOOLKIT_RUN_OWNER; or refuses. If a later attempt of this
#               job has the run, it exits with 85: Slurm may take this end for that attempt's end
#
# The fence TOOLKIT_RUN_OWNER is checkpoints/owner/JOB.RESTART.SLURM.RANDOM. Every commit of a checkpoint
# is a rename out of it, every deletion one into it (toolkit.training.attempt.fencing). An attempt that
# takes the run over deletes the older fence first. From then on no rename of the older attempt succeeds,
# on whatever instance it still runs. A lock would not do: on Lustre and NFS it may hold on one instance
# alone, and an instance that is cut off never releases it.

own_run_dir() {
  local owner=$TOOLKIT_RUN_DIR/checkpoints/owner fence
  fence=$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}.${TOOLKIT_SLURM_ID:--}.$(od -An -N6 -tx1 /dev/urandom | tr -d ' \n')
  with_retries _take_over "$owner" "$fence" ||
    refuse "this attempt can't take over the run folder $TOOLKIT_RUN_DIR: look at $owner"
  export TOOLKIT_RUN_OWNER=$owner/$fence
}

_take_over() {
  local owner=$1 fence=$2 older
  older=$(find "$owner" -mindepth 1 -maxdepth 1 -printf '%f\n' -quit 2>/dev/null)
  [[ $older != "$fence" ]] || return 0 # NFS may report a rename as failed that it has made
  if [[ -n $older ]]; then
    _refuse_unless_ended "$older" "$owner"
    rm -rf -- "${owner:?}/$older" 2>/dev/null
  fi
  # mv replaces an empty folder only: of all attempts that try at once, one succeeds.
  mkdir -p -- "$owner.$fence/$fence" && mv -T -- "$owner.$fence" "$owner" 2>/dev/null && return
  rm -rf -- "$owner.$fence"
  [[ -d $owner/$fence ]] # as above
}

# Slurm has given up an earlier attempt of this job, even if its processes still run. Another job keeps
# the run until Slurm says that it has ended.
_refuse_unless_ended() {
  local older=$1 owner=$2 job restart state
  [[ $older =~ ^([0-9]+)\.([0-9]+)\.([0-9a-z]+|-)\. ]] || refuse "$owner/$older names no job: delete it," \
    "if no job uses the run folder $TOOLKIT_RUN_DIR"
  job=${BASH_REMATCH[1]} restart=${BASH_REMATCH[2]}
  ! of_another_slurm "$older" ||
    refuse "the run folder $TOOLKIT_RUN_DIR belongs to job $job of another cluster, or of this one before it was" \
      "rebuilt. This slurmctld does not know that job. If it has ended: rm -r '$owner', and submit again"
  if [[ $job == "$SLURM_JOB_ID" ]]; then
    ((restart > ${SLURM_RESTART_COUNT:-0})) || return 0
    echo "[toolkit] cannot start: restart $restart of this job has taken over its run folder $TOOLKIT_RUN_DIR" >&2
    exit 85
  fi
  state=$(_state_unless_ended "$job")
  [[ -z $state ]] || refuse "the run folder $TOOLKIT_RUN_DIR belongs to job $job, which has not ended ($state):" \
    "wait for it (--dependency=afterany:$job), cancel it, or set another TOOLKIT_RUN_ID"
}

# Succeeds if a fence's job has its id from another slurmctld, as far as both are known.
of_another_slurm() {
  local slurm
  slurm=$(cut -s -d . -f 3 <<<"$1")
  [[ -n $slurm && $slurm != - && -n ${TOOLKIT_SLURM_ID:-} && $slurm != "$TOOLKIT_SLURM_ID" ]]
}

# Prints the state of a job that has not ended. A completing job has a minute to end, and slurmctld has
# two to answer. A job that slurmctld does not know, or no longer knows, has ended.
_state_unless_ended() {
  local try output state
  for try in {1..12}; do
    ((try == 1)) || sleep 5
    output=$(query_squeue "$1" --format='%A %T' 2>&1)
    state="slurmctld does not answer"
    grep -qE '^[0-9]+ |Invalid job id specified' <<<"$output" || continue
    state=$(awk -v job="$1" '$1 == job {print $2; exit}' <<<"$output")
    case $state in
      '' | BOOT_FAIL | CANCELLED | COMPLETED | DEADLINE | FAILED | NODE_FAIL | OUT_OF_MEMORY | PREEMPTED | TIMEOUT) return ;;
      COMPLETING) ;;
      *) break ;;
    esac
  done
  printf '%s\n' "$state"
}
