"""`toolkit lint`, called by people and by scripts."""

import json

from toolkit.cli import run

GOOD = "#!/bin/bash\n#SBATCH --requeue\n#SBATCH --open-mode=append\npython tokenize.py\n"


def test_the_exit_code_distinguishes_errors_from_warnings(tmp_path, capsys):
    good, warned, bad = (tmp_path / name for name in ("good", "warned", "bad"))
    good.write_text(GOOD)
    warned.write_text(GOOD.replace("#SBATCH --open-mode=append\n", ""))
    bad.write_text(GOOD.replace("--requeue", "--no-requeue"))
    assert run(["lint", str(good)]) == 0
    assert run(["lint", "--strict", str(good)]) == 0
    assert run(["lint", str(warned)]) == 0
    assert run(["lint", "--strict", str(warned)]) == 1
    assert run(["lint", str(good), str(bad)]) == 1
    assert run(["lint", str(tmp_path / "none")]) == 2
    out = capsys.readouterr().out
    assert f"{bad}:2: error: --no-requeue" in out
    assert "fix: #SBATCH --requeue" in out


def test_json_lists_every_script_with_its_findings(tmp_path, capsys):
    path = tmp_path / "job.sbatch"
    path.write_text(GOOD.replace("--requeue", "--no-requeue"))
    assert run(["lint", "--json", str(path)]) == 1
    (one,) = json.loads(capsys.readouterr().out)["scripts"]
    assert one["script"] == str(path)
    (finding,) = one["findings"]
    assert (finding["slug"], finding["severity"], finding["line"]) == ("no-requeue", "error", 2)
