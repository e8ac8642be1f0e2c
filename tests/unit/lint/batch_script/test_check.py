"""`toolkit lint` on batch scripts: its findings, and harmless scripts."""

from itertools import takewhile
from pathlib import Path

import pytest

from toolkit.lint.batch_script import script, shell
from toolkit.lint.batch_script.check import RULES, check_script
from toolkit.lint.finding import Severity

REPO = Path(__file__).resolve().parents[4]
HEAD = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@90
source lib.sh
"""
LAUNCH = "srun --kill-on-bad-exit=1 torchrun --shutdown-timeout=60 --rdzv-endpoint=$ADDR:$PORT t.py"


def slugs(text, options=""):
    outside = script.outside_directives(options.split(), "on the command line")
    return {finding.slug for finding in check_script(text, outside_options=outside)}


@pytest.mark.parametrize(
    "path", sorted((REPO / "jobscripts").glob("*.sbatch")), ids=lambda p: p.name
)
def test_the_shipped_job_scripts_have_no_findings(path):
    assert check_script(path.read_text()) == ()


def test_a_careful_script_has_no_findings():
    assert slugs(HEAD + LAUNCH + " &\nwait $!\nexit $?\n") == set()


LOSES_WORK = pytest.mark.parametrize(
    ("slug", "before", "after"),
    [
        ("open-mode", "#SBATCH --open-mode=append\n", ""),
        ("requeue-unsaid", "#SBATCH --requeue\n", ""),
        ("no-requeue", "--requeue", "--no-requeue"),
        ("no-warning-signal", "#SBATCH --signal=B:USR1@90\n", ""),
        ("signal-to-all", "B:USR1", "USR1"),
        ("signal-untrapped", "source lib.sh", "true"),
        ("signal-untrapped", "source lib.sh", "source /opt/conda/etc/profile.d/conda.sh"),
        ("signal-untrapped", "source lib.sh", ". ~/.bashrc; source venv/bin/activate"),
        ("signal-late", "USR1@90", "USR1@10"),
        ("trap-in-vain", "source lib.sh", "trap stop USR1\ntrue"),
        ("node-pinned", "--nodes=2", "--nodes=2 --nodelist=gpu-001"),
        ("directive-ignored", "source lib.sh", "source lib.sh\n#SBATCH --time=10"),
        ("kill-on-bad-exit", "--kill-on-bad-exit=1", ""),
        ("shutdown-timeout", "--shutdown-timeout=60", ""),
        ("shutdown-timeout", "--shutdown-timeout=60", "--shutdown-timeout=20"),
        ("fixed-port", "$ADDR:$PORT", "$ADDR:29500"),
        ("fixed-port", "$ADDR:$PORT", "$ADDR"),
        ("fixed-port", "source lib.sh", "export MASTER_PORT=29500; source lib.sh"),
        ("hostname-rendezvous", "$ADDR:$PORT", "$(hostname):$PORT"),
        ("hostname-rendezvous", "source lib.sh", "MASTER_ADDR=`hostname -s`\nsource lib.sh"),
        ("exit-code-lost", "t.py", "t.py | tee log.txt"),
        ("exit-code-lost", "t.py", "t.py || true"),
        ("exit-code-lost", "t.py", 't.py\necho "over"'),
        ("exit-code-lost", "t.py", "t.py &\nwait"),
        ("requeue-loop", "t.py", "t.py || scontrol requeue $SLURM_JOB_ID"),
        ("saved-on-node", "t.py", "t.py --checkpoint-dir=/tmp/run"),
        ("saved-on-node", "t.py", "t.py --log_dir=/fsx/x --output_dir /var/tmp/run"),
        ("auto-resume-container", "srun", "srun --auto-resume=1 --container-image=a.sqsh"),
        ("deepspeed-launcher", LAUNCH, "srun --kill-on-bad-exit=1 deepspeed --hostfile h t.py"),
    ],
)


@LOSES_WORK
def test_a_script_that_loses_work_has_a_finding_with_a_fix(slug, before, after):
    text = HEAD + LAUNCH + "\n"
    assert slug not in slugs(text)
    findings = [one for one in check_script(text.replace(before, after)) if one.slug == slug]
    assert findings
    assert all(one.fix and one.message for one in findings)


@LOSES_WORK
def test_an_option_has_the_same_findings_in_the_script_and_on_the_command_line(slug, before, after):
    text = (HEAD + LAUNCH + "\n").replace(before, after)
    shebang, *lines = text.splitlines(keepends=True)
    directives = list(takewhile(lambda line: line.startswith("#SBATCH "), lines))
    options = " ".join(line.removeprefix("#SBATCH ") for line in directives)
    slugs_found = slugs(shebang + "".join(lines[len(directives) :]), options)
    assert slug in slugs_found
    assert slugs_found == slugs(text)


@pytest.mark.parametrize(
    ("slug", "good", "bad"),
    [
        ("open-mode", "--open-mode=append", "--open-mode=truncate"),
        ("no-requeue", "--requeue", "--no-requeue"),
        ("signal-to-all", "--signal=B:USR1@90", "--signal=USR1@90"),
        ("signal-late", "--signal=B:USR1@90", "--signal=B:USR1@10"),
        ("hostname-rendezvous", "--nodes=1", "--nodes=2"),
    ],
)
def test_the_command_line_wins_over_the_directives_of_the_script(slug, good, bad):
    launch = LAUNCH.replace("$ADDR", "$(hostname)") + "\n"
    careful = HEAD.replace("--nodes=2", "--nodes=1") + launch
    careless = careful.replace(good, bad)
    assert slug in slugs(careless)
    assert slug not in slugs(careless, good)
    assert slug in slugs(careful, bad)


def test_a_long_stop_requires_an_earlier_signal_and_a_longer_shutdown_timeout():
    text = HEAD + LAUNCH + "\n"
    fixes = {one.slug: one.fix for one in check_script(text, stop_seconds=100)}
    assert "USR1@130" in fixes["signal-late"]
    assert "--shutdown-timeout=100" in fixes["shutdown-timeout"]
    messages = {one.slug: one.message for one in check_script(text.replace("USR1@90", "USR1"), 100)}
    assert messages["signal-late"].startswith("the signal comes 60 s before the end")
    quick = text.replace("USR1@90", "USR1@20").replace("--shutdown-timeout=60", "")
    assert not {"signal-late", "shutdown-timeout"} & {one.slug for one in check_script(quick, 15)}


@pytest.mark.parametrize(
    ("folder", "is_lost"),
    [("/scratch", True), ("/scratch/ada/run", True), ("/scratch-shared/x", False)],
)
def test_scratch_is_lost_only_if_it_is_known_as_a_nodes_disk(folder, is_lost):
    text = f"{HEAD}{LAUNCH} --checkpoint-dir={folder}\n"
    assert {one.slug for one in check_script(text, node_disks=("/scratch",))} == (
        {"saved-on-node"} if is_lost else set()
    )
    assert slugs(text) == set()  # on many sites /scratch is shared


@pytest.mark.parametrize(
    ("slug", "text"),
    [
        # A job with whole nodes shares no port with another job.
        ("fixed-port", HEAD.replace("--nodes=2", "--nodes=2 --exclusive") + "MASTER_PORT=29500\n"),
        # On one node every rank sees the same hostname.
        ("hostname-rendezvous", HEAD.replace("nodes=2", "nodes=1") + "MASTER_ADDR=$(hostname)\n"),
        # `hostname -I` prints addresses, not names.
        ("hostname-rendezvous", HEAD + "MASTER_ADDR=$(hostname -I | cut -d' ' -f1)\n"),
        # Lightning handles the signal in every rank.
        ("signal-to-all", HEAD.replace("B:", "") + "srun -K python train.py\n"),
        # A script that only prepares data has no work to lose between two checkpoints.
        ("no-warning-signal", "#!/bin/bash\n#SBATCH -N 1\npython tokenize.py\n"),
        ("no-warning-signal", HEAD.replace("signal", "x") + "srun python /train/download.py\n"),
        # The options of a script that this one writes are not its own.
        ("directive-ignored", HEAD + "cat > b.sbatch <<EOF\n#SBATCH --time=1\nEOF\n"),
        ("exit-code-lost", HEAD + "set -eo pipefail\n" + LAUNCH + " | tee log\necho over\n"),
        ("exit-code-lost", HEAD + LAUNCH + "\ncode=$?\necho over\nexit $code\n"),
        ("deepspeed-launcher", HEAD + "pip install deepspeed==0.16\necho deepspeed x\n"),
        ("shutdown-timeout", HEAD + "echo torchrun x\n# torchrun y\n"),
        # A held job is not requeued, so it makes no loop.
        ("requeue-loop", HEAD + "t.py || scontrol requeuehold $SLURM_JOB_ID\n"),
    ],
)
def test_a_harmless_script_has_no_finding(slug, text):
    assert slug not in slugs(text)


def test_a_launch_is_found_through_variables_of_the_script():
    text = (
        HEAD + "declare -a ARGS=(\n  --kill-on-bad-exit=1 # stop all\n)\n"
        'RUN="torchrun \\\n  --rdzv-endpoint=$(hostname)"\nsrun "${ARGS[@]}" $RUN t.py\n'
    )
    (launch,) = script.parse(text).launches
    assert (launch.kind, launch.line) == ("torchrun", 12)
    assert "kill-on-bad-exit" not in slugs(text)
    assert "hostname-rendezvous" in slugs(text)


def test_a_comment_in_the_script_silences_a_rule():
    text = HEAD + LAUNCH.replace("--kill-on-bad-exit=1", "") + "\n"
    assert "kill-on-bad-exit" in slugs(text)
    assert "kill-on-bad-exit" not in slugs(text + "# toolkit-lint: ignore=kill-on-bad-exit one\n")


def test_errors_come_first_and_every_rule_has_its_own_slug():
    findings = check_script("#!/bin/bash\n#SBATCH -N2 --no-requeue\nsrun torchrun t.py | tee x\n")
    kinds = [one.severity for one in findings]
    assert kinds == sorted(kinds, key=lambda kind: kind is not Severity.ERROR)
    assert len({rule.slug for rule in RULES}) == len(RULES)


@pytest.mark.parametrize(
    "text", ["", "#!/bin/bash\n", "'", '"$(', "cat <<EOF\nx", "\\", "#SBATCH '"]
)
def test_malformed_scripts_are_parsed_without_an_error(text):
    check_script(text)


def test_short_and_long_options_are_parsed_alike():
    parsed = script.parse("#!/bin/sh\n#SBATCH -N 4 -p spot # comment\n#SBATCH --time 10\n")
    assert {n: d.value for n, d in parsed.directives.items()} == {
        "nodes": "4", "partition": "spot", "time": "10",
    }  # fmt: skip


def test_commands_keep_their_lines_across_quotes_and_here_documents():
    text = 'a\n"b\nc"\ncat <<EOF\ninner\nEOF\nd # e\n'
    commands, documents = shell.split_commands(text)
    assert [(one.line, one.inner) for one in commands] == [
        (1, False), (2, False), (4, False), (5, True), (7, False),
    ]  # fmt: skip
    assert documents == {5, 6}


UNHEARD = """#!/bin/bash
#SBATCH --signal=USR1@90
source ~/.bashrc
{}
"""


@pytest.mark.parametrize(
    "command", ["python train.py", "exec python3 -u train.py", "uv run python t.py"]
)
def test_a_signal_to_job_steps_without_a_step_is_a_finding(command):
    """Report a script whose training never gets the signal.

    Without `B:` sbatch signals all job steps, but not the batch shell and its children.
    """
    assert "signal-unheard" in slugs(UNHEARD.format(command))
    assert "signal-unheard" not in slugs(UNHEARD.format(f"srun {command}"))
    assert "signal-unheard" not in slugs(UNHEARD.format(f"./run.sh\nL=srun\n$L {command}"))
    assert "signal-unheard" not in slugs(UNHEARD.format(f"source run.sh\n{command}"))


def test_a_pipe_inside_an_argument_does_not_hide_an_exit_code():
    """Ignore a pipe in `$(grep … | awk …)`, as open-r1 has."""
    steps = "STEPS=$(grep steps $FILE | awk '{print $2}')\n"
    assert slugs(HEAD + steps + LAUNCH + " --steps $STEPS &\nwait $!\nexit $?\n") == set()


def test_a_job_with_one_task_has_one_node():
    """Count one node, although a comment has $SLURM_NODEID.

    A script of mila-docs has such a comment with --ntasks=1.
    """
    text = "#!/bin/bash\n#SBATCH --ntasks=1\n# $SLURM_NODEID\nsrun torchrun t.py\n"
    assert "kill-on-bad-exit" not in slugs(text)
    assert "kill-on-bad-exit" in slugs(text.replace("ntasks=1", "ntasks=2"))
