"""What the brake says to people."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slurmplugins.brake import Rate


def shut(seconds: float, code: str) -> str:
    """Say why nothing is launched at all."""
    return (
        f"EC2 has ended nothing for {_minutes(seconds)} ({code}): nothing is started until it does"
    )


def loop(started: int, asked: int, seconds: float) -> str:
    """Say why a job that does not begin is held."""
    return (
        f"{started} instances were started for its {asked} nodes within {_minutes(seconds)},"
        " and it has not begun"
    )


def doubted(count: int) -> str:
    """Say why a job waits for what became of its launches."""
    return (
        f"{count} instances may have been started for it by launches that got no answer;"
        " that is settled within minutes"
    )


def too_large(asked: int, rate: Rate) -> str:
    """Say why a job above the told rate is held."""
    return (
        f"{asked} nodes are more than the {rate.most:.0f} instances that aws.instance_rate"
        f" (burst {rate.burst:g}, per_second {rate.per_second:g}) starts within"
        f" {rate.seconds:.0f} s, half of slurm.resume_timeout. {_mend(rate)}"
    )


def too_slow(asked: int, started: int, rate: Rate) -> str:
    """Say why a job that EC2 served too slowly is held."""
    return (
        f"EC2 started {started} of {asked} instances in {rate.seconds:.0f} s and took no more"
        f" requests; they were ended. {_mend(rate)}"
    )


def _mend(rate: Rate) -> str:
    known = (
        ""
        if rate.told
        else (
            f" The published rate ({rate.burst:g} at once, {rate.per_second:g} a second) is enough"
            f" for {rate.most:.0f}."
        )
    )
    return (
        "Have AWS raise the account's rate and set aws.instance_rate to it, or raise"
        f" slurm.resume_timeout, or make the job smaller.{known}"
    )


def _minutes(seconds: float) -> str:
    return f"{max(1.0, seconds / 60):.0f} min"
