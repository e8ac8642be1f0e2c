"""A training script whose run moves: its checkpoints are in S3, and a stop waits for them there.

Its random parts show whether an attempt goes on bit for bit: dropout, shuffling, AdamW.
"""

import os

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from toolkit.training import Run, S3Tier, SampleOrder

EPOCHS, SIZE, BATCH, SEED = 40, 900, 60, 3  # 600 steps


def main() -> None:
    torch.set_num_threads(1)  # more of them add in another order
    tiers = [S3Tier.of_cluster(os.environ["MOVING_RUN"], outlives_notice=True)]
    with Run(params={}, seed=SEED, checkpoint_every=20, tiers=tiers) as run:
        torch.manual_seed(SEED)
        inputs = torch.randn(SIZE, 16)
        labels = inputs[:, :4].argmax(dim=1)
        model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 4))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        run.resume(model=model, optimizer=optimizer)
        for batch in run.batches(SampleOrder(SIZE, BATCH, SEED), EPOCHS):
            optimizer.zero_grad()
            logits = model(inputs[batch.mine])
            loss = cross_entropy(logits, labels[batch.mine], reduction="sum") * batch.weight
            loss.backward()
            optimizer.step()
            run.step(batch, loss=loss.detach())


if __name__ == "__main__":
    main()
