# shellcheck shell=bash
# What was submitted, kept in the run's folder for `toolkit runs replay`: Slurm itself forgets a
# job's script minutes after its end.
#
# record_submission   the first attempt writes submission/{job.sbatch,arguments,environment,directory}
#                     of the batch script, which was called with the words in SUBMITTED

SUBMITTED=()

# What a job's own settings are named like. Of these, names that look like a secret's are left out.
_RECORDED='^(SLURM_|SBATCH_|TOOLKIT_|NCCL_|GLOO_|TORCH|PYTORCH_|CUDA_|OMP_|MKL_|HF_|TOKENIZERS_|MLFLOW_|PYTHONHASHSEED=|FI_)'
_SECRET='^[^=]*(TOKEN|SECRET|PASSW|CREDENTIAL|KEY)[^=]*='

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
      printf '%s' "$PWD" >"$made/directory" &&
      mv -T -- "$made" "$folder"
  ) || echo "[toolkit] the submission could not be kept; 'toolkit runs replay' will say so" >&2
}
