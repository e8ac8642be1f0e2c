"""Find the files in which the nodes of an attempt keep their GPU usage."""

from pathlib import Path


def usage_files(run_dir: Path, attempt_key: str) -> list[Path]:
    """Return the usage files of an attempt's nodes.

    Each node writes its file once a minute while it samples.
    """
    return sorted((run_dir / "gpus").glob(f"{attempt_key}.*.json"))
