#!/bin/bash
# Start torchrun on one node. srun runs this script once on every node.
set -u
# shellcheck source-path=SCRIPTDIR source=rendezvous.sh
source "$TOOLKIT_JOBSCRIPTS/lib/rendezvous.sh"

address=$(own_address)
interface=$(interface_of "$address")
export GLOO_SOCKET_IFNAME=${GLOO_SOCKET_IFNAME:-$interface}
export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-$interface}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
# A variable, not an option: torchrun has the option since 2.13, and older ones would refuse it.
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=${TORCH_ELASTIC_SHUTDOWN_TIMEOUT:-60}

processes=${SLURM_GPUS_ON_NODE:-1}
((processes > 0)) || processes=1

script=$1
shift
[[ $script == /* ]] || script=./$script # a name may begin with a dash

# static: every node needs the first node's address only. c10d would look host names up.
# No restarts inside an attempt: end-of-attempt decides between attempts.
environment=${TOOLKIT_CONTAINER:+${TOOLKIT_CONTAINER_ENV:-}}
exec "${environment:-$TOOLKIT_ENV}/bin/torchrun" \
  --nnodes="$SLURM_JOB_NUM_NODES" --node-rank="$SLURM_NODEID" --nproc-per-node="$processes" \
  --rdzv-backend=static --master-addr="$MASTER_ADDR" --master-port="$MASTER_PORT" \
  --local-addr="$address" --rdzv-id="$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}" \
  --max-restarts=0 -- "$script" "$@"
