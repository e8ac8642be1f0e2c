# shellcheck shell=bash
# Check that training has everything that it needs, before it costs money.
#
# preflight SCRIPT [ARGS…] sets and exports
#   TOOLKIT_ENV              Python environment            (default /shared/env)
#   TOOLKIT_RUN_DIR          this run's folder, the same for every attempt
#   TOOLKIT_RUN_OWNER        this attempt's fence in the run's folder (owner.sh)
#   TOOLKIT_SLURM_ID         the id of the slurmctld that gave out the job id, if the cluster has one
#   TOOLKIT_ATTEMPT_STARTED  seconds since the epoch
#   SLURM_RESTART_COUNT      0 if the value is the submitting job's. Its SLURM_ARRAY_… and its sweep
#                            are dropped too (attempt.sh)
#   TOOLKIT_OF_JOB           the variables that are this job's own
#   CONTAINER                srun's options for TOOLKIT_CONTAINER, if that is set (not exported)
# or ends the job with 93, "do not requeue", and prints the problem and what to do about it. A restart
# once worked as submitted: its job is held, so that a person can look and release it.

# shellcheck source-path=SCRIPTDIR source=attempt.sh
source "${BASH_SOURCE[0]%/*}/attempt.sh" || return 1
# shellcheck source-path=SCRIPTDIR source=record.sh
source "${BASH_SOURCE[0]%/*}/record.sh" || return 1
# shellcheck source-path=SCRIPTDIR source=container.sh
source "${BASH_SOURCE[0]%/*}/container.sh" || return 1
# shellcheck source-path=SCRIPTDIR source=owner.sh
source "${BASH_SOURCE[0]%/*}/owner.sh" || return 1

# Prints the folder of runs if TOOLKIT_RUNS is unset. HOME comes from the shell that called sbatch, and
# may be another user's after su. So the account's own home is looked up.
_default_runs() {
  local home
  home=$(getent passwd "$(id -u)" | cut -d: -f6)
  printf '%s\n' "${home:-$HOME}/runs"
}

refuse() {
  printf '[toolkit] cannot start: %s\n' "$@" >&2
  ((${SLURM_RESTART_COUNT:-0} == 0)) || hold_attempt "$*" || echo "[toolkit] Slurm did not hold job $SLURM_JOB_ID: the job ends now" >&2
  exit 93
}

preflight() {
  _set_up
  _check_cap
  [[ $# -ge 1 ]] || refuse "no training script is given: sbatch torchrun.sbatch train.py [arguments]"
  with_retries test -r "$1" || refuse "the training script '$1' can't be read in $PWD on node $(uname -n):" \
    "keep it in a folder that all nodes have (under /shared), and submit from there"
  SUBMITTED=("$@")
  [[ -n ${TOOLKIT_CONTAINER:-} ]] || with_retries test -x "$TOOLKIT_ENV/bin/torchrun" || refuse "no torchrun in the Python environment $TOOLKIT_ENV:" \
    "set TOOLKIT_ENV to an environment that has torch, or have torch installed"
  _prepare
  container_options
}

# A restart trains without the cap, and its log says so at the end (toolkit.training end-of-attempt).
_check_cap() {
  local dollars='^ *\$?([0-9]+\.?[0-9]*|\.[0-9]+) *$'
  [[ ${SLURM_RESTART_COUNT:-0} != 0 || -z ${TOOLKIT_MAX_USD:-} || $TOOLKIT_MAX_USD =~ $dollars ]] ||
    refuse "TOOLKIT_MAX_USD '$TOOLKIT_MAX_USD' is not a number of dollars: write 1000 or 99.50"
}

# Sets up a job that trains nothing: its environment, and a run folder with free space.
prepare() {
  _set_up
  [[ -z ${TOOLKIT_CONTAINER:-} ]] || refuse "this job does not run in a container:" \
    "submit it with 'env -u TOOLKIT_CONTAINER sbatch …'"
  _prepare
}

_prepare() {
  with_retries test -x "$TOOLKIT_ENV/bin/python" || refuse "there is no Python environment $TOOLKIT_ENV: set TOOLKIT_ENV"
  _find_run_dir
  local free
  free=$(with_retries _free_mib) || refuse "the filesystem of $TOOLKIT_RUN_DIR does not answer"
  ((free >= ${TOOLKIT_MIN_FREE_MIB:-200})) || refuse "$TOOLKIT_RUN_DIR has only $free MiB free, too little for checkpoints:" \
    "delete old runs, or set TOOLKIT_RUNS to a folder on another filesystem"
  record_submission
}

_free_mib() {
  local output
  output=$(df --output=avail --block-size=1M "$TOOLKIT_RUN_DIR") && echo "${output##*$'\n'}"
}

_set_up() {
  settle_attempt
  mark_own
  TOOLKIT_ATTEMPT_STARTED=$(date +%s.%N)
  TOOLKIT_ENV=${TOOLKIT_ENV:-/shared/env}
  export TOOLKIT_ATTEMPT_STARTED TOOLKIT_ENV
  export PYTHONPATH="${TOOLKIT_LIB:-/shared/lib}${PYTHONPATH:+:$PYTHONPATH}"
  export PYTHONUNBUFFERED=1
  # Its thread changes the environment while requests are read from it, and asks the Internet.
  export MLFLOW_DISABLE_TELEMETRY=${MLFLOW_DISABLE_TELEMETRY:-true}
  _find_slurm_id
}

# A rebuilt cluster may have the same name and the same homes. This id is made together with slurmctld's
# state, from which the job ids come.
_find_slurm_id() {
  unset TOOLKIT_SLURM_ID
  local id
  id=$(head -c 64 "${TOOLKIT_SLURM_ID_FILE:-/shared/.toolkit/slurm-id}" 2>/dev/null)
  [[ ! $id =~ ^[0-9a-z]+$ ]] || export TOOLKIT_SLURM_ID=$id
}

# A run's folder is named by TOOLKIT_RUN_ID, or by the job id, which a requeue keeps. Job ids start from 1
# on a new cluster. So a first start never uses the folder of an older job of the same id. A restart does
# not use another cluster's: its first start may have failed before it made one. Slurm's own facts don't
# tell the jobs apart: a requeue resets the submit time.
_find_run_dir() {
  local runs=${TOOLKIT_RUNS:-$(_default_runs)}
  local name=${TOOLKIT_RUN_ID:-$SLURM_JOB_ID}
  [[ $name =~ ^[A-Za-z0-9][A-Za-z0-9._-]{0,100}$ ]] ||
    refuse "TOOLKIT_RUN_ID '$name' is not a plain name: use letters, digits and . _ - only"
  with_retries mkdir -p -- "$runs" || refuse "the folder $runs for runs can't be made: set TOOLKIT_RUNS to another one"
  local number=1 folder=$runs/$name
  if [[ -z ${TOOLKIT_RUN_ID:-} ]]; then
    while [[ -e $runs/$name.$((number + 1)) ]]; do number=$((number + 1)); done
    ((number == 1)) || folder=$runs/$name.$number
    if [[ -e $folder ]] && { ((${SLURM_RESTART_COUNT:-0} == 0)) || _is_of_another_cluster "$folder"; }; then
      folder=$runs/$name.$((number + 1))
    fi
  fi
  with_retries mkdir -p -- "$folder" || refuse "the run folder $folder can't be made"
  with_retries test -w "$folder" || refuse "the run folder $folder is not writable by $(id -un)"
  export TOOLKIT_RUN_DIR=$folder
  local begins="[toolkit] job $SLURM_JOB_ID, restart ${SLURM_RESTART_COUNT:-0}, run folder $folder"
  echo "$begins"
  # A separate file for errors has earlier attempts in it, too.
  [[ /dev/stdout -ef /dev/stderr ]] || echo "$begins" >&2
  own_run_dir
}

# A folder without a record and without a fence counts as this job's.
_is_of_another_cluster() {
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
