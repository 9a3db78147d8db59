"""``palaver.testing.fields`` gives every field of every class, each set alone."""

from __future__ import annotations

import pytest
from msgspec import structs

from palaver.core.messages import MESSAGE_CLASSES
from palaver.testing.fields import part_classes, single_fields

FIELDS = list(single_fields())


@pytest.mark.finding("F-91")
def test_every_field_of_every_class_is_given() -> None:
    given = {".".join(field.place.split(".")[:2]) for field in FIELDS}
    classes = (*MESSAGE_CLASSES, *part_classes())
    assert given == {f"{cls.__name__}.{each.name}" for cls in classes for each in structs.fields(cls)} - {
        f"{cls.__name__}.content" for cls in MESSAGE_CLASSES
    }


def test_the_two_messages_differ_in_the_field_alone() -> None:
    for field in FIELDS:
        assert field.base != field.message, field.place
        one, other = (
            (field.base, field.message)
            if field.part is None
            else (field.base.content[field.part], field.message.content[field.part])
        )
        name = field.place.split(".")[1]
        assert structs.replace(one, **{name: getattr(other, name)}) == other
