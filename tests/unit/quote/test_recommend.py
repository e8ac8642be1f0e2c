"""Pools for a training, by what a run measured, or by the model's size."""

import json
from dataclasses import replace
from decimal import Decimal

import pytest

from slurmplugins.head.mlflow import MlflowRun
from tests.unit.quote.samples import NOW, market
from toolkit.commands.recommend import prediction_of
from toolkit.quote import predictions, recommend, recommend_words
from toolkit.quote.errors import BadRequest
from toolkit.quote.gpus import gpu_of
from toolkit.quote.history import History, Interruptions
from toolkit.quote.measured import measured_run, measured_runs
from toolkit.quote.model_memory import ModelSize, parse_parameters
from toolkit.quote.predictions import Prediction, PredictionError
from toolkit.quote.recommend import Need

NOTHING = History(0, NOW)
LARGE = {
    "count": 2,
    "shape": {"cpus": 192, "memory_gib": 2048, "gpus": 8, "gpu": "h100"},
    "offerings": [{"type": "p5.48xlarge", "capacity": "on-demand"}],
}
SMALL = {
    "count": 16,
    "shape": {"cpus": 4, "memory_gib": 16, "gpus": 1, "gpu": "a10g"},
    "offerings": [
        {"type": "g5.xlarge", "capacity": "spot"},
        {"type": "g5.xlarge", "capacity": "on-demand"},
    ],
}
POOLS = {"small": SMALL, "large": LARGE}


def place():
    return market(pools=POOLS, partitions={"train": {"pools": ["small", "large"]}})


def run(number=7, *, gpus=4, memory=20_000.0, hardware="4 x g5.xlarge, 4 x NVIDIA A10G", **metrics):
    """Return a run that measured its GPUs."""
    return MlflowRun(
        run_id="r",
        name=f"llm {number}",
        status="FINISHED",
        started=float(NOW + number),
        ended=None,
        tags={"toolkit.hardware": hardware, "toolkit.job_id": str(number)},
        params={},
        metrics={"toolkit.gpu_memory_peak_mib": memory} | metrics,
    )


def test_bytes_of_a_parameter_are_those_of_the_page():
    assert ModelSize(1, "mixed", "adamw").bytes_of_parameter == 18
    assert ModelSize(1, "fp32", "adamw").bytes_of_parameter == 16
    assert ModelSize(1, "bf16", "adamw").bytes_of_parameter == 8
    assert ModelSize(1, "mixed", "adamw-8bit").bytes_of_parameter == 12
    assert ModelSize(1, "mixed", "sgd").bytes_of_parameter == 10


def test_seven_billion_parameters_need_a_node_of_large_gpus_or_many_small_ones():
    size = ModelSize(7 * 10**9)
    assert size.gib == pytest.approx(152.6, abs=0.1)
    found = {c.pool: c for c in recommend.choices(Need(size.gib, str(size)), place(), NOTHING)}
    assert (found["large"].gpus, found["large"].nodes) == (3, 1)
    assert (found["small"].gpus, found["small"].nodes) == (8, 8)


@pytest.mark.parametrize(
    ("text", "number"), [("7B", 7 * 10**9), ("350m", 350 * 10**6), ("1.5b", 15 * 10**8)]
)
def test_parameters_are_written_as_people_do(text, number):
    assert parse_parameters(text) == number


@pytest.mark.parametrize("text", ["", "seven", "-7B", "7G", "0", "B"])
def test_what_is_no_number_of_parameters_is_refused(text):
    with pytest.raises(BadRequest, match="no number of parameters"):
        parse_parameters(text)


def test_a_pool_that_can_not_hold_it_is_left_out():
    assert recommend.choices(Need(3000.0, ""), place(), NOTHING) == []


def test_over_several_nodes_the_gpus_are_whole_nodes():
    found = recommend.choices(Need(800.0, ""), place(), NOTHING)
    assert [(c.pool, c.gpus, c.nodes) for c in found] == [("large", 16, 2)]


def test_a_run_tells_what_it_used():
    known = measured_run(run(**{"toolkit.samples_per_second": 100.0}))
    assert (known.job_name, known.job, known.gpus, known.instance_type) == (
        "llm",
        7,
        4,
        "g5.xlarge",
    )
    assert known.gib == pytest.approx(78.1, abs=0.1)


@pytest.mark.parametrize(
    "hardware", ["", "unknown", "1 x g5.xlarge", "1 x g5.xlarge, 1 x p5.48xlarge, 9 x NVIDIA H100"]
)
def test_a_run_without_one_known_kind_of_gpus_tells_nothing(hardware):
    assert measured_run(run(hardware=hardware)) is None


def test_runs_of_other_names_are_not_asked():
    other = replace(run(9), name="other 9")
    assert [item.job for item in measured_runs([run(7), other, run(8)], "llm")] == [8, 7]


def test_a_measured_speed_ranks_by_the_cost_of_samples():
    need = Need.of_run(measured_run(run(**{"toolkit.samples_per_second": 100.0})))
    first, second = recommend.choices(need, place(), NOTHING)
    assert (first.pool, first.gpus, first.samples_per_second) == ("small", 5, 125.0)
    faster = 989 / 70 * 2 / 4  # of the data sheets; two H100 in place of four A10G
    assert second.samples_per_second == pytest.approx(100 * faster)
    assert first.usd_per_work == pytest.approx(first.usd_effective / 3600 / 125 * 1e6)


def test_gpus_that_wait_for_something_else_are_no_faster_when_they_are_newer():
    busy = {"toolkit.samples_per_second": 100.0, "toolkit.gpu_utilization_percent": 20.0}
    need = Need.of_run(measured_run(run(**busy)))
    large = next(c for c in recommend.choices(need, place(), NOTHING) if c.pool == "large")
    assert large.samples_per_second == 50  # half as many GPUs


def test_many_interruptions_make_spot_dearer_than_on_demand():
    need = Need(20.0, "")
    calm = History(0, NOW, interruptions=Interruptions(1, 1000.0))
    stormy = History(0, NOW, interruptions=Interruptions(100, 10.0))

    def small(history):
        return next(c for c in recommend.choices(need, place(), history) if c.pool == "small")

    assert small(calm).lifecycle == "spot"
    assert small(stormy).lifecycle == "on-demand"
    words = "10.000 interruptions an instance-hour (100 in 10 instance-hours of the records)"
    assert words in small(stormy).other


def test_an_assumed_rate_of_interruptions_is_told_as_one():
    """Keep a reader from taking a guess for a measurement."""
    need = Need(20.0, "")
    (small,) = (c for c in recommend.choices(need, place(), NOTHING) if c.pool == "small")
    assert (
        "0.042 interruptions an instance-hour (assumed, without a record: one a day)" in small.other
    )


def test_people_read_how_fast_it_will_be_and_how_that_is_known():
    measured = measured_run(run(**{"toolkit.samples_per_second": 100.0}))
    same, other = recommend.choices(Need.of_run(measured), place(), NOTHING)
    assert recommend_words.speed(same, measured) == (
        "expected: 125 samples a second, from the 100 of job 7 on 4 GPUs of g5.xlarge; twice the"
        " GPUs are taken to be twice as fast"
    )
    assert "scaled by the peak of the data sheets" in recommend_words.speed(other, measured)
    assert "data sheets" in recommend_words.speed(same, None)
    assert recommend_words.use(
        measured_run(run(**{"toolkit.gpu_utilization_percent": 20.0}))
    ).endswith("before you take faster ones")


def test_people_read_whether_too_much_or_too_little_was_predicted():
    error = PredictionError(0.06, 3, -0.12, 1)
    assert recommend_words.past(error) == (
        "past predictions: memory 6% too high (median of 3 runs),"
        " speed 12% too low (median of 1 run)"
    )
    assert recommend_words.past(PredictionError(0, 2, None, 0)).endswith("speed not measured")


def test_an_instance_type_without_gpus_has_none():
    assert gpu_of("m7i.large") is None
    assert gpu_of("p5.48xlarge").tflops == 989


@pytest.fixture
def record(tmp_path):
    path = tmp_path / "deep" / "demo.jsonl"
    predictions.add(path, Prediction(NOW, "llm", "A10G", 4, 22_000.0, 110.0, 1.6))
    return path


def test_a_prediction_is_held_against_later_runs_on_those_gpus(record):
    later = measured_run(run(**{"toolkit.samples_per_second": 100.0}))
    error = predictions.error(predictions.read(record), [later])
    assert (error.memory, error.memory_runs) == (pytest.approx(0.1), 1)
    assert (error.speed, error.speed_runs) == (pytest.approx(0.1), 1)


def test_runs_before_it_and_on_other_gpus_say_nothing_of_it(record):
    known = predictions.read(record)
    earlier = replace(measured_run(run()), started=NOW - 1.0)
    more = measured_run(run(hardware="8 x g5.xlarge, 8 x NVIDIA A10G"))
    assert predictions.error(known, [earlier, more]) is None


def test_the_last_prediction_before_a_run_counts(record):
    predictions.add(record, Prediction(NOW + 1, "llm", "A10G", 4, 20_000.0, None, 1.6))
    error = predictions.error(predictions.read(record), [measured_run(run())])
    assert (error.memory, error.speed) == (0, None)


def test_a_damaged_line_is_no_prediction(record):
    with record.open("a") as file:
        file.write('{"at": 1}\nnothing\n[]\n')
        sound = json.loads(record.read_text().splitlines()[0])
        for change in (
            *({"at": "now"}, {"before_gpus": -1}, {"instance_type": ["g5"]}),
            *({"memory_mib": None}, {"memory_mib": "12"}, {"samples_per_second": "fast"}),
        ):
            file.write(json.dumps(sound | change) + "\n")
    assert len(predictions.read(record)) == 1
    assert predictions.read(record.with_name("other.jsonl")) == []


def test_the_price_is_that_of_the_gpus_that_it_takes():
    found = recommend.choices(Need(20.0, ""), place(), NOTHING)
    small = next(choice for choice in found if choice.pool == "small")
    assert (small.gpus, Decimal(str(small.usd_per_hour))) == (1, Decimal("0.4"))


def test_the_record_keeps_the_run_that_was_measured_before():
    measured = measured_run(run(**{"toolkit.samples_per_second": 100.0}))
    choice = recommend.choices(Need.of_run(measured), place(), NOTHING)[0]
    kept = prediction_of(NOW, "llm", choice, measured)
    assert (kept.instance_type, kept.gpus) == (choice.instance_type, choice.gpus)
    before = (kept.before_instance_type, kept.before_gpus, kept.before_samples_per_second)
    assert before == ("g5.xlarge", 4, 100.0)
    by_size = prediction_of(NOW, "llm", choice, None)
    assert (by_size.before_instance_type, by_size.before_gpus) == ("", 0)
