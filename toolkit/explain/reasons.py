"""The meanings of the engine's own codes: a node's reason, a failure's code."""

from __future__ import annotations

from typing import Final

from slurmplugins.model.node import REASON_PREFIX

OWN_PREFIX: Final = REASON_PREFIX

# A reason's first word after the prefix → its meaning.
MEANINGS: Final = {
    "bug": "the toolkit's own code failed: the log of slurm-resume has the traceback",
    "cloud-error": "EC2 answered with an error that the toolkit does not know",
    "cloud-unreachable": "EC2 did not answer, or the answer was not EC2's",
    "config": "burst.json on the head node can't be used: `toolkit apply --force` writes it anew",
    "denied": "the head node's role, or an AWS policy, forbids the launch",
    "impaired": "EC2's status checks of the instance failed",
    "ended-since": "EC2 did not answer the launch, and its instances were terminated since",
    "instance-unclear": "EC2 lists the instance in a state that the toolkit does not know",
    "interrupted": "EC2 took the instance back",
    "invalid-registration": "the instance has less than slurm.conf says",
    "invalid-request": "EC2 can't launch the pool as configured: correct it in cluster.yaml",
    "launch-in-doubt": "EC2 did not answer a launch; its result is known within minutes",
    "launch-loop": "instances were launched for the job several times, and it did not begin",
    "machine-ended": "the instance was terminated, and not by the toolkit",
    "never-booted": "the instance stayed pending",
    "never-registered": "the instance ran, and slurmd never registered",
    "no-capacity": "EC2 had no capacity in any offering",
    "no-machine": "the node was up in Slurm, and EC2 had no instance for it",
    "no-offering": "the partition's policy leaves none of the pool's offerings to the job now",
    "not-awaited": "Slurm no longer waited for all nodes of the job",
    "not-ended": "EC2 does not terminate instances, so the toolkit launches no new ones",
    "not-found": "the launch names something that does not exist in EC2: `toolkit deploy`",
    "pool-protected": "the pool's instances did not become nodes, so its launches are paused",
    "quota": "the AWS account's quota is used up: ask AWS for a higher one",
    "rate-too-low": "EC2's rate limit lets too few instances start in time: make the job smaller",
    "rebalance": "EC2 says that the spot instance is at risk: Slurm starts no new job on it",
    "scheduled": "EC2 plans to stop or restart the instance",
    "shared-node": "the job shares a node with another job, which is held",
    "slurm-refused": "slurmctld refused a request of slurm-resume",
    "slurm-unreachable": "slurmctld did not answer slurm-resume",
    "some-not-ended": "EC2 refused to terminate some instances, and terminated the others",
    "spot": "EC2 takes the spot instance back",
    "spot-price": "the spot price is above the limit",
    "state": "the journal on the head node can't be written: look at its disk",
    "throttled": "EC2 refused the request because too many came",
    "too-late": "slurm-resume came to the job only after ResumeTimeout",
    "unauthenticated": "EC2 rejected the head node's credentials: look at its clock and its role",
    "unknown-node": "slurm.conf has the node, burst.json does not: `toolkit apply --force`",
}


def meaning(reason: str) -> str:
    """Return a node's reason in plain words.

    Empty if the reason is not the toolkit's, or is new.
    """
    reason_words = reason.removeprefix(OWN_PREFIX).split() if reason.startswith(OWN_PREFIX) else []
    return MEANINGS.get(reason_words[0], "") if reason_words else ""
