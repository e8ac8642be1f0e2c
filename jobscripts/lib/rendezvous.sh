# shellcheck shell=bash
# Where the ranks meet. No name is looked up: nodes that come and go are in nobody's DNS.

# This machine's address, as Slurm has it; else that of the default route; else the first one.
own_address() {
  local address here
  here=$(ip -4 -o address show scope global | awk '$2 != "lo" {sub("/.*", "", $4); print $4}')
  address=$(scontrol show node "${SLURMD_NODENAME:-none}" 2>/dev/null |
    sed -n 's/.*NodeAddr=\([0-9.]*\) .*/\1/p' | head -n 1)
  if [[ -z $address ]] || ! grep -qxF -- "$address" <<<"$here"; then
    address=$(ip -4 -o route get 192.0.2.1 2>/dev/null | sed -n 's/.* src \([0-9.]*\).*/\1/p')
  fi
  printf '%s\n' "${address:-$(head -n 1 <<<"$here")}"
}

# The interface that has an address: gloo and NCCL are told, for they would ask for the host's name.
interface_of() {
  ip -4 -o address show | awk -v address="$1" '{sub("/.*", "", $4)} $4 == address {print $2; exit}'
}

# A free port that follows from the job id, below the ports the kernel gives out by itself.
free_port() {
  local try port taken
  taken=$(ss -Hltn | awk '{sub(".*:", "", $4); print $4}')
  for try in {0..99}; do
    port=$((20000 + (SLURM_JOB_ID * 7 + try * 101) % 12000))
    grep -qx "$port" <<<"$taken" || { printf '%s\n' "$port"; return; }
  done
  return 1
}

# Sets and exports MASTER_ADDR and MASTER_PORT, or refuses (preflight.sh). The batch script runs on the job's first node.
rendezvous() {
  MASTER_ADDR=$(own_address)
  [[ -n $MASTER_ADDR ]] || refuse "$(uname -n) has no IPv4 address"
  MASTER_PORT=$(free_port) || refuse "no free port on $(uname -n)"
  export MASTER_ADDR MASTER_PORT
  echo "[toolkit] ${SLURM_JOB_NUM_NODES:-1} nodes meet at $MASTER_ADDR:$MASTER_PORT"
}
