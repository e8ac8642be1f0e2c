# shellcheck shell=bash
# Before a machine-second is spent on training: is everything there that it needs?
#
# preflight SCRIPT [ARGS…] sets and exports
#   TOOLKIT_ENV              Python environment            (default /shared/env)
#   TOOLKIT_RUN_DIR          this run's folder, the same for every attempt
#   TOOLKIT_RUN_OWNER        what shows that it is this attempt's now (owner.sh)
#   TOOLKIT_SLURM_ID         which Slurm gave out the job id, where the cluster says
#   TOOLKIT_ATTEMPT_STARTED  seconds since the epoch
#   SLURM_RESTART_COUNT      0 where it is of the job that this one was submitted from; and no
#                            SLURM_ARRAY_… that is, nor its sweep (attempt.sh)
#   TOOLKIT_OF_JOB           what is this job's own
#   CONTAINER                srun's options for TOOLKIT_CONTAINER, if that is set (not exported)
# or ends the job with 93, "do not requeue", saying what is wrong and what to do. A restart has shown
# that it works as submitted: its job is held, for somebody to look and let it go.

# shellcheck source-path=SCRIPTDIR source=attempt.sh
source "${BASH_SOURCE[0]%/*}/attempt.sh" || return 1
# shellcheck source-path=SCRIPTDIR source=record.sh
source "${BASH_SOURCE[0]%/*}/record.sh" || return 1
# shellcheck source-path=SCRIPTDIR source=container.sh
source "${BASH_SOURCE[0]%/*}/container.sh" || return 1
# shellcheck source-path=SCRIPTDIR source=owner.sh
source "${BASH_SOURCE[0]%/*}/owner.sh" || return 1

# Where runs live unless TOOLKIT_RUNS says so. HOME is whatever the shell that called sbatch had (of
# another user, after su); the account's own home is asked for.
_default_runs() {
  local home
  home=$(getent passwd "$(id -u)" | cut -d: -f6)
  printf '%s\n' "${home:-$HOME}/runs"
}

refuse() {
  printf '[toolkit] cannot start: %s\n' "$@" >&2
  ((${SLURM_RESTART_COUNT:-0} == 0)) || hold_attempt "$*" || echo "[toolkit] it is not held: it ends here" >&2
  exit 93
}

preflight() {
  _set_up
  _check_cap
  [[ $# -ge 1 ]] || refuse "no training script: sbatch torchrun.sbatch train.py [arguments]"
  patiently test -r "$1" || refuse "the training script '$1' can't be read from $PWD on $(uname -n):" \
    "submit from, and keep it in, a folder that all nodes have (under /shared)"
  SUBMITTED=("$@")
  [[ -n ${TOOLKIT_CONTAINER:-} ]] || patiently test -x "$TOOLKIT_ENV/bin/torchrun" || refuse "no torchrun in the Python environment $TOOLKIT_ENV:" \
    "set TOOLKIT_ENV to one that has torch, or ask for it to be installed"
  _prepare
  container_options
}

# A restart trains on without it, and says so at its end (toolkit.training end-of-attempt).
_check_cap() {
  local dollars='^ *\$?([0-9]+\.?[0-9]*|\.[0-9]+) *$'
  [[ ${SLURM_RESTART_COUNT:-0} != 0 || -z ${TOOLKIT_MAX_USD:-} || $TOOLKIT_MAX_USD =~ $dollars ]] ||
    refuse "TOOLKIT_MAX_USD '$TOOLKIT_MAX_USD' is no number of dollars: write it as 1000 or 99.50"
}

# What a job needs that trains nothing: the environment and a run folder with room in it.
prepare() {
  _set_up
  [[ -z ${TOOLKIT_CONTAINER:-} ]] || refuse "this job starts nothing in a container:" \
    "submit it without one, by 'env -u TOOLKIT_CONTAINER sbatch …'"
  _prepare
}

_prepare() {
  patiently test -x "$TOOLKIT_ENV/bin/python" || refuse "no Python environment $TOOLKIT_ENV: set TOOLKIT_ENV"
  _find_run_dir
  local free
  free=$(patiently _free_mib) || refuse "no answer from the filesystem of $TOOLKIT_RUN_DIR"
  ((free >= ${TOOLKIT_MIN_FREE_MIB:-200})) || refuse "only $free MiB free in $TOOLKIT_RUN_DIR:" \
    "checkpoints would fail; delete old runs or set TOOLKIT_RUNS to another filesystem"
  record_submission
}

_free_mib() {
  local said
  said=$(df --output=avail --block-size=1M "$TOOLKIT_RUN_DIR") && echo "${said##*$'\n'}"
}

_set_up() {
  settle_attempt
  mark_own
  TOOLKIT_ATTEMPT_STARTED=$(date +%s.%N)
  TOOLKIT_ENV=${TOOLKIT_ENV:-/shared/env}
  export TOOLKIT_ATTEMPT_STARTED TOOLKIT_ENV
  export PYTHONPATH="${TOOLKIT_LIB:-/shared/lib}${PYTHONPATH:+:$PYTHONPATH}"
  export PYTHONUNBUFFERED=1
  _find_slurm_id
}

# The cluster's name outlives a cluster that is built anew with the homes it had; this is minted with
# slurmctld's state, and so with the numbers of the jobs.
_find_slurm_id() {
  unset TOOLKIT_SLURM_ID
  local id
  id=$(head -c 64 "${TOOLKIT_SLURM_ID_FILE:-/shared/.toolkit/slurm-id}" 2>/dev/null)
  [[ ! $id =~ ^[0-9a-z]+$ ]] || export TOOLKIT_SLURM_ID=$id
}

# A run's folder is named by TOOLKIT_RUN_ID, or by the job id, which a requeue keeps. Job ids begin
# anew on a new cluster: a first start never goes on in a folder that an older job of that number left,
# and neither does a restart (the first start may have failed before this) in another cluster's. Slurm's
# own facts don't tell them apart: a requeue resets the submit time.
_find_run_dir() {
  local runs=${TOOLKIT_RUNS:-$(_default_runs)}
  local name=${TOOLKIT_RUN_ID:-$SLURM_JOB_ID}
  [[ $name =~ ^[A-Za-z0-9][A-Za-z0-9._-]{0,100}$ ]] ||
    refuse "TOOLKIT_RUN_ID '$name' is not a plain name (letters, digits, . _ -)"
  patiently mkdir -p -- "$runs" || refuse "the folder for runs, $runs, can't be made: set TOOLKIT_RUNS"
  local number=1 folder=$runs/$name
  if [[ -z ${TOOLKIT_RUN_ID:-} ]]; then
    while [[ -e $runs/$name.$((number + 1)) ]]; do number=$((number + 1)); done
    ((number == 1)) || folder=$runs/$name.$number
    if [[ -e $folder ]] && { ((${SLURM_RESTART_COUNT:-0} == 0)) || _is_another_clusters "$folder"; }; then
      folder=$runs/$name.$((number + 1))
    fi
  fi
  patiently mkdir -p -- "$folder" || refuse "the run folder $folder can't be made"
  patiently test -w "$folder" || refuse "the run folder $folder is not writable by $(id -un)"
  export TOOLKIT_RUN_DIR=$folder
  local begins="[toolkit] job $SLURM_JOB_ID, restart ${SLURM_RESTART_COUNT:-0}, run folder $folder"
  echo "$begins"
  # Where errors have a file of their own, it too has earlier attempts in it.
  [[ /dev/stdout -ef /dev/stderr ]] || echo "$begins" >&2
  own_run_dir
}

# As far as the folder says: one without a record and an owner is taken for this job's.
_is_another_clusters() {
  local fact kept place
  for place in "$1"/checkpoints/owner/*; do
    ! of_another_slurm "${place##*/}" || return 0
  done
  for fact in SLURM_CLUSTER_NAME TOOLKIT_SLURM_ID; do
    kept=$(grep -za "^$fact=" "$1/submission/environment" 2>/dev/null | tr -d '\0')
    [[ -z $kept || -z ${!fact:-} || $kept == "$fact=${!fact}" ]] || return 0
  done
  return 1
}
