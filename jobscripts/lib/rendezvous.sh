# shellcheck shell=bash
# Choose the address where the ranks meet. No host name is looked up: DNS does not know the nodes.

# Prints this node's address: Slurm's, or the default route's, or the first one.
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

# Prints the interface that has an address. gloo and NCCL would look up the host name instead.
interface_of() {
  ip -4 -o address show | awk -v address="$1" '{sub("/.*", "", $4)} $4 == address {print $2; exit}'
}

# Prints a free port that follows from the job id, below the kernel's own range of ports.
free_port() {
  local try port taken
  taken=$(ss -Hltn | awk '{sub(".*:", "", $4); print $4}')
  for try in {0..99}; do
    port=$((20000 + (SLURM_JOB_ID * 7 + try * 101) % 12000))
    grep -qx "$port" <<<"$taken" || { printf '%s\n' "$port"; return; }
  done
  return 1
}

# Exports MASTER_ADDR and MASTER_PORT, or refuses (preflight.sh). The batch script runs on the first node.
rendezvous() {
  MASTER_ADDR=$(own_address)
  [[ -n $MASTER_ADDR ]] || refuse "node $(uname -n) has no IPv4 address"
  MASTER_PORT=$(free_port) || refuse "node $(uname -n) has no free port from 20000 to 31999"
  export MASTER_ADDR MASTER_PORT
  echo "[toolkit] ${SLURM_JOB_NUM_NODES:-1} nodes meet at $MASTER_ADDR:$MASTER_PORT"
}
