"""Find the files in which the nodes of an attempt keep their GPU usage."""

from pathlib import Path


def files(run_dir: Path, attempt_key: str) -> list[Path]:
    """What the nodes of an attempt have written, each once a minute while it is sampled."""
    return sorted((run_dir / "gpus").glob(f"{attempt_key}.*.json"))
