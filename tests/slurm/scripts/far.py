"""The slow training, with its checkpoints in S3 as well."""

from __future__ import annotations

import os

import torch
from slow import SAVE_EVERY, arguments, epochs

from toolkit.training import Run
from toolkit.training.s3 import S3Tier


def main() -> None:
    args = arguments().parse_args()
    torch.set_num_threads(1)
    far = S3Tier.of_cluster(f"ada/{os.environ['SLURM_JOB_ID']}")
    with Run(params=vars(args), seed=0, checkpoint_every=SAVE_EVERY, tiers=[far]) as run:
        for _ in epochs(run, torch.nn.Linear(1, 1), args.epochs):
            pass


if __name__ == "__main__":
    main()
