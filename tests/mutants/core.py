"""The core that is measured, and the tests that are to notice a change of each module."""

from __future__ import annotations

ENGINE = ("tests/unit/engine", "tests/property/engine/test_launch_laws.py")
MONEY = ("tests/unit/accounting", "tests/property/accounting")
FILES = (
    "tests/unit/training/test_files.py",
    "tests/unit/training/test_shard_manifests.py",
    "tests/unit/training/test_saver.py",
    "tests/unit/training/test_local_disk.py",
    "tests/unit/training/test_checkpoint_background.py",
)

CORE: dict[str, tuple[str, ...]] = {
    "slurmplugins/policy.py": (
        "tests/unit/engine/test_policy.py",
        "tests/property/engine/test_launch_laws.py",
    ),
    "slurmplugins/spend.py": ("tests/unit/engine/test_policy.py",),
    "slurmplugins/cloud/spec.py": (
        "tests/unit/engine/test_answers.py",
        "tests/unit/engine/test_launch_calls.py",
        "tests/unit/engine/test_ec2_calls.py",
        "tests/property/engine/test_launch_laws.py",
        "tests/golden/launch",
    ),
    "slurmplugins/planner.py": ENGINE,
    "slurmplugins/converge.py": (
        "tests/unit/engine/test_converge.py",
        "tests/unit/engine/test_decisions.py",
        "tests/unit/engine/test_reconcile.py",
        "tests/property/engine/test_converge_laws.py",
    ),
    "slurmplugins/doubt.py": (
        "tests/unit/engine/test_converge.py",
        "tests/unit/engine/test_decisions.py",
        "tests/unit/engine/test_reconcile.py",
    ),
    "slurmplugins/boots.py": (
        "tests/unit/engine/test_converge.py",
        "tests/unit/engine/test_decisions.py",
        "tests/unit/engine/test_protection.py",
    ),
    "slurmplugins/protection.py": (
        "tests/unit/engine/test_decisions.py",
        "tests/unit/engine/test_protection.py",
    ),
    "toolkit/accounting/allocation.py": MONEY,
    "toolkit/training/checkpoint.py": FILES,
    "toolkit/training/manifest.py": FILES,
    "toolkit/training/shard.py": FILES,
}
