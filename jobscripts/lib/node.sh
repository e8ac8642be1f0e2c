#!/bin/bash
# What srun starts, once on every node: torchrun, told who and where it is.
set -u
# shellcheck source-path=SCRIPTDIR source=rendezvous.sh
source "$TOOLKIT_JOBSCRIPTS/lib/rendezvous.sh"

address=$(own_address)
interface=$(interface_of "$address")
export GLOO_SOCKET_IFNAME=${GLOO_SOCKET_IFNAME:-$interface}
export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-$interface}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
# By the environment: torchrun's option is of 2.13, and the older one of an image would refuse it.
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=${TORCH_ELASTIC_SHUTDOWN_TIMEOUT:-60}

processes=${SLURM_GPUS_ON_NODE:-1}
((processes > 0)) || processes=1

script=$1
shift
[[ $script == /* ]] || script=./$script # a name may begin with a dash

# static: the first node's address is all anyone needs. c10d would have every node look names up.
# No restarts inside an attempt: what failed is told apart between attempts.
environment=${TOOLKIT_CONTAINER:+${TOOLKIT_CONTAINER_ENV:-}}
exec "${environment:-$TOOLKIT_ENV}/bin/torchrun" \
  --nnodes="$SLURM_JOB_NUM_NODES" --node-rank="$SLURM_NODEID" --nproc-per-node="$processes" \
  --rdzv-backend=static --master-addr="$MASTER_ADDR" --master-port="$MASTER_PORT" \
  --local-addr="$address" --rdzv-id="$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}" \
  --max-restarts=0 -- "$script" "$@"
