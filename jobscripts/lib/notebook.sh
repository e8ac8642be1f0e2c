# shellcheck shell=bash
# Run a Jupyter server that ends when it is idle, and ends in order when the job must stop.

# Runs the server, and exits the job: 0 when idle or shut down, 85 (requeue me) on an interruption.
notebook() {
  local program idle=${TOOLKIT_IDLE_SECONDS:-$((${TOOLKIT_IDLE_MINUTES:-30} * 60))}
  program=$(_notebook_program) || refuse "no Jupyter in the Python environment $TOOLKIT_ENV:" \
    "add jupyterlab to training.requirements in cluster.yaml, or set TOOLKIT_ENV"
  _token
  echo "[toolkit] the notebook is at $MASTER_ADDR:$MASTER_PORT; on your computer, do two things:"
  echo "[toolkit]   1. run: ssh -L $MASTER_PORT:$MASTER_ADDR:$MASTER_PORT ${SLURM_CLUSTER_NAME:-CLUSTER}"
  echo "[toolkit]   2. open http://localhost:$MASTER_PORT; the token is in $TOOLKIT_RUN_DIR/token"
  echo "[toolkit] the notebook ends after $((idle / 60)) idle minutes"
  "$program" --no-browser --ip="$MASTER_ADDR" --port="$MASTER_PORT" --ServerApp.port_retries=0 &
  local server=$!
  _start_idle_watch "$idle"
  trap 'kill "$idle_watch" 2>/dev/null' EXIT
  _wait_for_server "$server" "$idle"
}

# Jupyter's own time-out does not serve: it counts the requests of an open page as activity.
_start_idle_watch() {
  "$TOOLKIT_ENV/bin/python" -m toolkit.training notebook-idle "$MASTER_ADDR:$MASTER_PORT" "$1" &
  idle_watch=$!
}

_notebook_program() {
  local name
  for name in jupyter-lab jupyter-notebook jupyter-server; do
    [[ -x $TOOLKIT_ENV/bin/$name ]] && { printf '%s\n' "$TOOLKIT_ENV/bin/$name"; return; }
  done
  return 1
}

# The token is in a file that only the user reads, and in the environment. The log and `ps` lack it.
_token() {
  local file=$TOOLKIT_RUN_DIR/token
  [[ -s $file ]] || (umask 077 && od -An -N24 -tx1 /dev/urandom | tr -d ' \n' >"$file")
  JUPYTER_TOKEN=$(<"$file")
  export JUPYTER_TOKEN
}

# Waits for the server, and looks for a stop request and for the end of the idle watch. SIGTERM lets
# the server end its kernels.
_wait_for_server() {
  local server=$1 idle=$2 key shared has_warned='' again=0
  key=$(_attempt_key)
  shared=${TOOLKIT_STOP_DIR:-/shared/.toolkit/stop}/$key.json
  while kill -0 "$server" 2>/dev/null; do
    [[ -z $pending_stop_cause ]] || write_stop_request
    if _is_stop_requested "$shared"; then
      _end_server "$server"
      echo "[toolkit] EC2 takes this instance back: the job is requeued, and the notebook starts on another"
      exit 85
    fi
    if _is_stop_requested "$TOOLKIT_RUN_DIR/stop.$key.json"; then
      _end_server "$server"
      grep -q preemption "$TOOLKIT_RUN_DIR/stop.$key.json" && exit 85
      echo "[toolkit] the time limit is near: the notebook has ended"
      exit 0
    fi
    if [[ -n $idle_watch ]] && ! kill -0 "$idle_watch" 2>/dev/null; then
      if wait "$idle_watch"; then
        _end_server "$server"
        echo "[toolkit] the notebook was idle for $((idle / 60)) minutes: it has ended"
        exit 0
      fi
      [[ -n $has_warned ]] || echo "[toolkit] notebook-idle failed, and is started again"
      has_warned=1 idle_watch='' again=$((SECONDS + 5))
    fi
    [[ -n $idle_watch ]] || ((SECONDS < again)) || _start_idle_watch "$idle"
    sleep 1 &
    wait "$!" # a signal ends a wait at once, but not a foreground sleep
  done
  wait "$server"
  exit $?
}

# Succeeds if there is a stop request for this job. A request to a job of the same id in an earlier
# cluster does not count (toolkit.training.StopFiles).
_is_stop_requested() {
  [[ -e $1 ]] || return 1
  local at began=${TOOLKIT_ATTEMPT_STARTED:-0}
  at=$(sed -n 's/.*"at": *\([0-9]\{1,12\}\).*/\1/p' "$1")
  ((${at:-$(date +%s)} + 300 >= ${began%.*}))
}

# Ends the server and its kernels. Jupyter sometimes hangs as it shuts down, and the instance would be
# paid until the job's time limit.
_end_server() {
  local last=$((SECONDS + 20))
  kill -TERM "$1" 2>/dev/null
  while kill -0 "$1" 2>/dev/null && ((SECONDS < last)); do
    sleep 1 &
    wait "$!"
  done
  ! kill -KILL "$1" 2>/dev/null || echo "[toolkit] the notebook's server did not end within 20 s: killed"
  wait_for_step "$1"
}
