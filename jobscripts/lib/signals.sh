# shellcheck shell=bash
# Stopping in time, and telling Slurm the truth afterwards.

_attempt_key() { printf '%s.%s\n' "$SLURM_JOB_ID" "${SLURM_RESTART_COUNT:-0}"; }

# Slurm sends USR1 to this script alone (B:) before the time limit, and when another job takes its
# place (PreemptParameters=send_user_signal). torchrun never sees a signal: it has no good answer to
# one. The workers see the file, as they see the node agent's on a spot notice.
#
# hold_stop_signal    before the run folder is known: without a trap, bash dies of USR1
# trap_stop_signal    from then on, and for a signal that was held
held_signal=

hold_stop_signal() { trap 'held_signal=1' USR1; }

trap_stop_signal() {
  trap 'request_stop "$(why_signalled)"' USR1
  [[ -z $held_signal ]] || request_stop "$(why_signalled)"
}

# The signal is as far ahead of the time limit as --signal says, and up to a minute early; any
# earlier, it was preemption.
why_signalled() {
  local left=$((${SLURM_JOB_END_TIME:-0} - $(date +%s)))
  if ((left > $(_signal_lead) + 150)); then echo preemption; else echo time-limit; fi
}

# The seconds in --signal, found as sbatch does: on its command line, if that is known, in
# SBATCH_SIGNAL, in the script. Our own scripts say 90.
_signal_lead() {
  local words pattern='.*--signal[= ]+[^ @]*(@([0-9]+))?'
  for words in "$(_sbatch_line)" "--signal=${SBATCH_SIGNAL:-}" "$(grep '^#SBATCH ' "$0")"; do
    [[ $words != --signal= && $words =~ $pattern ]] || continue
    printf '%s\n' "${BASH_REMATCH[2]:-60}" # sbatch's own default
    return
  done
  echo 90
}

# What record.sh kept of sbatch's command line, without the training script and its arguments. The
# jobs of one TOOLKIT_RUN_ID share a folder, and the record in it is the first one's.
_sbatch_line() {
  local kept=$TOOLKIT_RUN_DIR/submission line
  grep -qzxF "SLURM_JOB_ID=$SLURM_JOB_ID" "$kept/environment" 2>/dev/null || return 0
  [[ -r $kept/submit-line ]] || return 0
  line=$(<"$kept/submit-line")
  printf '%s\n' "${line%"${SUBMITTED[*]:-}"}"
}

# Slurm sends the signal once: where the run folder can't be written, who waits asks again.
unasked=

request_stop() {
  unasked=$1
  ask_to_stop || echo "[toolkit] $1: the workers can't be asked to stop yet: no writing in $TOOLKIT_RUN_DIR"
}

ask_to_stop() {
  local file
  file=$TOOLKIT_RUN_DIR/stop.$(_attempt_key).json
  {
    printf '{"job_id": "%s", "restart_count": %d, "cause": "%s", "node": "%s", "at": %d}\n' \
      "$SLURM_JOB_ID" "${SLURM_RESTART_COUNT:-0}" "$unasked" "${SLURMD_NODENAME:-}" "$(date +%s)" \
      >"$file.tmp" && mv -- "$file.tmp" "$file"
  } 2>/dev/null || return 1
  echo "[toolkit] $unasked: asked the workers to save and stop"
  unasked=
}

step_code=1

# Wait for the step to be over: a trapped signal only interrupts `wait`. Sets step_code.
wait_for_step() {
  while :; do
    while [[ -n $unasked ]] && kill -0 "$1" 2>/dev/null; do
      sleep 1
      ask_to_stop
    done
    wait "$1"
    step_code=$?
    kill -0 "$1" 2>/dev/null || break
  done
  # The step may have ended while the trap ran: that wait had the signal's code, the next has the step's.
  ((step_code > 128)) || return 0
  wait "$1"
  local code=$?
  ((code == 127)) || step_code=$code # 127: it was the step's own
}

# Before an attempt that is not the job's first: hold the job where it has spent its dollars or gets
# no further, or nodes die under it (toolkit.training start-check); leave where a later attempt has the
# run. Attempts whose script was killed could not do this as they ended. Where it can't be told,
# training goes on.
untold=

look_back() {
  ((${SLURM_RESTART_COUNT:-0} > 0)) || return 0
  local code
  trap '' TERM # holding a job ends it, this script included
  code=$("$TOOLKIT_ENV/bin/python" -m toolkit.training start-check)
  [[ $code =~ ^[0-9]{1,3}$ ]] || untold=1
  trap - TERM
  [[ $code != 85 && $code != 93 ]] || exit "$code"
}

# Run the training script on every node, in the container that preflight found if there is one, and
# wait until it is over. Sets step_code. The workers are told that exit_with_verdict comes after them:
# what they fail of may be worth another attempt, and the run's record is not ended before that is known.
run_workers() {
  TOOLKIT_JUDGED_ATTEMPT=$(_attempt_key) \
    srun --export=ALL --kill-on-bad-exit=1 ${SLURM_CPUS_PER_TASK:+--cpus-per-task="$SLURM_CPUS_PER_TASK"} \
    "${CONTAINER[@]}" bash "$TOOLKIT_JOBSCRIPTS/lib/node.sh" "$@" &
  wait_for_step "$!"
}

# End the job. torchrun's code is 1 for everything, so what became of the attempt is put together
# from the workers' verdict, Slurm, the nodes and the log (toolkit.training end-of-attempt): 85 brings the job
# back (RequeueExit in slurm.conf), 93 does not, and a job that waits or is held was requeued already.
#
# What ended the workers may be the filesystem that all of this is on: it has a minute to come back.
exit_with_verdict() {
  local code pause
  trap '' TERM # requeueing a job ends it, this script included
  for pause in 1 1 3 5 10 20 20 0; do
    code=$("$TOOLKIT_ENV/bin/python" -m toolkit.training end-of-attempt --code "$step_code")
    [[ ! $code =~ ^[0-9]{1,3}$ ]] || exit "$code"
    [[ $(_code_of_verdict) != 85 ]] || break # a warning is running out, and this much is known
    _time_for "$((pause + 20))" || break
    sleep "$pause"
  done
  _exit_untold
}

_time_for() { ((${SLURM_JOB_END_TIME:-0} == 0 || $(date +%s) + $1 < SLURM_JOB_END_TIME)); }

# Where nothing could be put together: as the workers said, if that is more than that they failed. Else
# the next attempt's beginning looks back at this one; it is the last where that could not be told either.
# Workers that stop together leave with 0, as those that are done: where a verdict may be hidden, 0 says
# nothing, and the last such attempt is held.
_exit_untold() {
  local code
  code=$(_code_of_verdict)
  if [[ ! $code =~ ^(0|85|93)$ ]]; then
    code=$step_code
    if ((code != 0)) || ! _without_verdict; then
      if [[ -z $untold ]]; then
        code=85
      elif ((code == 0)); then
        hold_attempt "nothing says whether this attempt is done: see $TOOLKIT_RUN_DIR"
        code=93
      fi
    fi
  fi
  echo "[toolkit] why this attempt ended can't be told; its job ends with $code" >&2
  exit "$code"
}

# Whether the run folder answers, and has none.
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
