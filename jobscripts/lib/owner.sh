# shellcheck shell=bash
# One attempt at a time writes into a run's folder: the one that checkpoints/owner has a folder of.
#
# own_run_dir   takes the run over, sets and exports TOOLKIT_RUN_OWNER; or refuses. Where a later attempt
#               of this very job has the run, it leaves with 85: it may be taken for that one's end
#
# TOOLKIT_RUN_OWNER is checkpoints/owner/JOB.RESTART.SLURM.RANDOM: every commit of a checkpoint is a
# rename out of it, every deletion one into it (toolkit.training.attempt.fencing). Who takes the run over deletes
# it first: from then on none of the other's can succeed, on whatever machine it still runs. A lock
# would not do: on Lustre and NFS it may hold on one machine alone, and one that is cut off never gives
# it back.

own_run_dir() {
  local owner=$TOOLKIT_RUN_DIR/checkpoints/owner mine
  mine=$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}.${TOOLKIT_SLURM_ID:--}.$(od -An -N6 -tx1 /dev/urandom | tr -d ' \n')
  patiently _take "$owner" "$mine" || refuse "the run folder $TOOLKIT_RUN_DIR can't be taken over: look at $owner"
  export TOOLKIT_RUN_OWNER=$owner/$mine
}

_take() {
  local owner=$1 mine=$2 held
  held=$(find "$owner" -mindepth 1 -maxdepth 1 -printf '%f\n' -quit 2>/dev/null)
  [[ $held != "$mine" ]] || return 0 # NFS may say that a rename failed that it has made
  if [[ -n $held ]]; then
    _refuse_unless_over "$held" "$owner"
    rm -rf -- "${owner:?}/$held" 2>/dev/null
  fi
  # Only over nothing, or an empty folder: of all who try at once, one succeeds.
  mkdir -p -- "$owner.$mine/$mine" && mv -T -- "$owner.$mine" "$owner" 2>/dev/null && return
  rm -rf -- "$owner.$mine"
  [[ -d $owner/$mine ]] # as above
}

# An earlier attempt of this job makes room: Slurm has given it up, whatever still runs of it. A job of
# another number does when Slurm says that it is over.
_refuse_unless_over() {
  local held=$1 owner=$2 job restart state
  [[ $held =~ ^([0-9]+)\.([0-9]+)\.([0-9a-z]+|-)\. ]] || refuse "$owner/$held names no job: if none uses" \
    "the run folder $TOOLKIT_RUN_DIR, delete it"
  job=${BASH_REMATCH[1]} restart=${BASH_REMATCH[2]}
  ! of_another_slurm "$held" ||
    refuse "the run folder $TOOLKIT_RUN_DIR belongs to job $job of another cluster, or of this one before it was" \
      "built anew, which can't be asked about. If that job is over: rm -r '$owner', and submit again"
  if [[ $job == "$SLURM_JOB_ID" ]]; then
    ((restart > ${SLURM_RESTART_COUNT:-0})) || return 0
    echo "[toolkit] cannot start: restart $restart of this job has taken over its run folder $TOOLKIT_RUN_DIR" >&2
    exit 85
  fi
  state=$(_end_of "$job")
  [[ -z $state ]] || refuse "the run folder $TOOLKIT_RUN_DIR belongs to job $job, which is not over ($state):" \
    "wait for it (--dependency=afterany:$job), cancel it, or set another TOOLKIT_RUN_ID"
}

# Whether a place is of a job that another Slurm gave its number, as far as both are known.
of_another_slurm() {
  local slurm
  slurm=$(cut -s -d . -f 3 <<<"$1")
  [[ -n $slurm && $slurm != - && -n ${TOOLKIT_SLURM_ID:-} && $slurm != "$TOOLKIT_SLURM_ID" ]]
}

# Prints nothing when the job is over, else its state. A job on its way out has a minute for it,
# and slurmctld two for an answer: jobs, or that it knows (no more) of none with that number.
_end_of() {
  local try said state
  for try in {1..12}; do
    ((try == 1)) || sleep 5
    said=$(slurm_says "$1" --format='%A %T' 2>&1)
    state="Slurm does not say"
    grep -qE '^[0-9]+ |Invalid job id specified' <<<"$said" || continue
    state=$(awk -v job="$1" '$1 == job {print $2; exit}' <<<"$said")
    case $state in
      '' | BOOT_FAIL | CANCELLED | COMPLETED | DEADLINE | FAILED | NODE_FAIL | OUT_OF_MEMORY | PREEMPTED | TIMEOUT) return ;;
      COMPLETING) ;;
      *) break ;;
    esac
  done
  printf '%s\n' "$state"
}
