"""The events of all logs: one slug for each, `noun_verb_past`.

A search for the slug finds the code that logs the event, and the tests and commands that read it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class LogEvent(StrEnum):
    """An event in a log. Its fields say which node, job or instance it is about."""

    # Every program
    PROGRAM_STARTED = "program_started"
    PROGRAM_FAILED = "program_failed"
    JOURNAL_READ_FAILED = "journal_read_failed"
    JOURNAL_WRITE_FAILED = "journal_write_failed"
    NODE_QUERY_FAILED = "node_query_failed"
    JOB_QUERY_FAILED = "job_query_failed"
    NODE_NAMES_REJECTED = "node_names_rejected"
    """Names in Slurm's call that are no nodes of ours."""
    NODES_NOT_HANDED_ON = "nodes_not_handed_on"
    """The power-save program of the site that we joined did not get its nodes."""
    SLURM_RECORDS_REJECTED = "slurm_records_rejected"
    """Records in Slurm's answer that can't be read; the others are used."""

    # Launches
    RESUME_PLANNED = "resume_planned"
    RESUME_FINISHED = "resume_finished"
    HET_JOB_QUERY_FAILED = "het_job_query_failed"
    INSTANCE_QUERY_FAILED = "instance_query_failed"
    OFFERING_REFUSED = "offering_refused"
    LAUNCH_FAILED = "launch_failed"
    INSTANCES_LAUNCHED = "instances_launched"
    INSTANCES_REASSIGNED = "instances_reassigned"
    REASSIGNMENT_EXPIRED = "reassignment_expired"
    """The instances had booted so far that they may have read their node's name."""
    LAUNCH_RESOLVED = "launch_resolved"
    LAUNCH_NOT_RESOLVED = "launch_not_resolved"
    NODE_ADDRESSES_NOT_SET = "node_addresses_not_set"
    NODES_GIVEN_BACK = "nodes_given_back"
    NODES_NOT_GIVEN_BACK = "nodes_not_given_back"
    """Slurm did not tell which of the nodes it still waits for. Reconcile gives them back."""
    NODES_NOT_AWAITED = "nodes_not_awaited"
    """Slurm does not wait for the nodes any more: nothing is given back."""
    JOBS_NOT_NOTIFIED = "jobs_not_notified"
    JOB_COMMENT_FAILED = "job_comment_failed"
    JOB_HOLD_FAILED = "job_hold_failed"

    # Terminations
    SUSPEND_PLANNED = "suspend_planned"
    POWER_DOWN_NOT_RECORDED = "power_down_not_recorded"
    TERMINATION_DECIDED = "termination_decided"
    TERMINATION_FAILED = "termination_failed"
    TERMINATION_LEFT = "termination_left"
    """Instances of a failed launch that reconcile must terminate."""

    # Reconcile
    CONTROLLER_NOT_ACTIVE = "controller_not_active"
    """Another controller of the site is in charge, and its reconcile does the work."""
    PASS_FINISHED = "pass_finished"  # noqa: S105 - a pass of reconcile
    PASS_STATE_NOT_SAVED = "pass_state_not_saved"  # noqa: S105 - the same
    ACTION_APPLIED = "action_applied"
    ACTION_FAILED = "action_failed"
    ACTIONS_BLOCKED = "actions_blocked"
    """The snapshot can't be true: only harmless actions are done."""
    ACTIONS_POSTPONED = "actions_postponed"
    """The rest is left to the next pass."""
    TERMINATIONS_BLOCKED = "terminations_blocked"
    HEALTH_QUERY_FAILED = "health_query_failed"
    NODES_PLACED = "nodes_placed"
    """Slurm knows now where the nodes' instances are in EC2's network."""
    NODES_NOT_PLACED = "nodes_not_placed"
    ENDED_JOB_QUERY_FAILED = "ended_job_query_failed"
    JOB_REQUEUED = "job_requeued"
    JOB_NOT_REQUEUED = "job_not_requeued"
    PROTECTED_MODE_ENTERED = "protected_mode_entered"
    PROTECTED_MODE_ENDED = "protected_mode_ended"
    CONSOLE_NOT_SAVED = "console_not_saved"
    JOURNAL_NOT_COMPACTED = "journal_not_compacted"
    LEDGER_NOT_WRITTEN = "ledger_not_written"

    # The burst governor
    JOB_MAY_BURST = "job_may_burst"
    JOB_TAKEN_BACK = "job_taken_back"
    """The cloud's partition was taken from a waiting job."""
    JOB_PARTITIONS_NOT_CHANGED = "job_partitions_not_changed"

    # First boot of the head node
    BOOT_STATUS_NOT_WRITTEN = "boot_status_not_written"
    BOOT_LOG_NOT_WRITTEN = "boot_log_not_written"

    # Access to the instance metadata, and MLflow's credentials
    IMDS_ACCESS_RESTRICTED = "imds_access_restricted"
    MLFLOW_CREDENTIALS_WRITTEN = "mlflow_credentials_written"

    # Backups
    BACKUP_TAKEN = "backup_taken"
    BACKUP_RESTORED = "backup_restored"
    RECORDS_WRITTEN = "records_written"
    PRICES_WRITTEN = "prices_written"
    SUBMIT_HISTORY_NOT_READ = "submit_history_not_read"

    # First boot of a compute node
    BOOT_STEP_FAILED = "boot_step_failed"
    NODE_IDENTIFIED = "node_identified"
    SCRATCH_MOUNTED = "scratch_mounted"
    SCRATCH_NOT_MOUNTED = "scratch_not_mounted"
    SLURMD_STARTED = "slurmd_started"

    # Node agent
    METADATA_QUERY_FAILED = "metadata_query_failed"
    REBALANCE_RECOMMENDED = "rebalance_recommended"
    SCHEDULED_EVENT_ANNOUNCED = "scheduled_event_announced"
    INTERRUPTION_ANNOUNCED = "interruption_announced"
    NODE_DRAINED = "node_drained"
    NODE_DRAIN_FAILED = "node_drain_failed"
    STOP_REQUESTED = "stop_requested"
    STOP_REQUEST_FAILED = "stop_request_failed"
    SLURMD_RELOADED = "slurmd_reloaded"
    SLURMD_RELOAD_FAILED = "slurmd_reload_failed"
    USERS_NOT_UPDATED = "users_not_updated"
    KEYS_TAKEN = "keys_taken"
    KEYS_NOT_TAKEN = "keys_not_taken"

    # Log shipper, and the head's heartbeat
    LOGS_NOT_SHIPPED = "logs_not_shipped"
    """CloudWatch refused a call, or did not answer. The lines wait."""
    LOGS_SHIPPED_AGAIN = "logs_shipped_again"
    LOG_LINES_REFUSED = "log_lines_refused"
    """Lines that CloudWatch never takes. They are left out."""
    LOG_POSITIONS_NOT_SAVED = "log_positions_not_saved"
    HEARTBEAT_WITHHELD = "heartbeat_withheld"
    """No pass of reconcile did its work lately: the alarm is to fire."""
    # Login nodes
    LOGIN_NODE_STARTED = "login_node_started"
    LOGIN_REPORT_FAILED = "login_report_failed"

    # Jobs' credentials
    CREDENTIALS_ISSUED = "credentials_issued"
    CREDENTIALS_NOT_ISSUED = "credentials_not_issued"
    CREDENTIALS_REFUSED = "credentials_refused"
    JOB_TOKEN_FAILED = "job_token_failed"  # noqa: S105 - no secret
    """The job starts or ends all the same, and has no credentials."""

    # Account budgets
    BUDGET_STEP_REACHED = "budget_step_reached"
    BUDGET_LIMIT_CHANGED = "budget_limit_changed"
    BUDGET_CHANGE_FAILED = "budget_change_failed"
    BUDGET_JOB_REQUEUED = "budget_job_requeued"
    BUDGET_JOBS_HELD = "budget_jobs_held"
    BUDGET_JOBS_RELEASED = "budget_jobs_released"
    BUDGET_OVERRIDE_CHANGED = "budget_override_changed"
    BUDGET_DAYS_CLOSED = "budget_days_closed"
    BUDGET_FIGURES_STALE = "budget_figures_stale"
    """Attempts could not be read, so no new step is taken and no limit lowered."""
    BUDGET_PROGRAM_FAILED = "budget_program_failed"
    """The program of `notify` did not take a step that was reached."""


DECISIONS: Final = frozenset(
    {
        LogEvent.ACTION_APPLIED,
        LogEvent.ACTION_FAILED,
        LogEvent.ACTIONS_BLOCKED,
        LogEvent.ACTIONS_POSTPONED,
        LogEvent.INSTANCES_LAUNCHED,
        LogEvent.INSTANCES_REASSIGNED,
        LogEvent.INTERRUPTION_ANNOUNCED,
        LogEvent.JOB_NOT_REQUEUED,
        LogEvent.JOB_REQUEUED,
        LogEvent.LAUNCH_FAILED,
        LogEvent.LAUNCH_NOT_RESOLVED,
        LogEvent.LAUNCH_RESOLVED,
        LogEvent.NODE_DRAINED,
        LogEvent.NODES_GIVEN_BACK,
        LogEvent.NODES_NOT_GIVEN_BACK,
        LogEvent.OFFERING_REFUSED,
        LogEvent.PASS_STATE_NOT_SAVED,
        LogEvent.PROGRAM_FAILED,
        LogEvent.PROTECTED_MODE_ENDED,
        LogEvent.PROTECTED_MODE_ENTERED,
        LogEvent.TERMINATION_DECIDED,
        LogEvent.TERMINATION_LEFT,
        LogEvent.TERMINATIONS_BLOCKED,
    }
)
"""The events that the decision log keeps, for `toolkit why`."""
