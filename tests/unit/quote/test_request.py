"""A batch script is read as sbatch reads it, and what sbatch refuses is refused in its words."""

import pytest

from tests.unit.quote.samples import request
from toolkit.quote.errors import BadRequest, UnknownOption
from toolkit.quote.request import parse_time
from toolkit.quote.sbatch_names import full_name


def test_the_command_line_wins_over_the_environment_and_the_script():
    assert request().time_limit == 8 * 3600
    assert request(SBATCH_TIMELIMIT="60").time_limit == 3600
    assert request("--time=30", SBATCH_TIMELIMIT="60").time_limit == 1800
    assert request("-t", "2-00:00:00").time_limit == 2 * 86_400


def test_directives_after_the_first_command_count_for_nothing():
    text = "#!/bin/bash\n#SBATCH -N 2\necho\n#SBATCH -N 9\n"
    assert request(text=text).nodes == 2


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400),
        ("90:30", 91 * 60),  # Slurm counts minutes, and rounds up
        ("08:00:00", 28_800),
        ("1-2", 93_600),
        ("1-02:30", 95_400),
        ("1-02:30:00", 95_400),
    ],
)
def test_times_are_slurms(text, seconds):
    assert parse_time(text) == seconds


@pytest.mark.parametrize("text", ["", "eight", "1:2:3:4", "-5", "8h"])
def test_a_time_that_slurm_can_not_read_is_refused(text):
    with pytest.raises(BadRequest, match="invalid time limit"):
        parse_time(text)


@pytest.mark.parametrize("text", ["infinite", "UNLIMITED", "-1"])
def test_a_job_may_ask_for_no_limit(text):
    assert request(f"--time={text}").unlimited


@pytest.mark.parametrize(
    ("options", "count", "kind"),
    [
        (("--gpus=a10g:4",), 4, "a10g"),
        (("--gpus=4",), 4, ""),
        (("-G4",), 4, ""),
        (("--gpus=a10g:2,h100:2",), 4, ""),
    ],
)
def test_gpus_of_the_job(options, count, kind):
    gpus = request(*options).gpus
    assert (gpus.count, gpus.kind) == (count, kind)


@pytest.mark.parametrize("text", ["gpu:a10g:2", "gres/gpu:a10g:2", "shard:3,gpu:a10g:2"])
def test_gres_are_gpus_of_a_node(text):
    gpus = request(f"--gres={text}").gpus_per_node
    assert (gpus.count, gpus.kind) == (2, "a10g")


def test_gres_without_a_number_is_one():
    assert request("--gres=gpu").gpus_per_node.count == 1


def test_an_array_has_tasks():
    assert request("--array=0-9%2").array_tasks == 10


def test_memory_has_slurms_units():
    assert request("--mem=16G").memory_per_node == 16_384
    assert request("--mem-per-cpu=500").memory_per_cpu == 500
    assert request("--mem=0").memory_per_node == 0
    assert request().memory_per_node is None


def test_an_option_that_sbatch_lacks_is_named_with_the_nearest():
    with pytest.raises(UnknownOption) as caught:
        request("--partiton=spot")
    assert "unrecognized option --partiton" in caught.value.message
    assert caught.value.next_step == "did you mean --partition?"


def test_an_unknown_option_in_the_script_is_found_too():
    with pytest.raises(UnknownOption, match="unrecognized option --gpu-count"):
        request(text="#!/bin/bash\n#SBATCH --gpu-count=2\n")


def test_the_beginning_of_a_name_stands_for_it_as_in_getopt():
    assert full_name("parti") == "partition"
    with pytest.raises(UnknownOption, match="--gpu is ambiguous"):
        full_name("gpu")


@pytest.mark.parametrize(
    "option", ["--nodes=0", "--nodes=two", "--mem=16Q", "--gpus=many", "--ntasks=x", "-c-1"]
)
def test_values_that_sbatch_refuses(option):
    with pytest.raises(BadRequest, match="invalid"):
        request(option)


def test_a_het_job_has_no_quote():
    with pytest.raises(BadRequest, match="heterogeneous"):
        request(text="#!/bin/bash\n#SBATCH -N1\n#SBATCH hetjob\n#SBATCH -N2\n")


def test_the_name_is_the_scripts_where_none_is_given():
    assert request(text="#!/bin/bash\n").name == "job.sbatch"
