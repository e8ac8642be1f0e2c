"""The test on AWS: its estimate, its refusals, its cluster.yaml, and what it looks for."""

from decimal import Decimal

import pytest

from tests.aws import job
from tests.aws.__main__ import main
from tests.aws.estimate import estimate, refusal, total
from tests.aws.place import Place, cluster_yaml
from tests.aws.record import Record
from tests.aws.run import Workspace
from tests.aws.sizes import SIZES, sized
from toolkit.config import parse
from toolkit.prices import Catalogue

AWS = Place("us-east-1", "us-east-1a")
LOCAL = Place("us-east-1", "us-east-1a", "local", "http://127.0.0.1:1", "/c")


def parts_of(name):
    return estimate(SIZES[name], "us-east-1", Catalogue.bundled())


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("place", [AWS, LOCAL])
def test_each_size_is_a_valid_cluster_in_one_zone(name, place):
    """Check the file as `toolkit config check` does."""
    config = parse(cluster_yaml(SIZES[name], place))
    assert config.cluster == f"aws-test-{name}"
    assert list(config.network.zones) == ["us-east-1a"]
    assert config.pools["node"].count == SIZES[name].nodes
    assert config.pools["node"].efa == SIZES[name].efa
    assert config.shared.gib == 1200
    assert config.aws.endpoint_url == (place.endpoint_url or None)


def test_the_estimate_counts_everything_until_the_end_of_the_clean_up():
    """Multiply each price by the hours to the deadline, and 20 minutes."""
    amounts = {part.name.split(":")[0]: part.usd for part in parts_of("small")}
    hours = Decimal(110) / 60
    assert amounts["head node"] == Decimal("0.1008") * hours
    assert amounts["nodes, on demand"] == Decimal("0.08925") * hours
    assert amounts["image builders"] == 2 * Decimal("0.357") * hours
    assert len(amounts) == 6
    assert Decimal(2) < total(parts_of("small")) < Decimal(4)
    assert total(parts_of("gpu")) < Decimal(7)
    assert total(parts_of("efa")) < Decimal(15), "all three for less than 25 USD"


def test_a_run_without_a_cap_or_above_it_is_refused():
    """Begin only at a cap that the estimate keeps."""
    parts = parts_of("small")
    assert "set AWS_TEST_CAP_USD" in refusal(parts, None)
    assert "the cap is 0.50 USD" in refusal(parts, Decimal("0.50"))
    assert refusal(parts, total(parts)) == ""
    assert refusal(parts, total(parts) - Decimal("0.01")) != ""
    assert refusal(parts, Decimal("NaN")) != ""
    assert refusal(parts, Decimal("Infinity")) != ""
    elsewhere = estimate(SIZES["small"], "eu-central-1", Catalogue.bundled())
    assert "no price is known of head node" in refusal(elsewhere, Decimal(1000))


@pytest.mark.parametrize(
    "words", [["small"], ["gpu", "--cap-usd", "0.10"], ["efa", "--cap-usd", "much"]]
)
def test_the_program_refuses_before_it_makes_anything(words, tmp_path, capsys, monkeypatch):
    """Exit with 2, print the estimate, and write no file."""
    monkeypatch.delenv("AWS_TEST_CAP_USD", raising=False)
    assert main([*words, "--work", str(tmp_path)]) == 2
    assert "USD  head node" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_prints_the_estimate_alone(tmp_path, capsys, monkeypatch):
    """Take the cap of the environment."""
    monkeypatch.setenv("AWS_TEST_CAP_USD", "20")
    assert main(["small", "--dry-run", "--work", str(tmp_path)]) == 0
    assert "FSx for Lustre" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_a_run_after_one_that_was_killed_is_refused(tmp_path, capsys):
    """Name the command that cleans up first."""
    workspace = Workspace(tmp_path, "small")
    workspace.folder.mkdir()
    workspace.unfinished.write_text("{}")
    assert main(["small", "--cap-usd", "20", "--work", str(tmp_path)]) == 2
    assert "make aws-test-clean" in capsys.readouterr().err
    assert not workspace.config.exists()


def test_another_type_has_its_own_shape_and_a_deadline_only_gets_shorter():
    """Refuse a type whose shape is not known."""
    assert sized("efa", "p5.4xlarge").gpu == "h100"
    assert sized("small", "c7i.large") == SIZES["small"]
    assert sized("small", minutes=10).minutes == 10
    assert sized("small", minutes=1000).minutes == SIZES["small"].minutes
    with pytest.raises(SystemExit, match="x1e"):
        sized("small", "x1e.xlarge")


OUTPUT = """\
before
== memlock
unlimited
== work
{digest}  /shared/home/tester/x
== memlock
8192
"""


def test_sections_of_several_nodes_are_joined():
    """Ignore what comes before the first heading."""
    seen = job.sections(OUTPUT)
    assert seen["memlock"] == "unlimited\n8192"
    assert set(seen) == {"memlock", "work"}


def test_what_should_have_been_seen_and_was_not_is_a_problem():
    """Look for Lustre on AWS alone."""
    seen = job.sections(OUTPUT.format(digest="0" * 64))
    expectations = SIZES["small"].expectations
    assert job.disappointments(expectations, seen, on_aws=False) == ()
    (problem,) = job.disappointments(expectations, seen, on_aws=True)
    assert problem.startswith("shared: expected")
    assert len(job.disappointments(SIZES["efa"].expectations, {}, on_aws=True)) >= 8


def test_every_section_that_is_expected_is_printed_by_a_script():
    """Compare the sizes with their batch scripts."""
    for size in SIZES.values():
        text = "\n".join(path.read_text() for path in size.scripts)
        for one in size.expectations:
            assert f'echo "== {one.section}"' in text, (size.name, one.section)


def test_a_record_passes_only_without_problems_and_with_nothing_left(tmp_path):
    """Write a table with units for people."""
    record = Record("small", "us-east-1", "c7i.large", "2026-11-25 20:00 UTC", "2.50")
    record.figures["deploy_seconds"] = 1234
    record.seen["work"] = "sum"
    assert not record.passed
    record.cleaned = True
    record.write(tmp_path)
    text = (tmp_path / "record.md").read_text()
    assert text.startswith("### aws-test small: passed\n")
    assert "| deploy | 1234 s |" in text
    assert '"passed": true' in (tmp_path / "record.json").read_text()
    record.problems.append("no")
    assert "- **no**" in record.markdown()
    assert not record.passed
