#!/bin/sh
{
  echo "$0 $*"
  [ -z "$SLURM_RESUME_FILE" ] || { cat "$SLURM_RESUME_FILE"; echo; }
} >> /var/log/slurm/site-power.log
