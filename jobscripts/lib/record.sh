# shellcheck shell=bash
# Record the submission in the run's folder for `toolkit runs replay`: Slurm forgets a job's script
# minutes after the job has ended.
#
# record_submission   writes submission/{job.sbatch,arguments,environment,names,directory,submit-line}
#                     in the first attempt. SUBMITTED holds the batch script's arguments

SUBMITTED=()

# The names of a job's own settings. Names that look like a secret's are left out.
_RECORDED='^(SLURM_|SBATCH_|TOOLKIT_|NCCL_|GLOO_|TORCH|PYTORCH_|CUDA_|OMP_|MKL_|HF_|TOKENIZERS_|MLFLOW_|PYTHONHASHSEED=|PYTHONPATH=|FI_)'
# TOKENIZERS_PARALLELISM is not a secret.
_SECRET='^[^=]*(TOKEN([^I]|I[^Z])|SECRET|PASSW|CREDENTIAL|KEY)'

record_submission() {
  local folder=$TOOLKIT_RUN_DIR/submission
  [[ ! -e $folder ]] || return 0
  local made=$folder.$$.tmp
  (
    umask 077
    mkdir -- "$made" &&
      cp -- "$0" "$made/job.sbatch" && # sbatch runs a copy of the script, and $0 is that
      if ((${#SUBMITTED[@]})); then printf '%s\0' "${SUBMITTED[@]}"; fi >"$made/arguments" &&
      env -0 | grep -zE "$_RECORDED" | grep -zviE "$_SECRET" >"$made/environment" &&
      compgen -e >"$made/names" && # names of variables, never their values
      printf '%s' "$PWD" >"$made/directory" &&
      _submit_line "$made/submit-line" &&
      mv -T -- "$made" "$folder"
  ) || echo "[toolkit] the submission is not recorded: 'toolkit runs replay' can't repeat this run" >&2
}

# Only accounting has sbatch's command line. A replay without it works, and prints a warning.
_submit_line() {
  local job=${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}
  timeout 5 sacct --allocations --noheader --parsable2 --jobs="$job" --format=SubmitLine >"$1" 2>/dev/null &&
    [[ -s $1 ]] || rm -f -- "$1"
}
