# shellcheck shell=bash
# A Jupyter server that ends itself when idle, and in order when the job has to stop.

# Runs the server and exits the job: 0 idle or shut down, 85 its machine is taken (bring me back).
notebook() {
  local program idle=${TOOLKIT_IDLE_SECONDS:-$((${TOOLKIT_IDLE_MINUTES:-30} * 60))}
  program=$(_notebook_program) || refuse "no Jupyter in the Python environment $TOOLKIT_ENV:" \
    "add jupyterlab to training.requirements in cluster.yaml, or set TOOLKIT_ENV"
  _token
  echo "[toolkit] the notebook is at $MASTER_ADDR:$MASTER_PORT; from your computer, in two windows:"
  echo "[toolkit]   toolkit login     (or any way in that forwards $MASTER_ADDR:$MASTER_PORT)"
  echo "[toolkit]   http://localhost:$MASTER_PORT, with the token in $TOOLKIT_RUN_DIR/token"
  echo "[toolkit] it ends after $((idle / 60)) idle minutes"
  "$program" --no-browser --ip="$MASTER_ADDR" --port="$MASTER_PORT" --ServerApp.port_retries=0 &
  local server=$!
  _watch_use "$idle"
  trap 'kill "$idle_watch" 2>/dev/null' EXIT
  _end_in_time "$server" "$idle"
}

# Not by Jupyter's own time-out: to that, an open page that asks how things are is activity.
_watch_use() {
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

# The token is in a file of the user's own and in the environment: not in the log, not in `ps`.
_token() {
  local file=$TOOLKIT_RUN_DIR/token
  [[ -s $file ]] || (umask 077 && od -An -N24 -tx1 /dev/urandom | tr -d ' \n' >"$file")
  JUPYTER_TOKEN=$(<"$file")
  export JUPYTER_TOKEN
}

# Look for a stop request, and for the end of the watch over its use, while the server runs. SIGTERM
# lets it end its kernels.
_end_in_time() {
  local server=$1 idle=$2 key shared said='' again=0
  key=$(_attempt_key)
  shared=${TOOLKIT_STOP_DIR:-/shared/.toolkit/stop}/$key.json
  while kill -0 "$server" 2>/dev/null; do
    [[ -z $unasked ]] || ask_to_stop
    if _requested "$shared"; then
      _end_server "$server"
      echo "[toolkit] the machine is taken: the notebook comes back on another"
      exit 85
    fi
    if _requested "$TOOLKIT_RUN_DIR/stop.$key.json"; then
      _end_server "$server"
      grep -q preemption "$TOOLKIT_RUN_DIR/stop.$key.json" && exit 85
      echo "[toolkit] the time limit is near: the notebook ends"
      exit 0
    fi
    if [[ -n $idle_watch ]] && ! kill -0 "$idle_watch" 2>/dev/null; then
      if wait "$idle_watch"; then
        _end_server "$server"
        echo "[toolkit] nobody used the notebook: it ends"
        exit 0
      fi
      [[ -n $said ]] || echo "[toolkit] the watch over the notebook's use failed, and is started again"
      said=1 idle_watch='' again=$((SECONDS + 5))
    fi
    [[ -n $idle_watch ]] || ((SECONDS < again)) || _watch_use "$idle"
    sleep 1 &
    wait "$!" # a signal ends a wait at once, and a foreground sleep not
  done
  wait "$server"
  exit $?
}

# Whether there is a stop request, and not the one for a job of this number in a cluster that was here
# before (toolkit.training.StopFiles).
_requested() {
  [[ -e $1 ]] || return 1
  local at began=${TOOLKIT_ATTEMPT_STARTED:-0}
  at=$(sed -n 's/.*"at": *\([0-9]\{1,12\}\).*/\1/p' "$1")
  ((${at:-$(date +%s)} + 300 >= ${began%.*}))
}

_end_server() {
  kill -TERM "$1" 2>/dev/null
  wait_for_step "$1"
}
