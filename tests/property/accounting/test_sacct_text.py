"""Laws of a user's free text in sacct.

It can change no other field, no other row, and not the number of rows.
"""

from hypothesis import given, strategies as st

from slurmplugins.slurm import sacct as call
from toolkit.accounting import sacct

TOKEN = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
HELP = " ".join([*call.REQUIRED, "Restarts", *call.FREE_TEXT])
NAMES = sacct.fields(HELP)

# Any text but the token of this call, which a user can't know while naming a job.
hostile = st.text(st.characters(codec="utf-8") | st.sampled_from("\n\x1f|:0123456789"), max_size=30)
texts = st.tuples(hostile, hostile, hostile)


@given(st.lists(texts, max_size=6), st.booleans())
def test_free_text_of_a_job_is_parsed_as_it_was_written(rows, stripped):
    lines = []
    for key, free in enumerate(rows):
        values = dict.fromkeys(NAMES, "") | {"DBIndex": str(key), "ExitCode": "0:0"}
        values |= dict(zip(call.FREE_TEXT, free, strict=True))
        lines.append(sacct.delimiter(TOKEN).join(values.values()) + "\n")
    text = "".join(lines)
    parsed_rows = sacct.rows(text[:-1] if stripped and text else text, NAMES, TOKEN)
    # Without the last line break, a name that ends with one loses it. No cost depends on that.
    last_text = rows[-1][2] if rows else ""
    expected = [list(free) for free in rows]
    if rows and stripped and last_text.endswith("\n"):
        expected[-1][2] = last_text[:-1]
    assert [[row[name] for name in call.FREE_TEXT] for row in parsed_rows] == expected
    assert [row["DBIndex"] for row in parsed_rows] == [str(key) for key in range(len(rows))]
