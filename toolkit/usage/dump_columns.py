"""SQL that turns the text of sacct's fields into typed columns.

What needs more than a cast is read by the functions that read a page of our own cluster
(`toolkit.accounting`): each distinct text once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.accounting.attempts import REQUEUE_EXIT
from toolkit.accounting.sacct import NO_TIMES, exit_code
from toolkit.accounting.tres import Tres
from toolkit.usage.database import quoted
from toolkit.usage.dump_text import SPOOL_DELIMITER

if TYPE_CHECKING:
    from toolkit.usage.database import Database
    from toolkit.usage.dump_file import Spooled
    from toolkit.usage.dump_text import DumpFormat

COLUMNS = (
    ("cluster", "VARCHAR"),
    ("db_index", "UBIGINT"),  # DuckDB writes HUGEINT to Parquet as DOUBLE, which makes keys equal
    ("job_id", "VARCHAR"),
    ("job", "VARCHAR"),
    ("job_name", "VARCHAR"),
    ("user_name", "VARCHAR"),
    ("account", "VARCHAR"),
    ("partition_name", "VARCHAR"),
    ("qos", "VARCHAR"),
    ("state", "VARCHAR"),
    ("requeue_requested", "BOOLEAN"),
    ("restarts", "BIGINT"),
    ("submitted", "BIGINT"),
    ("eligible", "BIGINT"),
    ("started", "BIGINT"),
    ("ended", "BIGINT"),
    ("node_count", "BIGINT"),
    ("node_list", "VARCHAR"),
    ("cpus", "BIGINT"),
    ("memory_mib", "BIGINT"),
    ("gpus", "BIGINT"),
    ("checkpoint", "BIGINT"),
    ("checkpoint_marks", "VARCHAR"),  # all of its comment, as `100,200`: other rows' among them
    ("import_number", "INTEGER"),
    ("line", "BIGINT"),
)
"""The columns of an attempt in the store."""

_MACROS = r"""
CREATE OR REPLACE TEMP MACRO whole_number(x) AS
    CASE WHEN TRY_CAST(x AS UBIGINT)::VARCHAR = x OR regexp_full_match(x, '[0-9]{1,20}')
        THEN TRY_CAST(x AS UBIGINT) END;
CREATE OR REPLACE TEMP MACRO count_of(x) AS TRY_CAST(whole_number(x) AS BIGINT);
CREATE OR REPLACE TEMP MACRO moment(x) AS
    CASE WHEN x LIKE '____-__-__T%' THEN epoch(local(TRY_CAST(x AS TIMESTAMP)))::BIGINT
         ELSE count_of(x) END;
CREATE OR REPLACE TEMP MACRO second(x) AS CASE WHEN x BETWEEN 1 AND 99999999999 THEN x END;
CREATE OR REPLACE TEMP MACRO is_no(x, field) AS
    concat(chr(39), left(x, 40), chr(39), ' is no ', field);
"""

_TIMES = ("submit", "eligible", "start", "end")
_COUNTS = {"nodes": "nnodes", "cpus": "ncpus"}


_FEW_TEXTS = ("cluster", "user_name", "account", "partition_name", "qos", "node_list")
"""Columns with few distinct texts, as a rule."""


def read_spool(
    database: Database, part: Spooled, form: DumpFormat, number: int, timezone: str
) -> tuple[int, list[tuple[int, str, str]]]:
    """Make the view `read_attempts` of a spool.

    Returns how many rows were job steps, and the rows that are no attempt: line, text, reason.
    """
    zone = "x" if timezone == "UTC" else f"timezone({quoted(timezone)}, x)"
    database.run(f"CREATE OR REPLACE TEMP MACRO local(x) AS {zone}")
    for macro in _MACROS.split(";"):
        if macro.strip():
            database.run(macro)
    names = [f"c{position}" for position in range(len(form.fields))]
    kinds = ", ".join(f"{quoted(name)}: 'VARCHAR'" for name in names)
    database.run(
        f"""CREATE OR REPLACE TEMP TABLE texts AS
        SELECT {_texts(form, with_blanks=part.has_outer_blanks)}
        FROM read_csv({quoted(str(part.path))}, delim={quoted(SPOOL_DELIMITER)}, header=false,
        auto_detect=false, quote='', escape='', comment='', new_line='\\n', nullstr='',
        columns={{{kinds}}})"""  # noqa: S608
    )
    steps = database.value("SELECT count(*) FROM texts WHERE contains(job_id, '.')")
    _parse_texts(database)
    database.table("shifts", (("first_row", "BIGINT"), ("shift", "BIGINT")), list(part.shifts))
    database.run(_typed(database, form, part, number))
    bad_rows = database.rows(
        """SELECT line, job_id || '|' || db_index_text || '|' || submit_text, reason
        FROM typed JOIN (SELECT rowid AS row, db_index_text, submit_text FROM texts) USING (row)
        WHERE reason IS NOT NULL ORDER BY line"""
    )
    database.run("DROP TABLE texts")
    columns = ", ".join(name for name, _ in COLUMNS)
    database.run(
        f"""CREATE OR REPLACE TEMP VIEW read_attempts AS
        SELECT {columns} FROM typed WHERE reason IS NULL"""  # noqa: S608
    )
    return int(steps), [(int(line), text, reason) for line, text, reason in bad_rows]


def _damage() -> str:
    """Return the expression that names a damaged time or count.

    It is null for a good row. Without --noconvert sacct rounds large counts, such as `1.95K`:
    they are not known, but no damage.
    """
    words = ", ".join(map(quoted, NO_TIMES))
    times = (
        f"""WHEN second({name}_moment) IS NULL AND {name}_moment IS DISTINCT FROM 0
        AND {name}_text NOT IN ({words}) THEN is_no({name}_text, {quoted(name)})"""
        for name in _TIMES
    )
    counts = (
        f"""WHEN {name}_count IS NULL AND {name}_text <> ''
        AND NOT regexp_full_match({name}_text, '[0-9.]+[KMGTP]')
        THEN is_no({name}_text, {quoted(field)})"""
        for name, field in _COUNTS.items()
    )
    return f"CASE {' '.join((*times, *counts))} END"


def _texts(form: DumpFormat, *, with_blanks: bool) -> str:
    """Return the select list that names the fields, each as trimmed text."""

    def text(*names: str) -> str:
        found = [f"c{form.fields.index(name)}" for name in names if name in form.fields]
        if with_blanks:
            found = [f"nullif(trim({name}), '')" for name in found]
        return f"coalesce({', '.join([*found, quoted('')])})"

    fields = {
        "cluster": text("cluster"),
        "db_index_text": text("dbindex"),
        "job_id": text("jobidraw", "jobid"),
        "job": text("jobid", "jobidraw"),
        "job_name": text("jobname"),
        "user_name": text("user"),
        "account": text("account"),
        "partition_name": text("partition"),
        "qos": text("qos"),
        "state_text": text("state"),
        "exit_text": text("exitcode"),
        "derived_text": text("derivedexitcode"),
        "restarts_text": text("restarts"),
        "submit_text": text("submit"),
        "eligible_text": text("eligible"),
        "start_text": text("start"),
        "end_text": text("end"),
        "nodes_text": text("nnodes", "allocnodes"),
        "node_list": text("nodelist"),
        "cpus_text": text("alloccpus", "ncpus"),
        "tres_text": text("alloctres"),
        "comments": f"{text('admincomment')} || ' ' || {text('comment')}",
    }
    return ", ".join(f"{expression} AS {name}" for name, expression in fields.items())


def _parse_texts(database: Database) -> None:
    """Make tables of the distinct texts that SQL doesn't read itself."""

    def amounts(text: str) -> tuple[int | bool | None, ...]:
        tres = Tres.parse(text)
        numbers = (tres.cpus, tres.memory_mib, tres.gpus) if text else (None, None, None)
        return *numbers, Tres.is_readable(text)

    def outcome(state: str, *codes: str) -> tuple[str, bool]:
        return state.partition(" ")[0].rstrip("+"), REQUEUE_EXIT in map(exit_code, codes)

    numbers = tuple((name, "BIGINT") for name in ("tres_cpus", "memory_mib", "gpus"))
    database.parsed(
        "tres",
        "SELECT tres_text FROM texts",
        (("tres_text", "VARCHAR"), *numbers, ("tres_is_readable", "BOOLEAN")),
        amounts,
    )
    outcome_texts = ("state_text", "exit_text", "derived_text")
    database.parsed(
        "outcomes",
        f"SELECT {', '.join(outcome_texts)} FROM texts",  # noqa: S608  # our own names
        (
            *((name, "VARCHAR") for name in outcome_texts),
            ("state", "VARCHAR"),
            ("requeue_requested", "BOOLEAN"),
        ),
        outcome,
    )


def _typed(database: Database, form: DumpFormat, part: Spooled, number: int) -> str:
    """Return the statement that makes the table `typed`."""
    has_key = "dbindex" in form.fields
    no_key = "WHEN db_index IS NULL THEN 'its DBIndex is no number'" if has_key else ""
    if len(part.shifts) <= 1:
        shift = part.shifts[0][1] if part.shifts else 0
        lines = f"SELECT *, row + {shift} AS line FROM cast_texts"  # noqa: S608
    else:
        lines = """SELECT c.*, row + s.shift AS line
            FROM cast_texts AS c ASOF JOIN shifts AS s ON c.row >= s.first_row"""
    types = database.text_types("texts", _FEW_TEXTS) | database.text_types("outcomes", ("state",))
    few_texts = ", ".join(f"{name}::{kind} AS {name}" for name, kind in types.items())
    return f"""CREATE OR REPLACE TEMP TABLE typed AS WITH moments AS (
        SELECT *, rowid AS row, count_of(nodes_text) AS nodes_count,
            count_of(cpus_text) AS cpus_count,
            {", ".join(f"moment({name}_text) AS {name}_moment" for name in _TIMES)}
        FROM texts WHERE NOT contains(job_id, '.')),
    checked AS (SELECT *, {_damage()} AS damage FROM moments),
    cast_texts AS (
        SELECT *, whole_number(db_index_text) AS db_index, second(submit_moment) AS submitted,
            second(start_moment) AS started, second(end_moment) AS ended,
            second(eligible_moment) AS eligible,
            TRY_CAST(restarts_text AS BIGINT) AS restarts,
            nodes_count AS node_count, coalesce(tres_cpus, cpus_count) AS cpus,
            CASE WHEN contains(comments, 'toolkit:checkpoint=') THEN list_filter(
                regexp_extract_all(comments, 'toolkit:checkpoint=([0-9]+)', 1),
                lambda m: length(m) <= 12) END AS marks,
            {number} AS import_number
        FROM checked JOIN tres USING (tres_text)
            JOIN outcomes USING (state_text, exit_text, derived_text)),
    numbered AS ({lines})
    SELECT * REPLACE ({few_texts}) FROM (
        SELECT cluster, db_index, job_id, job, job_name, user_name, account, partition_name, qos,
            state, requeue_requested, restarts, submitted, eligible, started, ended, node_count,
            node_list, cpus, memory_mib, gpus,
            CASE WHEN marks IS NOT NULL THEN list_max(list_filter(
                list_transform(marks, lambda m: m::BIGINT),
                lambda m: m >= started AND (ended IS NULL OR m <= ended))) END AS checkpoint,
            CASE WHEN marks IS NOT NULL THEN array_to_string(marks, ',') END AS checkpoint_marks,
            import_number, line, row, CASE WHEN job_id = '' THEN 'it has no job id' {no_key}
                WHEN damage IS NOT NULL THEN damage
                WHEN NOT tres_is_readable THEN is_no(tres_text, 'alloctres')
                WHEN submitted IS NULL AND started IS NULL THEN 'it has no time' END AS reason
        FROM numbered)"""  # noqa: S608  # our own text
