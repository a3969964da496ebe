"""Feeds: fixed values, what the record says, what closing does."""

from __future__ import annotations

import dataclasses
from typing import List

import numpy as np

from ipubench.fixtures.data.images.feed import ImageFeed, ImageFolder


def test_generated_images_are_fixed() -> None:
    feed = ImageFeed("generated", batch_size=2, image_size=8)
    images = feed.generated(batches=3)
    assert images.shape == (6, 3, 8, 8)
    assert images.dtype == np.uint8
    assert np.array_equal(images, feed.generated(batches=3))
    assert images.max() <= 254


def test_each_corrupt_file_is_kept_once() -> None:
    folder = ImageFolder("/data", ("/data/a.jpg", "/data/b.jpg"))
    feed = ImageFeed("real", batch_size=1, folder=folder)
    feed.note_corrupt(["/data/b.jpg"])
    feed.note_corrupt(["/data/b.jpg", "/data/a.jpg"])
    facts = feed.describe()
    assert facts["corrupt"] == ["/data/b.jpg", "/data/a.jpg"]
    assert "task_images" not in facts
    assert dataclasses.replace(feed, task_images=4).describe() == {**facts, "task_images": 4}


def test_close_closes_each_thing_once_and_the_last_first() -> None:
    closed: List[str] = []
    feed = ImageFeed("real", batch_size=1)
    feed.on_close(lambda: closed.append("first"))
    feed.on_close(lambda: closed.append("second"))
    feed.close()
    feed.close()
    assert closed == ["second", "first"]
