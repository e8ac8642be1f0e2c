"""Keeps images: on disk with the machines' driver, or in memory without one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from toolkit.local.aws.images import BASE_NAME, BASE_OWNER, Image

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from toolkit.local.machines.driver import Driver
    from toolkit.local.machines.image_store import ImageStore

MEMORY_BASE = "ami-0deb1a130ca100000"


class MemoryImageRegistry:
    """Images without content, for the API alone; begins with a base image."""

    def __init__(self) -> None:
        """Begin with the base image."""
        base = Image(id=MEMORY_BASE, name=BASE_NAME, owner=BASE_OWNER, region="*")
        self._images = {base.id: base}

    def images(self) -> tuple[Image, ...]:
        """Return every image."""
        return tuple(self._images.values())

    def add(self, image: Image, instance_id: str) -> None:
        """Note the image."""
        del instance_id
        self._images[image.id] = image

    def remove(self, image_id: str) -> None:
        """Forget the image."""
        self._images.pop(image_id, None)


class DiskImageRegistry:
    """Images of the machines' image store; they outlive the local cloud."""

    def __init__(
        self, store: ImageStore, driver: Driver, in_use: Callable[[], Collection[str]]
    ) -> None:
        """`in_use` returns the images that machines run from at the moment."""
        self._store = store
        self._driver = driver
        self._in_use = in_use

    def images(self) -> tuple[Image, ...]:
        """Return every complete image; one without our note is a base."""
        return tuple(
            Image(
                id=image.id,
                name=image.name,
                owner=image.attributes.get("owner", BASE_OWNER),
                region=image.attributes.get("region", "*"),
                description=image.attributes.get("description", ""),
                tags=json.loads(image.attributes.get("tags", "{}")),
                created=image.created,
            )
            for image in self._store.list()
            if image.parent is None or "owner" in image.attributes
        )

    def add(self, image: Image, instance_id: str) -> None:
        """Copy a stopped machine's disk into the store."""
        self._driver.snapshot(instance_id, image.id)
        attributes = {
            "owner": image.owner,
            "region": image.region,
            "description": image.description,
            "tags": json.dumps(dict(image.tags)),
        }
        self._store.annotate(image.id, name=image.name, attributes=attributes)
        self._store.share(image.id)

    def remove(self, image_id: str) -> None:
        """Remove the image; its files stay while something stands on them."""
        self._store.remove(image_id, in_use=self._in_use())
