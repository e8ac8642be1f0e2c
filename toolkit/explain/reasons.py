"""The meanings of the engine's own codes: a node's reason, a failure's code."""

from __future__ import annotations

from typing import Final

from slurmplugins.model.node import REASON_PREFIX

OWN_PREFIX: Final = REASON_PREFIX

# A reason's first word after the prefix → its meaning.
MEANINGS: Final = {
    "bug": "our own code failed: resume's log says where",
    "cloud-error": "EC2 answered with an error that is new to us",
    "cloud-unreachable": "EC2 did not answer, or not in words of its own",
    "config": "the head's burst.json can't be used: a person must act",
    "denied": "the head's role may not launch this: a person must act",
    "impaired": "EC2's status checks of its machine failed",
    "ended-since": "EC2 did not answer its launch, and what that had started has ended since",
    "instance-unclear": "EC2 lists its machine in a state that is new to us",
    "interrupted": "EC2 took its machine back",
    "invalid-registration": "its machine has less than slurm.conf promises",
    "invalid-request": "the launch can't work as it is configured: a person must act",
    "launch-in-doubt": "a launch got no answer; it is settled within minutes",
    "launch-loop": "instances were started for it several times, and it did not begin",
    "machine-ended": "its machine ended, and not by our doing",
    "never-booted": "its machine stayed pending",
    "never-registered": "its machine ran, and slurmd never registered",
    "no-capacity": "EC2 had no capacity in any of its offerings",
    "no-machine": "Slurm thought it was up, and there was no machine",
    "no-offering": "the partition's policy leaves none of the pool's offerings to the job now",
    "not-awaited": "Slurm did not wait for all of its job's nodes any more",
    "not-ended": "EC2 does not end instances that should end, so none is started beside them",
    "not-found": "something the launch names does not exist: a person must act",
    "pool-protected": "the pool's machines did not come up, so no more are launched for now",
    "quota": "the account may not have more of these: ask AWS for a higher quota",
    "rate-too-low": "it is larger than what the account's rate starts in time: a person must act",
    "rebalance": "EC2 says its spot machine is at risk: nothing new starts there",
    "scheduled": "EC2 plans to stop or restart its machine",
    "shared-node": "a node that it waits for was to come for another job, which is held",
    "slurm-refused": "slurmctld refused what resume asked of it",
    "slurm-unreachable": "slurmctld did not answer resume",
    "some-not-ended": "EC2 refused to end some instances, and ended the others",
    "spot": "EC2 is taking its spot machine back",
    "spot-price": "the spot price is above our limit",
    "state": "the head's journal can't be written: is its disk full, or read-only?",
    "throttled": "EC2 took no more requests for the moment",
    "too-late": "resume came to it only after ResumeTimeout",
    "unauthenticated": "EC2 could not tell who asked: it passes, or look at the head's clock",
    "unknown-node": "slurm.conf has it and burst.json has not: a person must act",
}


def meaning(reason: str) -> str:
    """Return a node's reason in plain words.

    Empty if the reason is not the toolkit's, or is new.
    """
    reason_words = reason.removeprefix(OWN_PREFIX).split() if reason.startswith(OWN_PREFIX) else []
    return MEANINGS.get(reason_words[0], "") if reason_words else ""
