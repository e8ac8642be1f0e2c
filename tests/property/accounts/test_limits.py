"""Limits by cluster.yaml and by hand in any order: each side loses only what it let go."""

from functools import cache

from hypothesis import example, given, strategies as st

from tests.fakes.sacctmgr import FakeSacctmgr
from tests.unit.render.render_samples import a_config
from toolkit.accounts import apply, read_associations, whole_plan
from toolkit.accounts.model import Association

ADA = Association("vision", "ada")
KEYS = {"jobs": "MaxJobs", "submit": "MaxSubmitJobs", "cpu": "GrpTRES=cpu", "node": "GrpTRES=node"}
LIMITS = st.dictionaries(st.sampled_from(list(KEYS)), st.integers(0, 2), max_size=4)
BY_HAND = st.tuples(st.sampled_from(list(KEYS)), st.integers(-1, 2))


@cache
def declared(pairs):
    limits = dict(pairs)
    tres = {name: limits[name] for name in ("cpu", "node") if name in limits}
    counts = {name: limits[name] for name in ("jobs", "submit") if name in limits}
    user = {"name": "ada", "uid": 2001, "account": "vision", "limits": {**counts, "tres": tres}}
    return a_config(users=[user])


def set_by_hand(slurm, name, value):
    setting, _, tres = KEYS[name].partition("=")
    word = f"{setting}={tres}={value}" if tres else f"{setting}={value}"
    where = ("where", "name=ada", "account=vision", "cluster=demo")
    slurm.run(["sacctmgr", "-i", "modify", "user", *where, "set", word])


@example([{"jobs": 1}, ("jobs", 2), {}, ("jobs", 1), {}])  # an admin's, though once ours
@given(st.lists(st.one_of(LIMITS, BY_HAND), min_size=1, max_size=8))
def test_only_what_the_toolkit_set_is_taken_back(steps):
    slurm, expected, ours = FakeSacctmgr(), {}, {}
    apply(slurm, whole_plan(declared(()), slurm), lambda change: None)
    for step in steps:
        if isinstance(step, tuple):
            name, value = step
            set_by_hand(slurm, name, value)
            expected[name] = None if value < 0 else value
            continue
        config = declared(tuple(sorted(step.items())))
        apply(slurm, whole_plan(config, slurm), lambda change: None)
        assert whole_plan(config, slurm).changes == ()
        for name in KEYS:
            before, is_ours = expected.get(name), name in ours and ours[name] == expected.get(name)
            expected[name] = step.get(name, None if is_ours else before)
            if not (name in step and (is_ours or before != step[name])):
                ours.pop(name, None)
            else:
                ours[name] = step[name]
        found = read_associations(slurm, "demo")[ADA].settings
        assert {name: found.get(KEYS[name]) for name in KEYS} == {
            name: None if expected[name] is None else str(expected[name]) for name in KEYS
        }
