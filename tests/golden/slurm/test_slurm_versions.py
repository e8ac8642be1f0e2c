"""The readers, on what three versions of Slurm answered about the same jobs (capture.py)."""

import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from slurmplugins.errors import SlurmRefused, SlurmUnreachable
from slurmplugins.head.job_history import JobReader
from slurmplugins.model.launch import JobRequest
from slurmplugins.slurm.node_queries import known_nodes
from slurmplugins.slurm.resume_file import job_requests
from slurmplugins.slurm.scontrol import ScontrolSlurm
from tests.golden.captured_fields import asked
from tests.golden.slurm import capture
from tests.golden.slurm.recorded import VERSIONS, Recorded, RecordedHead
from tests.unit.render.render_samples import PRICES, a_config
from toolkit.accounting import sacct
from toolkit.accounts import Association
from toolkit.accounts.current import read as read_accounts
from toolkit.render.context import slurm_context
from toolkit.render.slurm import slurm_files
from toolkit.slurm_nodes import read_nodes
from toolkit.training.slurm.job import SlurmJob, is_cancelled

REPOSITORY = Path(__file__).parents[3]
TOKEN = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
INSTANCE = "i-0123456789abcdef0"
NAME = "evil|a\nb"


@pytest.fixture(params=VERSIONS)
def version(request):
    return request.param


@pytest.fixture
def recorded(version):
    return Recorded(version)


@pytest.fixture
def slurm(recorded):
    return ScontrolSlurm(recorded, "/usr/bin")


@pytest.fixture
def names(recorded):
    """Return the names of capture.py by job id."""
    return {number: name for name, number in recorded.jobs.items()}


def test_the_answers_are_of_that_version(version, recorded):
    assert f" {version}." in recorded.text("version.txt")


def test_the_nodes_are_read_alike(slurm):
    nodes = {node.name: node for node in slurm.nodes()}
    assert all(node.readable for node in nodes.values())
    assert nodes["cpu-001"].powered_down
    assert not nodes["cpu-001"].reason
    assert nodes["gpu-001"].up
    assert nodes["gpu-001"].busy
    assert nodes["gpu-001"].instance_id == INSTANCE
    assert nodes["gpu-002"].powering_up
    assert not nodes["gpu-002"].up
    assert nodes["gpu-003"].drained_by_a_person
    assert nodes["gpu-003"].reason == "fan is loud"
    assert nodes["gpu-004"].down
    assert nodes["gpu-004"].reason_is_ours


def test_people_read_the_same_of_a_node(version):
    nodes = {node.name: node for node in read_nodes(RecordedHead(version))}
    node = nodes["gpu-001"]
    assert (node.cpus, node.gpus, node.instance_type) == (4, 1, "g5.xlarge")
    assert (sorted(node.partitions), node.base_state) == (["any", "spot"], "mixed")
    assert nodes["cpu-001"].gpus == 0


def test_the_queue_is_read_alike(slurm, names):
    jobs = {names[job.id]: job for job in slurm.jobs() if job.id in names}
    assert {name: job.running for name, job in jobs.items()} == {
        "requeued": True,
        "array": False,
        "held": False,
        "het": False,
        "powering-up": True,
    }
    requeued = jobs["requeued"]
    assert requeued.nodes == "gpu-001"
    assert requeued.restarts > 0
    assert requeued.admin_comment == "toolkit: gpu-001: interrupted"


def test_the_components_of_a_het_job_are_found(slurm, recorded):
    first = recorded.jobs["het"]
    assert slurm.het_jobs() == {first: first, first + 1: first}


def test_the_ends_of_jobs_are_read_alike(slurm, names):
    ended = {names[job.id]: job for job in slurm.ended_jobs() if job.id in names}
    codes = {name: ended[name].code for name in ("failed", "killed", "code-137", "done")}
    assert codes == {"failed": 7, "killed": None, "code-137": 137, "done": None}
    assert "FAILED" in ended["failed"].flags
    assert "CANCELLED" in ended["cancelled"].flags
    assert all(ended[name].requeue for name in codes)
    assert all(ended[name].ended_at >= ended[name].started_at > 0 for name in codes)


def test_why_reads_the_same_of_a_job(version, recorded, names):
    jobs = {
        names[job.id]: job
        for job in JobReader(recorded, "/usr/bin").jobs()
        if job.id in names and not job.array
    }
    requeued = jobs["requeued"]
    assert (requeued.name, requeued.user, requeued.account) == (NAME, "ada", "vision")
    assert (requeued.partition, requeued.nodes) == ("spot", ("gpu-001",))
    assert requeued.comment == "for the paper"
    assert jobs["held"].held
    assert jobs["held"].reason == "JobHeldAdmin"
    assert not jobs["het"].held
    assert jobs["het"].reason == "BeginTime"


def test_the_waiting_tasks_of_an_array_are_read_alike(recorded):
    array = recorded.jobs["array"]
    jobs = [job for job in JobReader(recorded, "/usr/bin").jobs() if job.array == array]
    waiting = [job.waiting for job in jobs if job.waiting]
    assert waiting == ["1-3%1"]
    assert sorted(job.task for job in jobs if job.task is not None) == [0]


@pytest.mark.parametrize(("number", "name", "node"), [(1, "requeued", 1), (2, "powering-up", 2)])
def test_the_resume_file_is_read_alike(recorded, number, name, node):
    content = recorded.text(f"resume-{number}.json").encode()
    gpu = f"gpu-00{node}"
    assert job_requests(content, gpu) == (JobRequest(recorded.jobs[name], (gpu,), "spot"),)


def test_an_unknown_job_is_refused(slurm):
    with pytest.raises(SlurmRefused, match="nvalid job id"):
        slurm.comment(4711, "toolkit: x")


def test_an_unknown_node_is_left_out(slurm):
    assert known_nodes(slurm, ["gpu-099"]) == {}


@pytest.mark.parametrize("call", ["nodes", "jobs", "ended_jobs"])
def test_a_slurmctld_that_is_away_is_no_empty_cluster(version, call):
    slurm = ScontrolSlurm(Recorded(version, unreachable=True), "/usr/bin")
    with pytest.raises(SlurmUnreachable):
        getattr(slurm, call)()


def test_a_job_that_slurmctld_cannot_tell_of_is_no_unknown_one(version):
    slurm = ScontrolSlurm(Recorded(version, unreachable=True), "/usr/bin")
    with pytest.raises(SlurmUnreachable):
        slurm.comment(1, "toolkit: x")


def test_a_job_reads_the_same_of_itself(recorded):
    number = recorded.jobs["powering-up"]

    def call(argv):
        if argv[:3] == ["scontrol", "show", "job"]:
            return recorded.text("scontrol-jobs.json")
        return recorded.text("scontrol-nodes.json")

    facts = SlurmJob(str(number), call).facts()
    assert facts.log == f"/tmp/job-{number}.powering-up.out"
    assert facts.comment == ""
    assert "gpu-002" in facts.nodes


def test_a_cancelled_job_is_known_from_its_text(recorded):
    job = str(recorded.jobs["cancelled"])
    environment = {"SLURM_JOB_ID": job}
    assert is_cancelled(job, environment, lambda argv: recorded.text("scontrol-job-cancelled.txt"))
    assert not is_cancelled(job, environment, lambda argv: recorded.text("scontrol-job.txt"))


def test_job_scripts_find_the_restarts_in_the_text(recorded):
    """See the start of every script in jobscripts/."""
    assert re.search(r" Restarts=[1-9][0-9]* ", recorded.text("scontrol-job.txt"))


def test_a_node_without_jobs_says_so(recorded):
    """Fail, with the words that slurmplugins/node/running_jobs.py knows."""
    answer = recorded.run(["scontrol", "listpids"])
    assert answer.returncode
    assert "No job steps" in answer.stderr


def test_the_attempts_are_accounted_alike(version, recorded, names):
    fields = asked(recorded.text("sacct-helpformat.txt"))
    attempts = sacct.parse(recorded.text("sacct.txt"), fields, TOKEN).attempts
    last_attempts = {
        names[int(item.job)]: (item.state, item.exit_codes[0])
        for item in sorted(attempts, key=lambda item: item.restarts)
        if item.job.isdecimal() and int(item.job) in names
    }
    above_128 = 9 if version == "24.11" else 137  # sacct of 24.11 takes 128 off
    expected = {
        "requeued": ("RUNNING", 0),
        "failed": ("FAILED", 7),
        "killed": ("FAILED", 0),
        "code-137": ("FAILED", above_128),
        "done": ("COMPLETED", 0),
    }
    assert {name: last_attempts[name] for name in expected} == expected
    requeued = [item for item in attempts if item.job == str(recorded.jobs["requeued"])]
    assert ("REQUEUED", 85) in {(item.state, item.exit_codes[0]) for item in requeued}
    assert {(item.name, item.nodes) for item in requeued} == {(NAME, ("gpu-001",))}


def test_the_accounts_are_read_alike(version):
    tree = read_accounts(RecordedHead(version), "demo")
    assert tree.accounts["vision"].owned
    assert not tree.accounts["handmade"].owned
    assert tree.accounts["speech"].parent == "vision"
    assert [tree.accounts[name].fairshare for name in ("vision", "speech")] == [60, 10]
    assert Association("speech", "ada") in tree.associations
    assert tree.default_accounts["ada"] == "vision"


def test_slurmctld_takes_the_rendered_settings_that_verify_asks_for(recorded):
    """Match the live configuration with the patterns of ansible/verify.yml."""
    (play,) = YAML(typ="safe").load((REPOSITORY / "ansible/verify.yml").read_text())
    (task,) = (task for task in play["tasks"] if "power saving" in task["name"])
    config = recorded.text("scontrol-config.txt")
    variables = {"toolkit_cluster": "demo", "toolkit_root": "/opt/slurm-toolkit"}
    for pattern in task["loop"]:
        for name, value in variables.items():
            pattern = pattern.replace(f"{{{{ {name} }}}}", value)  # noqa: PLW2901 - one step each
        assert re.search(rf"(?m)^{pattern}\s*$", config), pattern


def test_no_daemon_complains_of_a_rendered_setting(recorded):
    complaint = re.compile("defunct|deprecated|unrecognized|[Pp]arsing error|[Ii]nvalid param")
    logs = "".join(
        recorded.text(f"log-{daemon}.txt") for daemon in ("slurmctld", "slurmd", "slurmdbd")
    )
    assert not complaint.search(logs)


def test_slurmctld_that_answers_is_up(recorded):
    assert "is UP" in recorded.text("scontrol-ping.txt")
    assert "is UP" not in Recorded(recorded.folder.name, unreachable=True).text(
        "unreachable-ping.txt"
    )


def test_the_partitions_have_the_rendered_names(recorded):
    assert sorted(set(recorded.text("sinfo-partitions.txt").split())) == ["any", "spot"]


def test_a_capture_has_the_init_script_that_the_rendered_files_name():
    files = slurm_files(slurm_context(a_config(), PRICES), REPOSITORY / "templates")
    name = capture.HOOKS / capture.INIT_SCRIPT.name
    assert f"InitScript={name}\n" in files["job_container.conf"]
    assert capture.INIT_SCRIPT.is_file()
