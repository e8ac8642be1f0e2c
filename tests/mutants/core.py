"""The core, the tests that are to notice a change of each module, and the modules that decide.

`scripts/coverage` measures the branches of the core. `by_tool.py` changes MUTATED unless it is told
other modules of the core.
"""

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
SAVES = (
    "tests/unit/training/test_checkpoint.py",
    "tests/unit/training/test_shard_manifests.py",
    "tests/unit/training/test_checkpoint_background.py",
    "tests/contract/training/test_checkpoint_tiers.py",
    "tests/contract/training/test_checkpoint_files.py",
)
TRAINING = ("tests/unit/training",)
PASSES = (
    "tests/unit/engine/test_converge.py",
    "tests/unit/engine/test_decisions.py",
    "tests/unit/engine/test_reconcile.py",
)
RULES = (
    "tests/unit/engine/test_converge.py",
    "tests/unit/engine/test_decisions.py",
    "tests/unit/engine/test_registering.py",
)
REQUESTS = "tests/property/engine/test_fates_laws.py"

CORE: dict[str, tuple[str, ...]] = {
    "slurmplugins/policy.py": (
        "tests/unit/engine/test_policy.py",
        "tests/unit/engine/test_plan_of_resume.py",
    ),
    "slurmplugins/spend.py": ("tests/unit/engine/test_policy.py",),
    "slurmplugins/cloud/spec.py": (
        "tests/unit/engine/test_answers.py",
        "tests/unit/engine/test_launch_calls.py",
        "tests/unit/engine/test_ec2_calls.py",
        "tests/golden/launch",
    ),
    "slurmplugins/planner.py": (
        "tests/unit/engine/test_plan_of_resume.py",
        "tests/unit/engine/test_decisions.py",
    ),
    "slurmplugins/plans.py": ENGINE,
    "slurmplugins/batches.py": ENGINE,
    "slurmplugins/fates.py": ("tests/unit/engine/test_whole_requests.py", REQUESTS),
    "slurmplugins/board.py": (*ENGINE, REQUESTS),
    "slurmplugins/quotas.py": ENGINE,
    "slurmplugins/brake.py": ENGINE,
    "slurmplugins/converge.py": RULES,
    "slurmplugins/cases.py": RULES,
    "slurmplugins/strangers.py": ("tests/unit/engine/test_strangers.py", *RULES),
    "slurmplugins/health.py": (*PASSES, "tests/unit/engine/test_answers.py"),
    "slurmplugins/registering.py": (*PASSES, "tests/unit/engine/test_registering.py"),
    "slurmplugins/doubt.py": PASSES,
    "slurmplugins/boots.py": (
        "tests/unit/engine/test_converge.py",
        "tests/unit/engine/test_decisions.py",
        "tests/unit/engine/test_protection.py",
    ),
    "slurmplugins/protection.py": (
        "tests/unit/engine/test_decisions.py",
        "tests/unit/engine/test_protection.py",
    ),
    "slurmplugins/ends.py": ENGINE,
    "slurmplugins/claims.py": (*ENGINE, "tests/property/engine/test_journal_laws.py"),
    "slurmplugins/identity.py": (*ENGINE, "tests/property/engine/test_names_laws.py"),
    "slurmplugins/steady.py": ("tests/unit/engine/test_steady.py",),
    "toolkit/accounting/allocation.py": ("tests/unit/accounting/test_allocation.py",),
    "toolkit/accounting/attempts.py": MONEY,
    "toolkit/accounting/money.py": MONEY,
    "toolkit/training/checkpoint.py": SAVES,
    "toolkit/training/checkpoint_folders.py": ("tests/unit/training/test_checkpoint_folders.py",),
    "toolkit/training/files.py": FILES,
    "toolkit/training/manifest.py": (
        "tests/unit/training/test_manifest.py",
        "tests/unit/training/test_shard_manifests.py",
    ),
    "toolkit/training/owner.py": TRAINING,
    "toolkit/training/shard.py": FILES,
    "toolkit/training/tiers.py": TRAINING,
}

MUTATED = (
    "slurmplugins/planner.py",
    "slurmplugins/policy.py",
    "slurmplugins/converge.py",
    "slurmplugins/cases.py",
    "slurmplugins/strangers.py",
    "slurmplugins/cloud/spec.py",
    "toolkit/accounting/allocation.py",
    "toolkit/training/checkpoint.py",
    "toolkit/training/checkpoint_folders.py",
    "toolkit/training/manifest.py",
)
"""The planner, the rules, the policy, the launch calls, the division of money, the checkpoints."""
