"""Mutants that undo the mends of a review of the engine.

The review of November 2026 set a hostile EC2, Slurm, disk and clock against the real programs. The
numbers of the faults are its own. A test through the programs notices each mutant; one of fault 17
has a test on fakes, because its law is a time.
"""

from __future__ import annotations

from typing import Final

from tests.mutants.reviewed import Mutant

CLOUD: Final = "slurmplugins/cloud"
LAUNCH: Final = "slurmplugins/launch"
RECONCILER: Final = "slurmplugins/reconciler"
SLURM: Final = "slurmplugins/slurm"
STATE: Final = "slurmplugins/state"

ANSWERS: Final = "tests/contract/engine/test_hostile_ec2_answers.py::test_"
INPUT: Final = "tests/contract/engine/test_hostile_input.py::test_"
JOBS: Final = "tests/contract/engine/test_hostile_jobs.py::test_"
UNENDED: Final = "tests/contract/engine/test_failed_terminations.py::test_"
KILLED: Final = "tests/contract/engine/test_killed_slurmctld.py::test_after_a_kill_of_slurmctld_"
RATE: Final = "tests/unit/slurmplugins/cloud/test_rate_limit.py::test_"

MENDED: Final[tuple[Mutant, ...]] = (
    Mutant(
        f"{CLOUD}/error_codes.py",
        "fault 1: take a 504 without a code for a refusal",
        "_error_class(code) or CloudUnreachable",
        "_error_class(code) or UnknownCloudError",
        (f"{ANSWERS}a_launch_whose_answer_proves_nothing_is_asked_again_by_its_token",),
    ),
    Mutant(
        f"{CLOUD}/client.py",
        "fault 1: take an answer that is cut off for a refusal",
        'raise error_codes.error("Unreachable", text[:MAX_MESSAGE]) from error',
        'raise error_codes.error("OddAnswer", text[:MAX_MESSAGE]) from error',
        (f"{ANSWERS}a_launch_whose_answer_proves_nothing_is_asked_again_by_its_token",),
    ),
    Mutant(
        f"{LAUNCH}/launch_call.py",
        "fault 1: forget that a call without an answer may have launched",
        "if unanswered and not isinstance(error, CloudUnreachable):",
        "if unanswered:",
        (f"{ANSWERS}ten_minutes_of_504_start_two_instances_for_two_nodes",),
    ),
    Mutant(
        f"{CLOUD}/ec2_messages.py",
        "fault 2: take an instance that is listed twice for two",
        "instances_by_id[item.id] = item",
        'instances_by_id[f"{item.id} {len(instances_by_id)}"] = item',
        (f"{ANSWERS}an_instance_that_is_listed_on_two_pages_is_one_instance",),
    ),
    Mutant(
        f"{CLOUD}/partial_termination.py",
        "fault 3: give all instances of a refused call up",
        "refuses_all = len(group) == 1 or last_call",
        "refuses_all = True",
        (f"{ANSWERS}one_protected_instance_keeps_no_other_alive_and_is_named",),
    ),
    Mutant(
        f"{RECONCILER}/run.py",
        "fault 3: name no instance that EC2 refuses to terminate",
        "if item.refused and isinstance(item.action, Terminate)",
        "if False",
        (f"{ANSWERS}one_protected_instance_keeps_no_other_alive_and_is_named",),
    ),
    Mutant(
        f"{STATE}/launch_budget.py",
        "fault 4: launch while EC2 terminates nothing",
        "if not record.ends.launches_blocked(now):",
        "if True:",
        (f"{UNENDED}no_launch_is_made_while_no_instance_can_be_terminated",),
    ),
    Mutant(
        f"{LAUNCH}/launcher.py",
        "fault 4: launch beside the node's instance that could not be terminated",
        "if (node := next(nodes, None)) is None:",
        "if (node := next(nodes, None)) is None or True:",
        (f"{UNENDED}a_node_whose_instance_can_not_be_terminated_gets_no_second_one",),
    ),
    Mutant(
        f"{CLOUD}/ec2.py",
        "fault 5: trust EC2's filter with the cluster's tag",
        'for item in items if cluster_tag in item.get("Tags", [])',
        "for item in items",
        (f"{ANSWERS}an_instance_of_another_cluster_is_none_of_ours_though_ec2_lists_it",),
    ),
    Mutant(
        f"{LAUNCH}/all_or_nothing.py",
        "fault 6: take each component of a het job for a job of its own",
        "if job_request.het_job is not None:",
        "if False:",
        (f"{JOBS}of_a_het_job_that_lacks_a_component_nothing_runs",),
    ),
    Mutant(
        f"{SLURM}/resume_file.py",
        "fault 6: forget which jobs share a node",
        "JobRequest(job, own_nodes, partition, shared)",
        "JobRequest(job, own_nodes, partition)",
        (f"{JOBS}a_job_that_shares_a_node_that_can_not_be_had_keeps_no_other",),
    ),
    Mutant(
        f"{LAUNCH}/launcher.py",
        "fault 6: launch the other components before the one that was refused a moment ago",
        "    if not unlikely:",
        "    if True:",
        (f"{JOBS}a_het_job_that_can_not_begin_starts_no_instance_again_and_again",),
    ),
    Mutant(
        f"{CLOUD}/ec2.py",
        "fault 7: ask for more ids than a filter may have",
        "FILTER_VALUES: Final = 200",
        "FILTER_VALUES: Final = 1000",
        (f"{ANSWERS}each_node_of_a_fleet_of_250_is_told_its_instance",),
    ),
    Mutant(
        f"{LAUNCH}/request_tracker.py",
        "fault 8: hold a job for a quota that other jobs fill",
        "return not self._nodes.get(name, set()).issubset(own_nodes)",
        "return False",
        (f"{JOBS}a_job_waits_for_a_quota_that_other_jobs_of_ours_fill",),
    ),
    Mutant(
        f"{LAUNCH}/launcher.py",
        "fault 8: refuse all jobs of a call that exceeds a quota together",
        "if len(batch.node_requests) == 1 or not result.over_quota:",
        "if True:",
        (f"{JOBS}jobs_that_a_quota_refuses_together_are_tried_alone",),
    ),
    Mutant(
        f"{CLOUD}/ec2_messages.py",
        "fault 9: end with an error at an unknown state",
        "InstanceState(state_name) if state_name in _STATES else InstanceState.UNCLEAR",
        "InstanceState(state_name)",
        (f"{ANSWERS}an_instance_in_an_unknown_state_stops_no_pass_and_is_left_alone",),
    ),
    Mutant(
        "slurmplugins/power_save/planner.py",
        "fault 9: launch beside an instance in an unknown state",
        "if unclear_instance is not None:",
        "if False:",
        (f"{ANSWERS}a_node_whose_instance_is_in_an_unknown_state_gets_no_second_one",),
    ),
    Mutant(
        f"{SLURM}/scontrol.py",
        "fault 10: end a pass at an ended job with an odd field",
        "            except ValueError:\n",
        "            except KeyError:\n",
        (f"{INPUT}invalid_jobs_end_no_pass",),
    ),
    Mutant(
        f"{SLURM}/json_parser.py",
        "fault 10: end a pass at a job of squeue with an odd field",
        "    except ValueError:\n        parsed_id =",
        "    except KeyError:\n        parsed_id =",
        (f"{INPUT}an_invalid_job_of_squeue_keeps_no_job_from_its_instance_or_its_stop_request",),
    ),
    Mutant(
        f"{SLURM}/json_parser.py",
        "fault 10: end a pass at a node with an odd field",
        "    except ValueError:\n        return Node(name, unreadable)",
        "    except KeyError:\n        return Node(name, unreadable)",
        (f"{INPUT}an_invalid_node_ends_no_pass",),
    ),
    Mutant(
        f"{SLURM}/resume_file.py",
        "fault 11: leave out a job whose id is no number",
        "if not isinstance(nodes, str):",
        'if not (isinstance(nodes, str) and isinstance(entry.get("job_id"), int)):',
        (f"{INPUT}a_job_of_an_invalid_resume_file_is_all_or_nothing",),
    ),
    Mutant(
        "slurmplugins/model/json_input.py",
        "fault 11: refuse a file with bytes that are no UTF-8",
        'errors="replace"',
        'errors="strict"',
        (f"{INPUT}a_job_of_an_invalid_resume_file_is_all_or_nothing",),
    ),
    Mutant(
        f"{LAUNCH}/fallback.py",
        "fault 12: believe any price tag",
        "return price if price.is_finite() and 0 < price < PRICE_LIMIT else Decimal(0)",
        "return price",
        (f"{ANSWERS}an_invalid_tag_is_put_aside_for_its_instance_alone",),
    ),
    Mutant(
        f"{CLOUD}/tags.py",
        "fault 12: end with an error at an odd order tag",
        "except (BadName, ValueError):",
        "except BadName:",
        (f"{ANSWERS}an_invalid_tag_is_put_aside_for_its_instance_alone",),
    ),
    Mutant(
        f"{CLOUD}/ec2.py",
        "fault 13: read pages for ever",
        "        while len(seen_tokens) <= MAX_PAGES:\n"
        "            if self._clock.monotonic() >= deadline:",
        "        while True:\n            if False:",
        (f"{ANSWERS}pages_that_never_end_end_a_pass_and_no_instance",),
    ),
    Mutant(
        f"{CLOUD}/client.py",
        "fault 13: wait for ever for an answer that drips",
        "if clock.monotonic() >= deadline:",
        "if False:",
        (f"{ANSWERS}an_answer_that_drips_without_end_ends_a_pass",),
    ),
    Mutant(
        f"{STATE}/journal.py",
        "fault 14: tell the age of a journal line by the wall clock",
        "return self._persistent_clock.now() - self._time_of(record)",
        'return self._clock.now() - number(record, "at")',
        (f"{INPUT}an_unresolved_launch_expires_in_time_though_the_clock_is_set_back",),
    ),
    Mutant(
        f"{STATE}/journal.py",
        "fault 14: tell the age of an earlier boot's line by the wall clock",
        '(persistent_time := number(record, "steady")) > -math.inf',
        '(persistent_time := number(record, "steady")) > math.inf',
        (f"{INPUT}an_unresolved_launch_gets_no_double_though_the_clock_is_set",),
    ),
    Mutant(
        f"{STATE}/journal_view.py",
        "fault 15: tell an instance's age by the head's wall clock",
        "return self.time - launched_at if launched_at <= self.time else",
        "return",
        (f"{INPUT}instances_that_boot_are_given_their_time_by_a_clock_that_is_ahead",),
    ),
    Mutant(
        "slurmplugins/errors.py",
        "fault 16: hold a job for a signature that EC2 rejects",
        '    reason_code = "unauthenticated"\n    holds_job = False',
        '    reason_code = "unauthenticated"\n    holds_job = True',
        (f"{ANSWERS}a_refusal_that_heals_by_itself_holds_no_job",),
    ),
    Mutant(
        f"{CLOUD}/rate_limit.py",
        "fault 17: wait for EC2's rate past half of ResumeTimeout",
        "deadline = min(self._clock.monotonic() + self._patience, until)",
        "deadline = self._clock.monotonic() + self._patience",
        (f"{RATE}a_job_that_ec2_throttles_without_end_is_given_back_at_half_of_resume_timeout",),
    ),
    Mutant(
        f"{LAUNCH}/launch_call.py",
        "fault 17: repeat a throttled call for all of ResumeTimeout",
        "if retry and not context.out_of_time:",
        "if retry:",
        (f"{ANSWERS}a_launch_throttled_to_the_end_is_given_back_and_buys_nothing_else",),
    ),
    Mutant(
        "slurmplugins/model/json_input.py",
        "fault 18: end with an error at JSON that is nested too deeply",
        "except RecursionError as error:",
        "except KeyError as error:",
        (f"{INPUT}state_files_that_are_nested_too_deeply_end_no_program",),
    ),
    Mutant(
        f"{RECONCILER}/run.py",
        "fault 19: do nothing while the journal can't be read",
        "        return JournalView(time=engine.persistent_clock.now()), True",
        "        raise",
        (f"{INPUT}a_job_with_a_dead_instance_comes_back_though_the_state_is_read_only",),
    ),
    Mutant(
        f"{STATE}/journal_view.py",
        "fault 20: skip a journal line that this version can't read",
        "            if nodes or ids:",
        "            if False:",
        (f"{INPUT}what_a_newer_version_launched_gets_no_double",),
    ),
    Mutant(
        "slurmplugins/model/launch.py",
        "fault 20: repeat a launch of a newer version without its new fields",
        "return not unknown_fields and all(item.keys() <= _OFFERING_FIELDS for item in offerings)",
        "return True",
        (f"{INPUT}an_unresolved_launch_of_a_newer_version_gets_no_double",),
    ),
    Mutant(
        f"{STATE}/journal_view.py",
        "fault 20: give a job an instance that an unreadable line names",
        "ids = frozenset(text for text in texts if _INSTANCE.fullmatch(text))",
        "ids: frozenset[str] = frozenset()",
        (f"{INPUT}an_instance_that_a_newer_version_marked_for_termination_is_given_to_no_job",),
    ),
    Mutant(
        f"{RECONCILER}/rules.py",
        "fault 22: let slurmctld forget a node's registration",
        "if node_state.is_forgotten(snapshot, state):",
        "if False:",
        (f"{KILLED}a_jobs_instances_live_and_their_slurmds_register_again",),
    ),
)
