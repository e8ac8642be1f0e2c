"""Images on disk: each a layer over its parent, down to a base tree.

    <images>/<ami-id>/meta.json   id, name, parent, created, attributes
    <images>/<ami-id>/layer/      the files; deletions are overlay whiteouts

An image appears whole or not at all: it is made beside its place and renamed into it. One that
is missing is taken from the library of all local clouds, if it is there. A directory on another
filesystem than the library goes without it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from toolkit.local.machines.driver import check_image_id
from toolkit.local.machines.errors import ImageMissing, MachineError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

    from toolkit.local.machines.shared_images import Library


log = logging.getLogger(__name__)

_PARTIAL = ".partial-"
_DROPPED = ".dropped"


@dataclass(frozen=True, slots=True)
class Image:
    """An image on disk."""

    id: str
    name: str
    parent: str | None  # None for a base
    created: float
    hidden: bool = False  # deregistered, kept because something still stands on it
    attributes: Mapping[str, str] = field(default_factory=dict)  # belong to the registry of images


class ImageStore:
    """The images of one state directory."""

    def __init__(self, root: Path, library: Library | None = None) -> None:
        """Keep images below `root`, which exists."""
        self._root = root
        self._library = library
        self._library_checked = library is None
        self._lock = threading.RLock()

    def get(self, image_id: str) -> Image:
        """Return the image; ImageMissing if there is none."""
        directory = self._directory(image_id)
        if not directory.exists():
            with self._lock:
                if image_id in self._library_ids():
                    self._library.link_to(image_id, directory)  # type: ignore[union-attr]  # it offers one
        image = _read_meta(directory)
        if image is None:
            raise ImageMissing(f"{image_id} is not in {self._root}")
        return image

    def list(self) -> tuple[Image, ...]:
        """Return every image that is not hidden, oldest first.

        The library's images are among them.
        """
        own_images = self._all()
        library_images = [
            _read_meta(self._library.directory(image_id))  # type: ignore[union-attr]  # as above
            for image_id in self._library_ids()
        ]
        images = [
            *own_images,
            *(image for image in library_images if image and image.id not in _ids(own_images)),
        ]
        return _sorted(image for image in images if not image.hidden)

    def layers(self, image_id: str) -> tuple[Path, ...]:
        """Return the directories to stack, newest first, base last."""
        return tuple(self._directory(image.id) / "layer" for image in self._chain(image_id))

    def bases(self, image_id: str) -> tuple[str, ...]:
        """Return the ids the image stands on, itself first."""
        return tuple(image.id for image in self._chain(image_id))

    def adopt(self, image: Image, tree: Path) -> None:
        """Move a finished tree (same filesystem) into the store.

        An existing image stays.
        """
        with self._lock:
            target = self._directory(image.id)
            if target.exists():
                shutil.rmtree(tree, ignore_errors=True)
                return
            partial = self._root / f"{_PARTIAL}{image.id}"
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(mode=0o700)
            tree.rename(partial / "layer")
            _write_meta(partial, image)
            partial.rename(target)

    def adopt_disk(self, image: Image, tree: Path) -> None:
        """Move a machine's upper directory (same filesystem) into an image.

        The machine's changes are then the image's, so the machine continues on top of
        it. Moving takes no time; copying takes as long as the machine has files.
        """
        scratch = self._root / f"{_PARTIAL}{check_image_id(image.id)}-taken"
        shutil.rmtree(scratch, ignore_errors=True)
        tree.rename(scratch)
        _forget_identity(scratch)
        self.adopt(image, scratch)

    def annotate(self, image_id: str, *, name: str, attributes: Mapping[str, str]) -> None:
        """Write the API's facts of the image; they survive a restart."""
        with self._lock:
            image = replace(self.get(image_id), name=name, attributes=dict(attributes))
            _write_meta(self._directory(image_id), image)

    def share(self, image_id: str) -> None:
        """Put the image and those it stands on into the library."""
        library = self._usable_library()
        if library is not None:
            for base_id in reversed(self.bases(image_id)):
                library.add(self._directory(base_id))

    def remove(self, image_id: str, *, in_use: Collection[str] = ()) -> None:
        """Deregister an image.

        Its files are deleted once no image and no machine (`in_use`) stands on them.
        """
        with self._lock:
            with contextlib.suppress(ImageMissing):
                _write_meta(self._directory(image_id), replace(self.get(image_id), hidden=True))
            if image_id in self._library_ids():  # other clouds keep it
                (self._root / f"{check_image_id(image_id)}{_DROPPED}").touch()
            self.collect(in_use=in_use)

    def collect(self, *, in_use: Collection[str] = ()) -> None:
        """Delete hidden images that nothing stands on, and half-made ones."""
        with self._lock:
            needed_ids = {base for used_id in in_use for base in self.bases(used_id)}
            own_images = self._all()  # what the library alone has is of no concern here
            for image in own_images:
                if not image.hidden:
                    needed_ids.update(self.bases(image.id))
            for image in own_images:
                if image.id not in needed_ids:
                    shutil.rmtree(self._directory(image.id))

    def sweep(self) -> None:
        """Remove what an interrupted build left; nobody may be building."""
        for partial in self._root.glob(f"{_PARTIAL}*"):
            shutil.rmtree(partial, ignore_errors=True)

    def _all(self) -> tuple[Image, ...]:
        images = [_read_meta(meta.parent) for meta in self._root.glob("ami-*/meta.json")]
        return _sorted(image for image in images if image is not None)

    def _library_ids(self) -> tuple[str, ...]:
        """Return what the library has and nobody has removed here."""
        library = self._usable_library()
        image_ids = () if library is None else library.ids()
        return tuple(
            image_id
            for image_id in image_ids
            if not (self._root / f"{image_id}{_DROPPED}").exists()
        )

    def _usable_library(self) -> Library | None:
        """Return the library, unless it is on another filesystem than this directory."""
        with self._lock:
            if not self._library_checked and self._library is not None:
                if not self._library.can_link_into(self._root):
                    log.warning("%s is not shared: no link from %s", self._root, self._library.root)
                    self._library = None
                self._library_checked = True
            return self._library

    def _chain(self, image_id: str) -> tuple[Image, ...]:
        chain: list[Image] = []
        next_id: str | None = image_id
        while next_id is not None:
            if any(image.id == next_id for image in chain):
                raise MachineError(f"{image_id} stands on itself: remove {self._root / image_id}")
            chain.append(self.get(next_id))
            next_id = chain[-1].parent
        return tuple(chain)

    def _directory(self, image_id: str) -> Path:
        return self._root / check_image_id(image_id)


def _ids(images: Iterable[Image]) -> frozenset[str]:
    return frozenset(image.id for image in images)


def _sorted(images: Iterable[Image]) -> tuple[Image, ...]:
    return tuple(sorted(images, key=lambda image: (image.created, image.id)))


def _read_meta(directory: Path) -> Image | None:
    try:
        data: dict[str, Any] = json.loads((directory / "meta.json").read_bytes())
    except FileNotFoundError:
        return None
    return Image(**data)


def _write_meta(directory: Path, image: Image) -> None:
    data = {
        "id": image.id,
        "name": image.name,
        "parent": image.parent,
        "created": image.created,
        "hidden": image.hidden,
        "attributes": dict(image.attributes),
    }
    scratch = directory / "meta.json.new"
    scratch.write_text(json.dumps(data, indent=2) + "\n")
    scratch.rename(directory / "meta.json")


def _forget_identity(tree: Path) -> None:
    """Drop a machine's identity, and files that nobody wants to copy."""
    for name in ("etc/machine-id", "var/lib/dbus/machine-id"):
        machine_id = _inside(tree, name)
        if machine_id is not None and machine_id.is_file():
            machine_id.write_text("")
    for name in ("tmp", "var/tmp"):
        directory = _inside(tree, name)
        if directory is not None and directory.is_dir():
            for entry in directory.iterdir():
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry)
                else:
                    entry.unlink()


def _inside(tree: Path, name: str) -> Path | None:
    """Return the path unless a link on it could lead out.

    The machine's root wrote the tree.
    """
    path = tree
    for part in name.split("/"):
        path /= part
        if path.is_symlink():
            return None
    return path
