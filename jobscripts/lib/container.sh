# shellcheck shell=bash
# Training inside a container, when TOOLKIT_CONTAINER says so. What runs is pinned by digest: a tag
# may be another image tomorrow, and a run that comes back must find the same one.
#
#   TOOLKIT_CONTAINER=registry/image@sha256:…      where the cluster has pyxis
#   TOOLKIT_CONTAINER=/shared/image.sqsh@sha256:…  pyxis; the file's own hash, checked
#   TOOLKIT_CONTAINER=/shared/bundle@sha256:…      where it has oci.conf: a bundle that umoci unpacked
#
# container_options sets the array CONTAINER (for srun) and exports TOOLKIT_CONTAINER_DIGEST, or ends
# the job with 93. The image needs bash and iproute2; TOOLKIT_ENV is where its torchrun is.

# shellcheck disable=SC2034 # the batch script reads it
CONTAINER=()

container_options() {
  [[ -n ${TOOLKIT_CONTAINER:-} ]] || return 0
  [[ $TOOLKIT_CONTAINER =~ ^([^@]+)@(sha256:[0-9a-f]{64})$ ]] ||
    refuse "TOOLKIT_CONTAINER '$TOOLKIT_CONTAINER' is not pinned: write IMAGE@sha256:…, which" \
      "'skopeo inspect --format {{.Digest}} docker://IMAGE' prints"
  local image=${BASH_REMATCH[1]} digest=${BASH_REMATCH[2]}
  if srun --help 2>/dev/null | grep -q -- --container-image; then
    _pyxis_options "$image" "$digest"
  elif _has_oci; then
    _oci_options "$image" "$digest"
  else
    refuse "this cluster has neither pyxis nor oci.conf, so TOOLKIT_CONTAINER can't be used"
  fi
  export TOOLKIT_CONTAINER_DIGEST=$digest
  echo "[toolkit] container $image, $digest"
}

_pyxis_options() {
  local name=$1 digest=$2
  if [[ $name == /* ]]; then
    [[ -r $name ]] || refuse "the image $name can't be read from $(uname -n)"
    [[ sha256:$(sha256sum -- "$name" | cut -d ' ' -f 1) == "$digest" ]] ||
      refuse "the image $name is not the one that was pinned"
  else
    # enroot takes a tag or a digest, not both, and a # after the registry.
    [[ ${name##*/} == *:* ]] && name=${name%:*}
    [[ ${name%%/*} == *[.:]* && $name == */* ]] && name=${name%%/*}#${name#*/}
    name=$name@$digest
  fi
  CONTAINER=(
    "--container-image=$name" "--container-workdir=$PWD"
    "--container-mounts=/shared:/shared,/run/slurm-toolkit:/run/slurm-toolkit:ro${TOOLKIT_MOUNTS:+,$TOOLKIT_MOUNTS}"
  )
}

# What is mounted is in the bundle's own config.json.
_oci_options() {
  [[ -r $1/config.json ]] || refuse "$1 is no OCI bundle: it has no config.json"
  grep -qs "\"$2\"" "$1/umoci.json" ||
    refuse "the bundle $1 is not of the image that was pinned, or doesn't say (no umoci.json)"
  # shellcheck disable=SC2034 # as above
  CONTAINER=("--container=$1")
}

_has_oci() {
  local folder
  for folder in "${SLURM_CONF:+${SLURM_CONF%/*}}" /run/slurm/conf /etc/slurm; do
    [[ -n $folder && -r $folder/oci.conf ]] && return 0
  done
  return 1
}
