"""sacct's text becomes rows, with any text in names and comments."""

import pytest

from slurmplugins.slurm import sacct as call
from toolkit.accounting import sacct
from toolkit.accounting.errors import SacctError

TOKEN = "5f2d"
HELP = " ".join([*call.REQUIRED, *call.OPTIONAL, *call.FREE_TEXT])
NAMES = sacct.fields(HELP)


def row(**changes):
    values = dict.fromkeys(NAMES, "") | {
        "DBIndex": "41",
        "JobIDRaw": "7",
        "JobID": "7",
        "Cluster": "demo",
        "Partition": "spot",
        "Account": "vision",
        "User": "ada",
        "QOS": "normal",
        "Submit": "1795255200",
        "Start": "1795255260",
        "End": "1795255320",
        "State": "COMPLETED",
        "ExitCode": "0:0",
        "DerivedExitCode": "0:0",
        "NNodes": "2",
        "AllocTRES": "billing=8,cpu=8,gres/gpu=2,mem=30000M,node=2",
        "NodeList": "gpu-[001-002]",
        "Restarts": "0",
        "JobName": "digits",
    }
    return sacct.delimiter(TOKEN).join((values | changes).values())


def text(*rows):
    return "".join(f"{line}\n" for line in rows)


class FakeHead:
    """A head node that answers as sacct would and keeps the calls."""

    def __init__(self, answer) -> None:
        self.answer = answer
        self.calls = []

    def run(self, argv, *, timeout=60):
        self.calls.append(list(argv))
        return HELP if "--helpformat" in argv else self.answer


def test_a_row_becomes_an_attempt():
    (attempt,) = sacct.parse(text(row()), NAMES, TOKEN).attempts
    assert attempt.key == 41
    assert attempt.nodes == ("gpu-001", "gpu-002")
    assert (attempt.started, attempt.ended) == (1795255260, 1795255320)
    assert attempt.tres.gpus == 2
    assert attempt.restarts == 0


@pytest.mark.parametrize(
    "name",
    ["a|b", "a\nb", "a\n42\x1f7\x1fb", "", "\n", "a\n\n43", "\x1f", "é\u2028x"],
)
@pytest.mark.parametrize("field", ["JobName", "Comment", "AdminComment"])
def test_hostile_free_text_does_not_change_other_rows(field, name):
    rows = [row(DBIndex="1"), row(DBIndex="2", **{field: name}), row(DBIndex="3")]
    attempts = sacct.parse(text(*rows), NAMES, TOKEN).attempts
    assert [attempt.key for attempt in attempts] == [1, 2, 3]
    if field == "JobName":
        assert attempts[1].name == name
    assert {attempt.user for attempt in attempts} == {"ada"}


def test_a_job_name_can_not_forge_a_row_without_the_token():
    forged = "x\n" + row(DBIndex="9", Account="victim").replace(TOKEN, "guess")
    (attempt,) = sacct.parse(text(row(JobName=forged)), NAMES, TOKEN).attempts
    assert (attempt.account, attempt.name) == ("vision", forged)


def test_output_without_its_last_line_break_is_parsed():
    attempts = sacct.parse(text(row(DBIndex="1"), row(DBIndex="2")).strip(), NAMES, TOKEN).attempts
    assert [attempt.name for attempt in attempts] == ["digits", "digits"]


def test_each_attempt_of_a_requeued_job_is_read_once():
    rows = [
        row(DBIndex="1", State="REQUEUED", ExitCode="85:0"),
        row(DBIndex="2", Restarts="1"),
        row(DBIndex="2", Restarts="1"),
    ]
    attempts = sacct.parse(text(*rows), NAMES, TOKEN).attempts
    assert [(attempt.key, attempt.job_id, attempt.requeue_requested) for attempt in attempts] == [
        (1, "7", True),
        (2, "7", False),
    ]


def test_unknown_times_are_none():
    (attempt,) = sacct.parse(
        text(row(Start="Unknown", End="None", NodeList="None assigned", AllocTRES="")),
        NAMES,
        TOKEN,
    ).attempts
    assert (attempt.started, attempt.ended, attempt.nodes) == (None, None, ())


DAMAGES = ["1e999", "NaN", "-5", "\u00b2", "\uff11", "9" * 12, "9" * 5000, "unknown", "N/A"]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("field", ["Submit", "Eligible", "Start", "End"])
def test_a_row_with_a_time_that_is_none_is_set_aside_and_hides_no_other(field, damage):
    rows = [row(DBIndex="1"), row(DBIndex="2", **{field: damage}), row(DBIndex="3")]
    content = sacct.parse(text(*rows), NAMES, TOKEN)
    assert [attempt.key for attempt in content.attempts] == [1, 3]
    (item,) = content.set_aside
    assert item.name == "row 2 of sacct"
    assert f"is no {field} (job '7')" in item.reason
    assert damage[:20] in item.reason
    assert item.has_unknown_cost


@pytest.mark.parametrize(
    ("field", "damage"),
    [
        ("NNodes", "1K"),
        ("NNodes", "-2"),
        ("NNodes", "1e3"),
        ("NNodes", "9" * 5000),
        ("AllocTRES", "cp"),
        ("AllocTRES", "cpu=-4"),
        ("AllocTRES", "cpu=4,mem=1e999M"),
    ],
)
def test_a_row_with_an_amount_that_is_none_is_set_aside(field, damage):
    content = sacct.parse(text(row(**{field: damage})), NAMES, TOKEN)
    assert content.attempts == ()
    (item,) = content.set_aside
    assert f"is no {field} (job '7')" in item.reason
    assert item.has_unknown_cost


@pytest.mark.parametrize("word", ["", "0", "Unknown", "None"])
def test_slurms_words_for_no_time_set_no_row_aside(word):
    content = sacct.parse(text(row(Eligible=word, Start=word, End=word)), NAMES, TOKEN)
    assert content.set_aside == ()
    (attempt,) = content.attempts
    assert (attempt.eligible, attempt.started, attempt.ended) == (None, None, None)


def test_a_count_of_restarts_that_is_none_is_unknown():
    (attempt,) = sacct.parse(text(row(Restarts="1e999")), NAMES, TOKEN).attempts
    assert attempt.restarts is None


@pytest.mark.parametrize("field", [*call.REQUIRED, *call.FREE_TEXT])
def test_text_without_a_required_field_is_an_error_that_names_it(field):
    names = [name for name in NAMES if name != field]
    line = sacct.delimiter(TOKEN).join(names)
    with pytest.raises(SacctError, match=field):
        sacct.parse(text(line), names, TOKEN)
    with pytest.raises(SacctError):
        sacct.parse(text(line), [field], TOKEN)


def test_the_state_is_one_word():
    (attempt,) = sacct.parse(text(row(State="CANCELLED by 2001")), NAMES, TOKEN).attempts
    assert attempt.state == "CANCELLED"


def test_nodes_with_invalid_names_are_left_out():
    (attempt,) = sacct.parse(
        text(row(NodeList="rack[1-4],gpu-[001,003],Z9")), NAMES, TOKEN
    ).attempts
    assert attempt.nodes == ("gpu-001", "gpu-003")


@pytest.mark.parametrize(("text_value", "count"), [("6", 6), ("", 0)])
def test_all_nodes_of_an_attempt_are_counted(text_value, count):
    (attempt,) = sacct.parse(
        text(row(NNodes=text_value, NodeList="gpu-001")), NAMES, TOKEN
    ).attempts
    assert attempt.node_count == count


@pytest.mark.parametrize("damage", ["", "x", "\u00b2", "-1", "1" * 5000])
def test_a_row_without_a_database_index_is_set_aside_and_hides_no_other(damage):
    rows = [row(DBIndex="1"), row(DBIndex=damage, JobIDRaw="8"), row(DBIndex="3")]
    content = sacct.parse(text(*rows), NAMES, TOKEN)
    assert [attempt.key for attempt in content.attempts] == [1, 3]
    (item,) = content.set_aside
    assert item.name == "row 2 of sacct"
    assert "job '8'" in item.reason
    assert item.has_unknown_cost


def test_output_without_jobs_is_no_error():
    assert sacct.parse("", NAMES, TOKEN) == sacct.SacctContent()


def test_truncated_output_is_an_error():
    with pytest.raises(SacctError):
        sacct.parse(text(row(), row())[:-200], NAMES, TOKEN)
    with pytest.raises(SacctError):
        sacct.parse("slurm_persist_conn_open: failed\n", NAMES, TOKEN)


def test_a_missing_field_is_named():
    with pytest.raises(SacctError, match="DBIndex"):
        sacct.fields(HELP.replace("DBIndex", ""))


@pytest.mark.parametrize("name", call.OPTIONAL)
def test_a_field_that_a_version_lacks_is_not_requested(name):
    assert name in NAMES
    assert name not in sacct.fields(HELP.replace(name, ""))


def test_a_page_without_the_time_of_eligibility_has_the_submission():
    submitted, eligible = 1795255200, 1795255230
    names = [name for name in NAMES if name != "Eligible"]
    for known, moment in ((NAMES, eligible), (names, submitted)):
        line = sacct.delimiter(TOKEN).join(
            value
            for name, value in zip(
                NAMES, row(Eligible=str(eligible)).split(sacct.delimiter(TOKEN)), strict=True
            )
            if name in known
        )
        (attempt,) = sacct.parse(text(line), known, TOKEN).attempts
        assert attempt.queued_from == moment
    (late,) = sacct.parse(text(row(Eligible="1795255261")), NAMES, TOKEN).attempts
    assert late.queued_from == submitted, "no job starts before it is eligible"


def test_read_requests_every_attempt_in_utc_and_reads_the_fields_first():
    head = FakeHead(text(row()))
    sacct.read(head, 1795255200, 1795258800, TOKEN)
    probe, call = head.calls
    assert probe[-2:] == ["sacct", "--helpformat"]
    assert {"--duplicates", "--allocations", "--allusers", "--noconvert"} <= set(call)
    assert {"TZ=UTC", "SLURM_TIME_FORMAT=%s"} <= set(call)
    assert "--starttime=2026-11-21T10:00:00" in call
    assert "--endtime=2026-11-21T11:00:00" in call
    assert not any(argument.startswith("--truncate") for argument in call)


@pytest.mark.parametrize(
    ("key", "project"), [("tokens", "tokens"), ("*tokens", "tokens"), ("", "")]
)
def test_the_project_is_the_jobs_wckey(key, project):
    """Slurm puts a star before a user's default key."""
    names = sacct.fields(f"{HELP} WCKey")
    values = dict(zip(NAMES, row().split(sacct.delimiter(TOKEN)), strict=True)) | {"WCKey": key}
    line = sacct.delimiter(TOKEN).join(values[name] for name in names)
    (attempt,) = sacct.parse(text(line), names, TOKEN).attempts
    assert (attempt.project, attempt.qos, attempt.restarts) == (project, "normal", 0)
    (older,) = sacct.parse(text(row()), NAMES, TOKEN).attempts
    assert older.project == ""
