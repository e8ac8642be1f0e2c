# shellcheck shell=bash
# Stopping in time, and telling Slurm the truth afterwards.

_attempt_key() { printf '%s.%s\n' "$SLURM_JOB_ID" "${SLURM_RESTART_COUNT:-0}"; }

# Slurm sends USR1 to this script alone (B:) before the time limit. torchrun never sees a signal: it
# has no good answer to one. The workers see the file, as they see the node agent's on a spot notice.
trap_stop_signal() { trap 'request_stop time-limit' USR1; }

request_stop() {
  local file
  file=$TOOLKIT_RUN_DIR/stop.$(_attempt_key).json
  printf '{"job_id": "%s", "restart_count": %d, "cause": "%s", "node": "%s", "at": %d}\n' \
    "$SLURM_JOB_ID" "${SLURM_RESTART_COUNT:-0}" "$1" "${SLURMD_NODENAME:-}" "$(date +%s)" \
    >"$file.tmp" && mv -- "$file.tmp" "$file"
  echo "[toolkit] $1: asked the workers to save and stop"
}

step_code=1

# Wait for the step to be over: a trapped signal only interrupts `wait`. Sets step_code.
wait_for_step() {
  while :; do
    wait "$1"
    step_code=$?
    kill -0 "$1" 2>/dev/null || return 0
  done
}

# End the job. torchrun's code is 1 for everything, so the workers' verdict decides: 85 brings the job
# back (RequeueExit in slurm.conf), 93 does not. Where they left none, the step's own code counts.
exit_with_verdict() {
  local file code=''
  file=$TOOLKIT_RUN_DIR/verdict.$(_attempt_key).json
  if [[ -r $file ]]; then
    code=$(sed -n 's/.*[^\\]"exit_code": *\([0-9]\{1,3\}\)[,}].*/\1/p' "$file")
    echo "[toolkit] verdict: $(<"$file")"
  else
    echo "[toolkit] the workers left no verdict; torchrun's code is $step_code"
  fi
  exit "${code:-$step_code}"
}
