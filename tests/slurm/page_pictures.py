"""Pictures of a page of HTML in Chromium: at two widths, and as it prints.

Needs Debian's chromium, poppler-utils and pngquant.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

CHROMIUM = ("chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")
SCREENS = {"wide": (1280, 1700, 1), "narrow": (430, 1150, 2)}
"""Width and height of the window, and the pixels for each of its own."""
PAGES_AT_MOST = 3


def take_pictures(page: Path) -> list[Path]:
    """Write PAGE-wide.png, PAGE-narrow.png and PAGE-print.png beside a page."""
    pictures = [_screen(page, name) for name in SCREENS]
    return [*pictures, _printed(page)]


def _picture(page: Path, name: str) -> Path:
    return page.with_name(f"{page.stem}-{name}.png")


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True, timeout=120)


def _screen(page: Path, name: str) -> Path:
    width, height, scale = SCREENS[name]
    return _shot(page, _picture(page, name), (width, height), scale)


def _printed(page: Path) -> Path:
    """Print the page, and put its sheets beside each other."""
    with tempfile.TemporaryDirectory() as folder:
        paper, desk = Path(folder, "page.pdf"), Path(folder, "desk.html")
        _run(
            *CHROMIUM, "--no-pdf-header-footer", f"--print-to-pdf={paper}", page.resolve().as_uri()
        )  # fmt: skip
        _run("pdftoppm", "-scale-to-x", "510", "-scale-to-y", "722", "-png", str(paper),
             str(paper.with_suffix("")))  # fmt: skip
        sheets = sorted(Path(folder).glob("*.png"))[:PAGES_AT_MOST]
        images = "".join(f'<img src="{sheet.name}" style="margin-right:5px">' for sheet in sheets)
        desk.write_text(f'<body style="margin:0;background:#999;white-space:nowrap">{images}')
        return _shot(desk, _picture(page, "print"), (515 * len(sheets) - 5, 722), 1)


def _shot(page: Path, picture: Path, size: tuple[int, int], scale: int) -> Path:
    width, height = size
    _run(
        *CHROMIUM, f"--window-size={width},{height}", f"--force-device-scale-factor={scale}",
        f"--screenshot={picture}", page.resolve().as_uri(),
    )  # fmt: skip
    _run("pngquant", "--force", "--output", str(picture), "64", str(picture))
    return picture
