"""Says in one sentence what deploy would do with a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.output import counted

if TYPE_CHECKING:
    from toolkit.deploy.cluster import DeployPreview

NOTHING = "`toolkit deploy` would change nothing"


def deploy_sentence(preview: DeployPreview) -> str:
    """Return what `toolkit deploy` would do, in its order."""
    if preview.slurm is not None and preview.slurm.problem:
        return f"`toolkit deploy` would stop: {preview.slurm.problem}; {preview.slurm.next_step}"
    steps = _steps(preview)
    if not steps:
        return NOTHING
    sentence = f"`toolkit deploy` would {_joined(steps)}"
    if not preview.losses:
        return sentence
    logical_ids = ", ".join(preview.losses)
    return f"{sentence}; only with --yes, since it would, or may, remove or replace {logical_ids}"


def _steps(preview: DeployPreview) -> list[str]:
    plan, steps = preview.plan, []
    if preview.missing_images:
        steps.append(f"build {counted(len(preview.missing_images), 'image')}")
    if plan.change_set or preview.changes:
        verb = "create" if plan.creates_stack else "change"
        parts = f" ({counted(len(preview.changes), 'resource')})" if preview.changes else ""
        steps.append(f"{verb} the stack{parts}")
    if preview.new_head is not None:
        steps.append("replace the head node's instance")
    elif preview.head_restarts:
        steps.append("stop and start the head node's instance")
    if preview.lost_login_nodes:
        steps.append(f"replace {counted(len(preview.lost_login_nodes), 'login node')}")
    if preview.backup_changes and not plan.creates_stack:
        steps.append("change the stack of backups")
    if preview.new_bundle or preview.new_head is not None or plan.creates_stack:
        steps.append("set up the head node")
    return steps


def _joined(steps: list[str]) -> str:
    return steps[0] if len(steps) == 1 else f"{', '.join(steps[:-1])} and {steps[-1]}"
