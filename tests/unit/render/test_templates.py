"""Jinja templates, with undefined variables as errors."""

import pytest

from toolkit.errors import RenderError
from toolkit.render.templates import environment, render


def test_an_undefined_name_is_an_error(tmp_path):
    (tmp_path / "a.j2").write_text("{{ missing }}")
    with pytest.raises(RenderError, match=r"a\.j2: 'missing' is undefined"):
        render(environment(tmp_path), "a.j2")


def test_a_broken_template_is_named(tmp_path):
    (tmp_path / "a.j2").write_text("{% if %}")
    with pytest.raises(RenderError, match=r"a\.j2"):
        render(environment(tmp_path), "a.j2")


def test_a_missing_template_is_named(tmp_path):
    with pytest.raises(RenderError, match=r"b\.j2"):
        render(environment(tmp_path), "b.j2")
