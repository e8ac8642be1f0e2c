"""The core, the tests of its modules, and the deciding modules.

`scripts/coverage` measures the branches of the core. `by_tool.py` changes MUTATED unless other
modules of the core are named.
"""

from __future__ import annotations

ENGINE = ("tests/unit/slurmplugins", "tests/property/engine/test_launch_laws.py")
MONEY = ("tests/unit/accounting", "tests/property/accounting")
FILES = (
    "tests/unit/training/io/test_durable_files.py",
    "tests/unit/training/checkpoint/test_manifest.py",
    "tests/unit/training/checkpoint/test_save_schedule.py",
    "tests/unit/training/checkpoint/test_local_disk.py",
    "tests/unit/training/checkpoint/test_background_save.py",
)
SAVES = (
    "tests/unit/training/checkpoint/test_checkpointer.py",
    "tests/unit/training/checkpoint/test_manifest.py",
    "tests/unit/training/checkpoint/test_background_save.py",
    "tests/contract/training/test_checkpoint_tiers.py",
    "tests/contract/training/test_checkpoint_files.py",
)
TRAINING = ("tests/unit/training",)
PASSES = (
    "tests/unit/slurmplugins/reconciler/test_rules.py",
    "tests/unit/slurmplugins/reconciler/test_decisions.py",
    "tests/unit/slurmplugins/reconciler/test_run.py",
)
RULES = (
    "tests/unit/slurmplugins/reconciler/test_rules.py",
    "tests/unit/slurmplugins/reconciler/test_decisions.py",
    "tests/unit/slurmplugins/reconciler/test_node_state.py",
)
REQUESTS = "tests/property/engine/test_all_or_nothing_laws.py"

CORE: dict[str, tuple[str, ...]] = {
    "slurmplugins/launch/fallback.py": (
        "tests/unit/slurmplugins/launch/test_fallback.py",
        "tests/unit/slurmplugins/power_save/test_planner.py",
    ),
    "slurmplugins/cloud/ec2_messages.py": (
        "tests/unit/slurmplugins/cloud/test_ec2_messages.py",
        "tests/unit/slurmplugins/launch/test_launch_call.py",
        "tests/unit/slurmplugins/cloud/test_ec2.py",
        "tests/golden/launch",
    ),
    "slurmplugins/power_save/planner.py": (
        "tests/unit/slurmplugins/power_save/test_planner.py",
        "tests/unit/slurmplugins/reconciler/test_decisions.py",
    ),
    "slurmplugins/power_save/prepare.py": ENGINE,
    "slurmplugins/launch/batching.py": ENGINE,
    "slurmplugins/launch/all_or_nothing.py": (
        "tests/unit/slurmplugins/launch/test_all_or_nothing.py",
        REQUESTS,
    ),
    "slurmplugins/launch/request_tracker.py": (*ENGINE, REQUESTS),
    "slurmplugins/state/launch_budget.py": ENGINE,
    "slurmplugins/state/launch_budget_record.py": ENGINE,
    "slurmplugins/reconciler/rules.py": RULES,
    "slurmplugins/reconciler/node_state.py": (
        *PASSES,
        "tests/unit/slurmplugins/reconciler/test_node_state.py",
    ),
    "slurmplugins/reconciler/orphans.py": (
        "tests/unit/slurmplugins/reconciler/test_orphans.py",
        *RULES,
    ),
    "slurmplugins/model/instance.py": (
        *PASSES,
        "tests/unit/slurmplugins/cloud/test_ec2_messages.py",
    ),
    "slurmplugins/reconciler/snapshot.py": PASSES,
    "slurmplugins/reconciler/boot_failures.py": (
        "tests/unit/slurmplugins/reconciler/test_rules.py",
        "tests/unit/slurmplugins/reconciler/test_decisions.py",
        "tests/unit/slurmplugins/power_save/test_circuit_breaker.py",
    ),
    "slurmplugins/power_save/circuit_breaker.py": (
        "tests/unit/slurmplugins/reconciler/test_decisions.py",
        "tests/unit/slurmplugins/power_save/test_circuit_breaker.py",
    ),
    "slurmplugins/execution/termination.py": ENGINE,
    "slurmplugins/state/journal_view.py": (*ENGINE, "tests/property/engine/test_journal_laws.py"),
    "slurmplugins/cloud/tags.py": (*ENGINE, "tests/property/engine/test_hostlist_laws.py"),
    "slurmplugins/state/persistent_clock.py": (
        "tests/unit/slurmplugins/state/test_persistent_clock.py",
    ),
    "toolkit/accounting/allocation.py": ("tests/unit/accounting/test_allocation.py",),
    "toolkit/accounting/timeline.py": ("tests/unit/accounting/test_allocation.py",),
    "toolkit/accounting/attempts.py": MONEY,
    "toolkit/accounting/money.py": ("tests/unit/accounting/test_money.py",),
    "toolkit/training/checkpoint/checkpointer.py": SAVES,
    "toolkit/training/checkpoint/folders.py": ("tests/unit/training/checkpoint/test_folders.py",),
    "toolkit/training/io/durable_files.py": FILES,
    "toolkit/training/checkpoint/manifest.py": (
        "tests/unit/training/checkpoint/test_commit.py",
        "tests/unit/training/checkpoint/test_manifest.py",
    ),
    "toolkit/training/attempt/fencing.py": TRAINING,
    "toolkit/training/checkpoint/hashed_file.py": FILES,
    "toolkit/training/checkpoint/tier.py": TRAINING,
    "toolkit/training/checkpoint/background_save.py": TRAINING,
    "toolkit/training/checkpoint/block_reader.py": ("tests/contract/training/test_elastic.py",),
    "toolkit/training/checkpoint/collective.py": TRAINING,
    "toolkit/training/checkpoint/dcp_codec.py": (
        "tests/contract/training/test_checkpoint_faults.py",
        "tests/contract/training/test_sharded_faults.py",
    ),
    "toolkit/training/checkpoint/deepspeed_codec.py": (
        "tests/contract/training/test_zero_faults.py",
    ),
    "toolkit/training/checkpoint/hashes.py": TRAINING,
    "toolkit/training/checkpoint/local_disk.py": TRAINING,
    "toolkit/training/checkpoint/pinned_memory.py": (
        "tests/contract/training/test_pinned_memory.py",
    ),
    "toolkit/training/checkpoint/replication.py": (
        *TRAINING,
        "tests/contract/training/test_checkpoint_tiers.py",
    ),
    "toolkit/training/checkpoint/s3_tier.py": (
        "tests/contract/training/test_s3_tier.py",
        "tests/contract/training/test_s3_faults.py",
    ),
    "toolkit/training/checkpoint/save_interval.py": TRAINING,
    "toolkit/training/checkpoint/save_schedule.py": TRAINING,
    "toolkit/training/checkpoint/staging.py": ("tests/contract/training/test_pinned_memory.py",),
    "toolkit/training/checkpoint/torch_codec.py": (
        "tests/contract/training/test_checkpoint_faults.py",
    ),
    "toolkit/training/run_folder/checkpoint_names.py": FILES,
}

MUTATED = (
    "slurmplugins/power_save/planner.py",
    "slurmplugins/launch/fallback.py",
    "slurmplugins/reconciler/rules.py",
    "slurmplugins/reconciler/node_state.py",
    "slurmplugins/reconciler/orphans.py",
    "slurmplugins/cloud/ec2_messages.py",
    "toolkit/accounting/allocation.py",
    "toolkit/training/checkpoint/checkpointer.py",
    "toolkit/training/checkpoint/folders.py",
    "toolkit/training/checkpoint/manifest.py",
)
"""The planner, the rules, the policy, the launch calls, the division of money, the checkpoints."""
