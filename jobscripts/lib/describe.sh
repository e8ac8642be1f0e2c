#!/bin/bash
# Describe one node of a job in a few lines: instance, processors, memory, GPUs, shared filesystem.
set -u
instance=${TOOLKIT_INSTANCE_FILE:-/run/slurm-toolkit/instance.json}

echo "node ${SLURMD_NODENAME:-$(hostname)}, job ${SLURM_JOB_ID:-none}, user $(id -un)"
if [[ -r $instance ]]; then
  echo "instance $(tr -d '\n' <"$instance")"
else
  echo "instance unknown: there is no $instance"
fi
echo "$(nproc) processors, $(awk '/^MemTotal/ {printf "%.1f", $2 / 1048576}' /proc/meminfo) GiB memory"
echo "GPUs allocated: ${SLURM_GPUS_ON_NODE:-0} (${CUDA_VISIBLE_DEVICES:-none visible})"
if command -v nvidia-smi >/dev/null; then
  nvidia-smi --query-gpu=index,name,memory.total --format=csv,noheader || exit 1
fi
locked=$(ulimit -l) # KiB
echo "memory that a process may lock: $locked"
if [[ -d /sys/class/infiniband && $locked != unlimited ]]; then
  echo "EFA needs unlimited locked memory; slurm.conf needs PropagateResourceLimitsExcept=MEMLOCK" >&2
  exit 1
fi
if mountpoint --quiet /shared; then
  df -h --output=target,size,avail /shared | tail -n 1
else
  echo "/shared is not mounted"
fi
