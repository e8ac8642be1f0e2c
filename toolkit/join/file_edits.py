"""The site's folder before and after: which files a join adds, changes and takes away. Pure."""

from __future__ import annotations

import difflib
import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolkit.join import include_files, include_line
from toolkit.join.site import GRES_CONF, without

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolkit.config import ClusterConfig
    from toolkit.join.site import SiteFacts
    from toolkit.render.prices import Prices


@dataclass(frozen=True, slots=True)
class FileEdit:
    """A file with its text before and after; None stands for no file."""

    path: str
    before: str | None
    after: str | None
    ours: bool  # whether the whole file is ours; else one line of it is
    host: str = ""  # the controller

    @property
    def changes(self) -> bool:
        """Return whether the text differs."""
        return self.before != self.after

    def diff(self) -> str:
        """Return the lines that change, as diff -u shows them."""
        old, new = ((text or "").splitlines() for text in (self.before, self.after))
        old_name = "/dev/null" if self.before is None else self.path
        new_name = "/dev/null" if self.after is None else self.path
        return "\n".join(difflib.unified_diff(old, new, old_name, new_name, n=1, lineterm=""))


def own_paths(config: ClusterConfig, site: SiteFacts) -> tuple[str, str]:
    """Return the paths of our part of slurm.conf, and of gres.conf."""
    names = include_files.file_name(config), include_files.gres_file_name(config)
    return posixpath.join(site.folder, names[0]), posixpath.join(site.folder, names[1])


def edits_of_join(
    config: ClusterConfig, site: SiteFacts, prices: Prices, own: Mapping[str, str | None]
) -> tuple[FileEdit, ...]:
    """Return the edits that add our nodes, the lines last.

    `site` is as it was read; `own` has the texts of our files there, by path.
    """
    name, gres_name = include_files.file_name(config), include_files.gres_file_name(config)
    bare = without_ours(config, site)
    gres = include_files.gres_text(config, prices)
    path, gres_path = own_paths(config, site)
    text = include_files.slurm_text(config, bare, prices)
    edits = [FileEdit(path, own.get(path), text, ours=True)]
    if gres or own.get(gres_path) is not None:
        edits.append(FileEdit(gres_path, own.get(gres_path), gres or None, ours=True))
    by_hand = config.joined_site.include == "by-hand"
    lines: list[tuple[str, str | None, str]] = [(site.slurm_conf, site.text, name)]
    if gres:
        lines.append((posixpath.join(site.folder, GRES_CONF), site.gres_conf, gres_name))
    for file, before, included in lines:
        after = before if by_hand else include_line.added(before, config.cluster, included)
        edits.append(FileEdit(file, before, after, ours=False))
    return tuple(edits)


def edits_of_removal(
    config: ClusterConfig, site: SiteFacts, own: Mapping[str, str | None]
) -> tuple[FileEdit, ...]:
    """Return the edits that take our nodes out, the lines first.

    A file stays empty for as long as a line by hand includes it.
    """
    edits: list[FileEdit] = []
    own_edits: list[FileEdit] = []
    texts = ((site.slurm_conf, site.text), (posixpath.join(site.folder, GRES_CONF), site.gres_conf))
    for (path, text), file in zip(texts, own_paths(config, site), strict=True):
        name = posixpath.basename(file)
        after = None if text is None else include_line.removed(text, config.cluster, name)
        edits.append(FileEdit(path, text, after, ours=False))
        still_included = after is not None and include_line.has_line(after, name)
        empty = f"# Nothing: delete the line that includes {name}.\n" if still_included else None
        own_edits.append(FileEdit(file, own.get(file), empty, ours=True))
    return (*edits, *own_edits)


def lines_by_hand(config: ClusterConfig, site: SiteFacts, edits: tuple[FileEdit, ...]) -> list[str]:
    """Return the lines that a person must add first."""
    names = {
        site.slurm_conf: include_files.file_name(config),
        posixpath.join(site.folder, GRES_CONF): include_files.gres_file_name(config),
    }
    return [
        f"at the end of {edit.path}: Include {names[edit.path]}"
        for edit in edits
        if not edit.ours and not include_line.has_line(edit.after or "", names[edit.path])
    ]


def without_ours(config: ClusterConfig, site: SiteFacts) -> SiteFacts:
    """Return the site as it is without this join."""
    return without(site, include_files.file_name(config))
