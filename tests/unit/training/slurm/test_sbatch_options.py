"""Options of a submit line are repeated word for word or refused."""

import pytest

from toolkit.training.slurm import sbatch_options

ARGUMENTS = ("train.py", "--name", "two words", "")


def line(*words):
    """Join the words as Slurm does (slurm_option_get_argv_str)."""
    return " ".join(("sbatch", *words))


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--constraint=h100&efa", "--exclusive", "-N", "2-4", "-x", "gpu-[1-3]"),
        ("-N2", "--mem-per-cpu", "4G", "--gres=gpu:2", "-s", "--nice=5"),
        ("--export=ALL,A=1", "--reservation=night", "-o", "logs/%j.out"),
    ],
)
@pytest.mark.parametrize("arguments", [(), ARGUMENTS])
def test_options_are_repeated_as_they_were_typed(words, arguments):
    said = line(*words, "/shared/jobs/torchrun.sbatch", *arguments)
    assert sbatch_options.repeatable(said, arguments) == words


def test_what_belonged_to_the_moment_is_not_repeated():
    moment = ("--array=0-9", "-d", "afterok:7", "-W", "--parsable", "--begin", "now+1hour", "-H")
    said = line(*moment, "-p", "spot", "-D", "/shared", "job.sbatch")
    assert sbatch_options.repeatable(said, ()) == ("-p", "spot")


@pytest.mark.parametrize(
    ("said", "arguments"),
    [
        (line("--comment", "two words", "job.sbatch"), ()),
        (line("--comment=two words", "job.sbatch"), ()),
        (line("--some-later-flag", "job.sbatch"), ()),
        (line("-9", "job.sbatch"), ()),
        (line("job.sbatch", "other.py"), ("train.py",)),
        ("", ()),
    ],
)
def test_a_line_that_can_be_read_in_two_ways_is_not_guessed_at(said, arguments):
    assert sbatch_options.repeatable(said, arguments) is None
