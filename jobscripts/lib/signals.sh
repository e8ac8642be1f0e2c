# shellcheck shell=bash
# Stop the workers in time, and end the job with the right exit code.

_attempt_key() { printf '%s.%s\n' "$SLURM_JOB_ID" "${SLURM_RESTART_COUNT:-0}"; }

# Slurm sends USR1 to this script alone (B:) before the time limit, and before a preemption
# (PreemptParameters=send_user_signal). torchrun gets no signal, because it can't stop in order. The
# workers find a stop request in the run folder, as they find the node agent's after a spot notice.
#
# hold_stop_signal    keeps a signal until the run folder is known: without a trap, bash dies of USR1
# trap_stop_signal    turns a signal into a stop request from now on, and one that was kept
held_signal=

hold_stop_signal() { trap 'held_signal=1' USR1; }

trap_stop_signal() {
  trap 'request_stop "$(why_signalled)"' USR1
  [[ -z $held_signal ]] || request_stop "$(why_signalled)"
}

# The signal comes as long before the time limit as --signal says, or up to a minute earlier. A signal
# that comes before that means preemption.
why_signalled() {
  local left=$((${SLURM_JOB_END_TIME:-0} - $(date +%s)))
  if ((left > $(_signal_lead) + 150)); then echo preemption; else echo time-limit; fi
}

# Prints the seconds of --signal from sbatch's three sources, in its order: command line (if it is
# known), SBATCH_SIGNAL, script. Our own scripts have 90.
_signal_lead() {
  local words pattern='.*--signal[= ]+[^ @]*(@([0-9]+))?'
  for words in "$(_sbatch_line)" "--signal=${SBATCH_SIGNAL:-}" "$(grep '^#SBATCH ' "$0")"; do
    [[ $words != --signal= && $words =~ $pattern ]] || continue
    printf '%s\n' "${BASH_REMATCH[2]:-60}" # sbatch's own default
    return
  done
  echo 90
}

# Prints sbatch's command line as record.sh kept it, without the training script and its arguments. The
# jobs of one TOOLKIT_RUN_ID share a folder, and the record in it is the first job's.
_sbatch_line() {
  local kept=$TOOLKIT_RUN_DIR/submission line
  grep -qzxF "SLURM_JOB_ID=$SLURM_JOB_ID" "$kept/environment" 2>/dev/null || return 0
  [[ -r $kept/submit-line ]] || return 0
  line=$(<"$kept/submit-line")
  printf '%s\n' "${line%"${SUBMITTED[*]:-}"}"
}

# Slurm sends the signal once. If the run folder can't be written, the waiting loop tries again.
pending_stop_cause=

request_stop() {
  pending_stop_cause=$1
  write_stop_request || echo "[toolkit] $1: the stop request can't be written to $TOOLKIT_RUN_DIR yet; trying again"
}

write_stop_request() {
  local file
  file=$TOOLKIT_RUN_DIR/stop.$(_attempt_key).json
  {
    printf '{"job_id": "%s", "restart_count": %d, "cause": "%s", "node": "%s", "at": %d}\n' \
      "$SLURM_JOB_ID" "${SLURM_RESTART_COUNT:-0}" "$pending_stop_cause" "${SLURMD_NODENAME:-}" "$(date +%s)" \
      >"$file.tmp" && mv -- "$file.tmp" "$file"
  } 2>/dev/null || return 1
  echo "[toolkit] $pending_stop_cause: the workers are asked to save and stop"
  pending_stop_cause=
}

step_code=1

# Waits until the step has ended: a trapped signal only interrupts `wait`. Sets step_code.
wait_for_step() {
  while :; do
    while [[ -n $pending_stop_cause ]] && kill -0 "$1" 2>/dev/null; do
      sleep 1
      write_stop_request
    done
    wait "$1"
    step_code=$?
    kill -0 "$1" 2>/dev/null || break
  done
  # The step may have ended while the trap ran. Then that wait had the signal's code.
  ((step_code > 128)) || return 0
  wait "$1"
  local code=$?
  ((code == 127)) || step_code=$code # 127: it was the step's own
}

# Holds the job of a restart that has spent its dollars, makes no progress or loses too many nodes
# (toolkit.training start-check). Exits if a later attempt has the run. An earlier attempt whose script
# was killed could not check this. If the check itself fails, training goes on.
start_check_failed=

look_back() {
  ((${SLURM_RESTART_COUNT:-0} > 0)) || return 0
  local code
  trap '' TERM # holding a job ends it, and this script too
  code=$("$TOOLKIT_ENV/bin/python" -m toolkit.training start-check)
  [[ $code =~ ^[0-9]{1,3}$ ]] || start_check_failed=1
  trap - TERM
  [[ $code != 85 && $code != 93 ]] || exit "$code"
}

# Runs the training script on every node, in preflight's container if there is one, and waits. Sets
# step_code. TOOLKIT_JUDGED_ATTEMPT tells the workers that exit_with_verdict comes after them. It may
# requeue the job after a failure, so they do not end the run's record.
run_workers() {
  TOOLKIT_JUDGED_ATTEMPT=$(_attempt_key) \
    srun --export=ALL --kill-on-bad-exit=1 ${SLURM_CPUS_PER_TASK:+--cpus-per-task="$SLURM_CPUS_PER_TASK"} \
    "${CONTAINER[@]}" bash "$TOOLKIT_JOBSCRIPTS/lib/node.sh" "$@" &
  wait_for_step "$!"
}

# Ends the job. torchrun's code is 1 for every failure. So end-of-attempt finds the cause from the
# workers' verdict, Slurm, the nodes and the log. 85 requeues the job (RequeueExit in slurm.conf), 93
# does not. A job that waits or is held was requeued already.
#
# A failing filesystem may have ended the workers. It has a minute to come back.
exit_with_verdict() {
  local code pause
  trap '' TERM # requeueing a job ends it, and this script too
  for pause in 1 1 3 5 10 20 20 0; do
    code=$("$TOOLKIT_ENV/bin/python" -m toolkit.training end-of-attempt --code "$step_code")
    [[ ! $code =~ ^[0-9]{1,3}$ ]] || exit "$code"
    [[ $(_code_of_verdict) != 85 ]] || break # the notice runs out, and the verdict is enough
    _time_for "$((pause + 20))" || break
    sleep "$pause"
  done
  _exit_without_cause
}

_time_for() { ((${SLURM_JOB_END_TIME:-0} == 0 || $(date +%s) + $1 < SLURM_JOB_END_TIME)); }

# Ends the job when the cause is unknown. A verdict other than a failure decides. Without one the job is
# requeued once, and the next attempt's start-check judges this attempt. If that check failed too, the
# step's code decides. Workers exit with 0 when they stop and when they are done: if a verdict may be
# hidden, the job is held.
_exit_without_cause() {
  local code
  code=$(_code_of_verdict)
  if [[ ! $code =~ ^(0|85|93)$ ]]; then
    code=$step_code
    if ((code != 0)) || ! _without_verdict; then
      if [[ -z $start_check_failed ]]; then
        code=85
      elif ((code == 0)); then
        hold_attempt "it is unknown whether this attempt finished its training: see $TOOLKIT_RUN_DIR"
        code=93
      fi
    fi
  fi
  echo "[toolkit] the cause of this attempt's end is unknown; job $SLURM_JOB_ID exits with $code" >&2
  exit "$code"
}

# Succeeds if the run folder can be read and holds no verdict.
_without_verdict() {
  local names
  names=$(ls -- "$TOOLKIT_RUN_DIR" 2>/dev/null) || return 1
  [[ $'\n'$names$'\n' != *$'\n'"verdict.$(_attempt_key).json"$'\n'* ]]
}

_code_of_verdict() {
  local file
  file=$TOOLKIT_RUN_DIR/verdict.$(_attempt_key).json
  [[ ! -r $file ]] || sed -n 's/.*[^\\]"exit_code": *\([0-9]\{1,3\}\)[,}].*/\1/p' "$file"
}
