# shellcheck shell=bash
# Train inside the container that TOOLKIT_CONTAINER names. The image is pinned by its digest: a tag
# may be another image tomorrow, and a requeued run must find the same one.
#
#   TOOLKIT_CONTAINER=registry/image@sha256:…      on a cluster with pyxis
#   TOOLKIT_CONTAINER=/shared/image.sqsh@sha256:…  pyxis; the file's own hash is checked
#   TOOLKIT_CONTAINER=/shared/bundle@sha256:…      on a cluster with oci.conf: a bundle that umoci unpacked
#
# container_options sets the array CONTAINER (for srun) and exports TOOLKIT_CONTAINER_DIGEST, or ends
# the job with 93. /shared is in the container, and TOOLKIT_MOUNTS (SOURCE:DESTINATION[:ro],…) as well.
# The image needs bash, awk and iproute2; its torchrun is the one in TOOLKIT_CONTAINER_ENV, or in TOOLKIT_ENV.

# shellcheck disable=SC2034 # the batch script reads it
CONTAINER=()

container_options() {
  unset TOOLKIT_CONTAINER_DIGEST # of the job that this one was submitted from
  [[ -n ${TOOLKIT_CONTAINER:-} ]] || return 0
  [[ $TOOLKIT_CONTAINER =~ ^([^@]+)@(sha256:[0-9a-f]{64})$ ]] ||
    refuse "TOOLKIT_CONTAINER '$TOOLKIT_CONTAINER' is not pinned: write IMAGE@sha256:…;" \
      "the digest is what 'skopeo inspect --format {{.Digest}} docker://IMAGE' prints"
  local image=${BASH_REMATCH[1]} digest=${BASH_REMATCH[2]}
  if srun --help 2>/dev/null | grep -q -- --container-image; then
    _pyxis_options "$image" "$digest"
  elif _has_oci; then
    _oci_options "$image" "$digest"
  else
    refuse "this cluster has neither pyxis nor oci.conf: TOOLKIT_CONTAINER can't be used"
  fi
  export TOOLKIT_CONTAINER_DIGEST=$digest
  echo "[toolkit] container $image, $digest"
}

_pyxis_options() {
  local name=$1 digest=$2
  if [[ $name == /* ]]; then
    [[ -r $name ]] || refuse "the image $name can't be read on node $(uname -n)"
    [[ sha256:$(sha256sum -- "$name" | cut -d ' ' -f 1) == "$digest" ]] ||
      refuse "the image $name has another digest than TOOLKIT_CONTAINER says"
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

# Makes the job's own bundle: the files of the pinned one, and the mounts that every step has.
_oci_options() {
  local bundle=$TOOLKIT_RUN_DIR/container.$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0} mounts=()
  IFS=, read -ra mounts <<<"/shared:/shared,/run/slurm-toolkit:/run/slurm-toolkit:ro${TOOLKIT_MOUNTS:+,$TOOLKIT_MOUNTS}"
  "$TOOLKIT_ENV/bin/python" -m toolkit.training oci-bundle "$1" "$2" "$bundle" "${mounts[@]}" || exit 93
  # shellcheck disable=SC2034 # as above
  CONTAINER=("--container=$bundle")
}

_has_oci() {
  local folder
  for folder in "${SLURM_CONF:+${SLURM_CONF%/*}}" /run/slurm/conf /etc/slurm; do
    [[ -n $folder && -r $folder/oci.conf ]] && return 0
  done
  return 1
}
