"""A restore checks everything first, and leaves no job id that was used before."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace
from decimal import Decimal
from pathlib import Path

import pytest

from slurmplugins.budgets import files as budget_files
from slurmplugins.budgets.memory import Override, Saved, Standing
from slurmplugins.config import paths
from slurmplugins.errors import BackupError
from slurmplugins.governor import spending_file
from slurmplugins.governor.spending import Burst, CloudAttempt, Spending, observe
from slurmplugins.head.restore_backup import MARKER, Checked, Restore, begun_on
from slurmplugins.head.take_backup import HeadFolders, take
from slurmplugins.model import backup
from slurmplugins.system.command import CommandResult
from tests.fakes.budgets import NOVEMBER, a_memory
from tests.fakes.clock import FakeClock
from tests.fakes.governor import CONFIG
from tests.fakes.head_backups import HeadStage, Slurmctld

ROLES = Path(__file__).resolve().parents[4] / "ansible/roles"
OVERRIDE = Override(until=9e9, by="eve", reason="agreed", at=1.0, usd=Decimal(500))
SPENT = a_memory(
    "40",
    overrides={"vision-month": OVERRIDE},
    standings={"vision-month": Standing(NOVEMBER, 80, NOVEMBER)},
    limited=frozenset({"vision"}),
    held={"vision": Saved(7000)},
    denied={"batch": frozenset({"vision"})},
    held_jobs=frozenset({4}),
    notes={4: "toolkit:budget"},
    last_account={"i-1": "vision"},
)
BURST = CloudAttempt("vision", "2026-11", 9.0, Decimal(40), Decimal(4))
BURSTS = Spending(
    bursts={3: Burst("vision", "rack", "cloud", Decimal(4))},
    attempts={"3.0": BURST, "4.0": replace(BURST, usd=Decimal(1))},
    notes={3: "may burst"},
)
STOPPED = [("stop", name) for name in ("mlflow", "optuna", "slurmctld", "slurmdbd")]
STARTED = [
    ("start", "slurmdbd"),
    ("start", "slurmctld"),
    ("stop", "slurmctld"),
    ("start", "slurmctld"),
    ("start", "mlflow"),
    ("start", "optuna"),
]


class Stage:
    """A backup of one head, and another head that gets it."""

    def __init__(self, root: Path, cluster: str = "demo") -> None:
        self.old = HeadStage(root / "old")
        self.old.streams.dumps = {"slurm_acct_db": "jobs", "mlflow": "runs", "optuna": "trials"}
        self.old.state("assoc_usage", "usage of old")
        self.old.state("job_state", "queue of old")
        self.old.folders.budgets.mkdir()
        budget_files.save(self.old.folders.budgets, SPENT)
        budget_files.audit(self.old.folders.budgets, 1.0, "budget_step_reached", step=80)
        self.old.folders.governor.mkdir()
        spending_file.save(self.old.folders.governor, BURSTS)
        first = FakeClock()
        later = FakeClock(first.now() + 3600)
        manifest = take(self.old.head, self.old.files, first)
        self.other = take(self.old.head, self.old.files, later)
        self.new = HeadStage(root / "new", cluster)
        self.new.state("clustername", f"{cluster}|17")
        self.new.state("job_state", "queue of new")
        self.new.state("assoc_usage", "usage of new")
        self.slurm_conf = root / "slurm.conf"
        self.slurm_conf.write_text("ClusterName=demo\nfirstjobid=5\nMaxJobCount=9\n")
        self.slurmctld = Slurmctld(self.new, self.slurm_conf)
        for key, content in self.old.files.objects.items():
            self.new.files.objects[key.replace("backups/", "restore/")] = content
        self.manifest = manifest
        self.prefix = f"restore/{manifest.id}"
        self.clock = FakeClock()
        self.sha256 = hashlib.sha256(self.object("manifest.json")).hexdigest()

    def object(self, name: str) -> bytes:
        return self.new.files.objects[f"{self.prefix}/{name}"]

    def restore(self) -> Restore:
        return Restore(
            self.new.head, self.new.files, self.prefix, self.sha256, self.clock, self.slurm_conf
        )

    def restore_other(self, *, instead: bool = False) -> Restore:
        """Return the restore of the later backup."""
        prefix = f"restore/{self.other.id}"
        manifest = self.new.files.objects[f"{prefix}/manifest.json"]
        return replace(
            self.restore(),
            prefix=prefix,
            manifest_sha256=hashlib.sha256(manifest).hexdigest(),
            instead=instead,
        )

    def cut_off(self) -> None:
        """Begin a restore that stops half way."""
        self.new.streams.failing = "mlflow"
        with pytest.raises(BackupError, match="half way"):
            self.restore().run()
        self.new.streams.failing = ""
        self.new.streams.loads.clear()

    def unchanged(self) -> bool:
        state = self.new.folders.slurm_state
        return (
            self.new.units() == []
            and self.new.streams.loads == []
            and (state / "clustername").exists()
            and (state / "assoc_usage").read_text() == "usage of new"
        )


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setattr("shutil.chown", lambda *_: None)
    return Stage(tmp_path)


def test_a_check_changes_nothing_and_says_what_is_replaced(stage: Stage):
    tables = ("/usr/bin/mariadb", "--batch", "--skip-column-names", "--execute")
    listed = "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'slurm_acct_db'"
    stage.new.runner.answer(
        *tables, f"{listed} AND TABLE_NAME LIKE '%\\_job\\_table'", stdout="demo_job_table\n"
    )
    count = "SELECT COUNT(*) FROM `slurm_acct_db`.`demo_job_table`"
    stage.new.runner.answer(*tables, count, stdout="12\n")
    assert stage.restore().check() == Checked(
        problems=(),
        overwrites=("12 jobs", "0 MLflow runs", "0 trials of sweeps"),
        restores=backup.DATABASES,
        first_job_id=20_000,
    )
    assert stage.unchanged()


def test_a_restore_replaces_the_databases_as_their_own_users(stage: Stage):
    """A dump of another head is not trusted to run as root."""
    stage.restore().run()
    assert [(argv[2], argv[-1], text) for argv, text in stage.new.streams.loads] == [
        ("slurm", "slurm_acct_db", "jobs"),
        ("mlflow", "mlflow", "runs"),
        ("optuna", "optuna", "trials"),
    ]
    assert all(argv[0] == "/usr/sbin/runuser" for argv, _ in stage.new.streams.loads)
    assert stage.new.units() == [*STOPPED, *STARTED]


def test_no_job_id_is_used_again_and_slurm_conf_is_as_before(stage: Stage):
    before = stage.slurm_conf.read_text()
    stage.restore().run()
    with_first, without = stage.slurmctld.seen
    assert with_first == "ClusterName=demo\nMaxJobCount=9\nFirstJobId=20000\n"
    assert without == before == stage.slurm_conf.read_text()
    assert stage.slurmctld.next_job_id == 20_000


def test_a_slurmctld_that_forgets_the_id_fails_the_restore(stage: Stage):
    stage.slurmctld.saves = False
    with pytest.raises(BackupError, match="next job would get the id 1, which may have been used"):
        stage.restore().run()


def test_usage_comes_back_with_its_database_and_the_queue_does_not(stage: Stage):
    """Keep the head's own queue file.

    The folders of the old jobs are on a /shared that may be gone.
    """
    stage.restore().run()
    state = stage.new.folders.slurm_state
    assert (state / "assoc_usage").read_text() == "usage of old"
    assert (state / "job_state").read_text() == "queue of new"
    assert not (state / "clustername").exists()


def test_usage_of_a_cluster_of_another_name_is_not_restored(tmp_path: Path, monkeypatch):
    """Leave it out, because its numbers would be those of other accounts."""
    monkeypatch.setattr("shutil.chown", lambda *_: None)
    stage = Stage(tmp_path, cluster="second")
    stage.restore().run()
    assert not (stage.new.folders.slurm_state / "assoc_usage").exists()


@pytest.mark.parametrize(
    "name", ["slurm_acct_db.sql.gz", "optuna.sql.gz", "slurmctld.tar.gz", "manifest.json"]
)
def test_an_object_that_was_changed_is_refused_before_anything_is(stage: Stage, name):
    stage.new.files.objects[f"{stage.prefix}/{name}"] += b" "
    for work in (stage.restore().check, stage.restore().run):
        with pytest.raises(BackupError, match=f"{name} is not what was saved.*nothing was changed"):
            work()
    assert stage.unchanged()


def test_a_missing_object_is_refused_before_anything_is_changed(stage: Stage):
    del stage.new.files.objects[f"{stage.prefix}/mlflow.sql.gz"]
    with pytest.raises(BackupError, match=r"mlflow.sql.gz can't be read.*nothing was changed"):
        stage.restore().run()
    assert stage.unchanged()


def test_jobs_in_the_queue_refuse_a_restore(stage: Stage):
    stage.new.runner.answer("/usr/bin/squeue", stdout="7\n8\n")
    assert stage.restore().check().problems == ("2 jobs are in the queue",)
    with pytest.raises(BackupError, match="2 jobs are in the queue: nothing was changed"):
        stage.restore().run()
    assert stage.unchanged()


def test_versions_that_do_not_match_refuse_a_restore(stage: Stage):
    stage.new.install("mlflow", "3.18.0")
    stage.new.runner.answer("/usr/bin/scontrol", "--version", stdout="slurm-wlm 24.05.1")
    problems = stage.restore().check().problems
    assert problems == (
        "Slurm here is 24.05.1, older than the backup's 24.11.5",
        "MLflow here is 3.18.0, and the backup's is 3.17.2",
    )
    with pytest.raises(BackupError, match="older than the backup's"):
        stage.restore().run()
    assert stage.unchanged()


def test_a_restore_that_was_interrupted_is_completed_without_slurmctld(stage: Stage):
    """Complete it although no daemon can be asked."""
    stage.new.streams.failing = "mlflow"
    with pytest.raises(BackupError, match=r"half way.*the load of mlflow failed.*run it again"):
        stage.restore().run()
    stage.new.streams.failing = ""
    stage.new.runner.answer("/usr/bin/squeue", stderr="down", returncode=1)
    scontrol = ("/usr/bin/scontrol", "show", "config")
    stage.new.runner.answer(*scontrol, stderr="down", returncode=1)
    checked = stage.restore().check()
    assert (checked.resumed, checked.first_job_id) == (True, 20_000)
    assert stage.restore().run().resumed
    assert stage.slurmctld.next_job_id == 20_000
    stage.new.runner.answer("/usr/bin/squeue", stdout="")
    assert not stage.restore().check().resumed


def test_a_restore_that_was_cut_off_refuses_another_backup_and_names_its_own(stage: Stage):
    """Load no backup of the empty cluster."""
    stage.cut_off()
    begun = stage.manifest.id
    reason = f"the restore of backup {begun} of cluster demo is not complete"
    assert stage.restore_other().check().problems == (reason,)
    with pytest.raises(BackupError, match=reason):
        stage.restore_other().run()
    assert stage.new.streams.loads == []
    assert stage.restore().run().resumed


def test_a_backup_of_the_same_id_of_another_cluster_is_another_backup(stage: Stage):
    stage.cut_off()
    key = f"{stage.prefix}/manifest.json"
    changed = stage.object("manifest.json").replace(b'"demo"', b'"other"')
    stage.new.files.objects[key] = changed
    stage.sha256 = hashlib.sha256(changed).hexdigest()
    assert "of cluster demo is not complete" in stage.restore().check().problems[0]


def test_another_backup_instead_has_job_ids_beyond_both(stage: Stage):
    """Leave a way out where the first backup can't be loaded."""
    stage.old.set_next_job_id(70_000)
    stage.other = take(stage.old.head, stage.old.files, FakeClock(FakeClock().now() + 7200))
    for key, content in stage.old.files.objects.items():
        stage.new.files.objects[key.replace("backups/", "restore/")] = content
    stage.cut_off()
    checked = stage.restore_other(instead=True).run()
    assert (checked.problems, checked.first_job_id) == ((), 90_000)
    assert not stage.restore().check().resumed


def test_a_note_of_an_earlier_version_lets_a_restore_complete(stage: Stage):
    """Read it, although it does not say which backup was begun."""
    marker = stage.new.folders.toolkit_state / MARKER
    marker.write_text('{"first_job_id": 20000}')
    begun = begun_on(stage.new.head)
    assert begun == backup.BegunRestore(20_000)
    assert stage.restore().run().resumed
    assert not marker.exists()


def test_the_note_of_a_begun_restore_says_which_backup_it_is(stage: Stage):
    assert begun_on(stage.new.head) is None
    stage.cut_off()
    begun = backup.BegunRestore(20_000, stage.manifest.id, "demo", stage.sha256)
    assert begun_on(stage.new.head) == begun


def test_the_first_job_id_of_an_interrupted_restore_is_not_computed_anew(stage: Stage):
    first = stage.restore().run()
    again = stage.restore().check()
    assert again.first_job_id == 40_000
    assert again.overwrites == (*first.overwrites, "40.00 USD that budgets know as spent")
    same = {"first_job_id": 0, "overwrites": ()}
    assert asdict(replace(again, **same)) == asdict(replace(first, **same))


def test_a_slurmctld_that_converts_for_a_while_is_waited_for(stage: Stage, monkeypatch):
    answers = iter([BackupError("not yet")] * 3)
    ask = type(stage.new.head).next_job_id

    def slow(head):
        if stage.new.units() and (error := next(answers, None)):
            raise error
        return ask(head)

    monkeypatch.setattr(type(stage.new.head), "next_job_id", slow)
    stage.restore().run()
    assert stage.clock.slept == [1.0, 1.0, 1.0]


def test_budgets_come_back_with_overrides_and_with_the_limits_that_are_ours(stage: Stage):
    folder = stage.new.folders.budgets
    folder.mkdir()
    budget_files.save(folder, a_memory("2.50"))
    budget_files.audit(folder, 5.0, "budget_limit_changed")
    assert stage.restore().check().overwrites[-1] == "2.50 USD that budgets know as spent"
    for _ in range(2):
        stage.restore().run()
    memory = budget_files.load(folder)
    assert (memory.days, memory.overrides, memory.standings) == (
        SPENT.days, SPENT.overrides, SPENT.standings
    )  # fmt: skip
    assert (memory.limited, memory.held) == (SPENT.limited, SPENT.held)
    gone = (memory.held_jobs, memory.notes, memory.last_account, memory.denied)
    assert not any(gone), "jobs and instances of the old cluster"
    lines = (folder / budget_files.AUDIT).read_text().splitlines()
    assert [line.count("budget_step_reached") for line in lines] == [1, 0]


def test_limits_of_a_cluster_of_another_name_are_not_ours(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("shutil.chown", lambda *_: None)
    stage = Stage(tmp_path, cluster="second")
    stage.restore().run()
    memory = budget_files.load(stage.new.folders.budgets)
    assert (memory.days, memory.overrides) == (SPENT.days, SPENT.overrides)
    assert not memory.limited
    assert not memory.held


def test_damaged_budgets_stop_no_restore_and_stay_damaged(tmp_path: Path, monkeypatch):
    """Leave it to a pass to say so."""
    monkeypatch.setattr("shutil.chown", lambda *_: None)
    monkeypatch.setattr(
        budget_files, "save", lambda folder, _: (folder / "budgets.json").write_text("{")
    )
    stage = Stage(tmp_path)
    stage.restore().run()
    assert (stage.new.folders.budgets / budget_files.FILE).read_text() == "{"


def test_what_bursts_have_cost_comes_back_beside_what_this_head_knows(stage: Stage, monkeypatch):
    """Let no account burst its month's budget a second time."""
    owners: list[tuple[str, str, str]] = []
    monkeypatch.setattr(
        "shutil.chown", lambda path, user, group: owners.append((str(path), user, group))
    )
    folder = stage.new.folders.governor
    folder.mkdir()
    own = {"4.0": replace(BURST, usd=Decimal(2)), "9.0": BURST}
    spending_file.save(folder, Spending(attempts=own))
    for _ in range(2):
        stage.restore().run()
    spending = spending_file.load(folder)
    assert spending.attempts == {"3.0": BURST, **own}, "of one attempt, the dearer amount"
    assert not spending.bursts, "jobs of the old cluster are gone"
    assert not spending.notes
    for path in (folder, folder / spending_file.FILE):
        assert (str(path), "slurm", "slurm") in owners


def restored_attempts(stage: Stage, own: CloudAttempt) -> dict[str, CloudAttempt]:
    """Return a head's attempts after a restore; its own is 3.0."""
    folder = stage.new.folders.governor
    folder.mkdir()
    spending_file.save(folder, Spending(attempts={"3.0": own}))
    stage.restore().run()
    return dict(spending_file.load(folder).attempts)


def test_an_end_that_the_head_saw_counts_for_more_than_the_backups_worst_case(stage: Stage):
    ended = replace(BURST, usd=Decimal(4), ended=True)
    assert restored_attempts(stage, ended)["3.0"] == ended


def test_two_jobs_of_one_number_both_count(stage: Stage):
    """Add both: a young cluster gives numbers of the old one."""
    other = replace(BURST, began_at=BURST.began_at + 3600, usd=Decimal(7))
    attempts = restored_attempts(stage, other)
    assert attempts["3.0"] == other
    assert attempts[f"3.0@{BURST.began_at:.0f}"] == replace(BURST, ended=True)
    assert observe(Spending(attempts=attempts), [], CONFIG, NOVEMBER).attempts.keys() >= {
        key for key, item in attempts.items() if item.ended
    }


def test_a_head_without_a_governor_restores_and_is_restored_without_one(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.chown", lambda *_: None)
    monkeypatch.setattr(spending_file, "save", lambda *_: None)
    stage = Stage(tmp_path)
    stage.restore().run()
    assert not stage.new.folders.governor.exists()


def test_a_backup_of_before_the_governor_was_saved_changes_nothing_of_it(stage: Stage):
    name = "governor.tar.gz"
    manifest = json.loads(stage.object("manifest.json"))
    manifest["objects"] = [item for item in manifest["objects"] if item["name"] != name]
    text = json.dumps(manifest).encode()
    stage.new.files.objects[f"{stage.prefix}/manifest.json"] = text
    del stage.new.files.objects[f"{stage.prefix}/{name}"]
    stage.sha256 = hashlib.sha256(text).hexdigest()
    stage.restore().run()
    assert not stage.new.folders.governor.exists()


def test_what_bursts_have_cost_stays_damaged_if_it_was_so_that_no_job_bursts(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.chown", lambda *_: None)
    monkeypatch.setattr(
        spending_file, "save", lambda folder, _: (folder / "governor.json").write_text("{")
    )
    stage = Stage(tmp_path)
    stage.restore().run()
    assert (stage.new.folders.governor / spending_file.FILE).read_text() == "{"


def test_a_damaged_file_of_this_head_is_replaced_by_the_backups(stage: Stage):
    folder = stage.new.folders.governor
    folder.mkdir()
    (folder / spending_file.FILE).write_text("{")
    stage.restore().run()
    assert spending_file.load(folder).attempts == BURSTS.attempts


class Fences:
    """The files that keep the daemons away, looked at with each call of systemctl."""

    def __init__(self, stage: Stage) -> None:
        self.folder = stage.new.folders.restore
        self.calls: list[tuple[str, str, bool]] = []
        """The verb, the daemon, and whether it may not start."""
        self.failing: tuple[str, str] = ("", "")
        self._run = stage.new.runner.run
        stage.new.runner.run = self.look  # type: ignore[method-assign]  # a spy

    def look(self, argv, *, timeout: float, stdin: str = ""):
        if argv[0] == "/usr/bin/systemctl":
            daemon = argv[2].removesuffix(".service")
            self.calls.append((argv[1], daemon, (self.folder / daemon).exists()))
            if (argv[1], daemon) == self.failing:
                return CommandResult(1, "", "it ended at once")
        return self._run(argv, timeout=timeout, stdin=stdin)

    @property
    def kept(self) -> set[str]:
        return {path.name for path in self.folder.glob("*")}


ALL = {"slurmctld", "slurmdbd", "mlflow", "optuna"}


def test_no_daemon_can_start_between_its_stop_and_its_start(stage: Stage):
    fences = Fences(stage)
    stage.restore().run()
    assert {daemon for _, daemon, _ in fences.calls} == ALL
    for daemon in ALL:
        (stop, *others) = [call for call in fences.calls if call[1] == daemon]
        assert stop == ("stop", daemon, True)
        assert others
        assert not any(is_kept for _, _, is_kept in others)
    assert fences.kept == set()


def test_a_restore_that_was_cut_off_keeps_the_daemons_away_until_it_is_complete(stage: Stage):
    """Start none on data that is half replaced, also at a boot."""
    fences = Fences(stage)
    stage.cut_off()
    assert fences.kept == {*ALL, MARKER}
    stage.restore().run()
    assert fences.kept == set()


def test_slurmctld_can_not_start_before_it_could_save_the_new_job_ids(stage: Stage):
    fences = Fences(stage)
    fences.failing = ("start", "slurmctld")
    with pytest.raises(BackupError, match="it ended at once"):
        stage.restore().run()
    assert fences.kept == {"slurmctld", "mlflow", "optuna", MARKER}
    assert fences.calls[-1][:2] == ("stop", "slurmctld")


def test_an_mlflow_that_does_not_start_leaves_no_restore_behind(stage: Stage):
    """Take the cluster for complete: jobs run, and have records."""
    fences = Fences(stage)
    fences.failing = ("start", "mlflow")
    with pytest.raises(BackupError, match=r"all is restored, but .*it ended at once"):
        stage.restore().run()
    assert fences.kept == set()


@pytest.mark.parametrize(
    ("unit", "daemon"),
    [
        ("slurmctld/files/after-slurmdbd.conf", "slurmctld"),
        ("slurmdbd/files/after-mariadb.conf", "slurmdbd"),
        ("mlflow/templates/mlflow.service.j2", "mlflow"),
        ("optuna/templates/optuna.service.j2", "optuna"),
    ],
)
def test_the_daemons_units_ask_for_the_absence_of_that_file(unit: str, daemon: str):
    text, _, _ = (ROLES / unit).read_text().partition("[Service]")
    text = text.replace("{{ toolkit_head_data }}", "/srv/head")
    assert f"ConditionPathExists=!{paths.RESTORE}/{daemon}" in text.splitlines()
    assert HeadFolders().restore == paths.RESTORE


def test_jobs_that_were_submitted_since_a_restore_was_cut_off_refuse_it(stage: Stage):
    """Drop no database under jobs that run."""
    stage.cut_off()
    stage.new.runner.answer("/usr/bin/squeue", stdout="7\n")
    assert stage.restore().check().problems == ("1 job is in the queue",)
    with pytest.raises(BackupError, match="1 job is in the queue: nothing was changed"):
        stage.restore().run()
    assert stage.new.streams.loads == []
