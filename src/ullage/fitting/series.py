"""Sequences and maps that never change and grow cheaply: a longer one shares its items with a shorter one.

So the fold's state can be a value. A state keeps its history, its log of changes and the handles
that the model was shown; the next state keeps the same ones and a little more, without a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Generic, TypeAlias, TypeVar, overload

T = TypeVar("T")

Done: TypeAlias = tuple[str, int, int, int, str]
"""One change by a pass: its kind, the message's place, its tokens before and after, and the handle that the
model was shown, or "". A long history has one for each message. Plain tuples of plain values cost the garbage
collector nothing."""


class Series(Sequence[T], Generic[T]):
    """Items in order. Series that grew out of one another keep their items in one list.

    Each series knows how many items of the list are its own, and the list only grows. To add to the longest
    series costs one item. To add something else to a shorter one copies its items first. Two threads must not
    add to the same series at once.
    """

    __slots__ = ("_items", "_length")

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._items = list(items)
        self._length = len(self._items)

    def with_item(self, item: T) -> Series[T]:
        """Returns a series with one more item at its end."""
        items, length = self._items, self._length
        if len(items) == length:
            items.append(item)
        elif items[length] is not item:  # another series went on in another way
            items = items[:length]
            items.append(item)
        return _share(items, length + 1)

    def with_items(self, more: Sequence[T]) -> Series[T]:
        """Returns a series with more items at its end."""
        if not more:
            return self
        items = self._items if len(self._items) == self._length else self._items[: self._length]
        items.extend(more)
        return _share(items, len(items))

    def without_last(self) -> Series[T]:
        """Returns a series without the last item."""
        return _share(self._items, max(0, self._length - 1))

    def grew_from(self, other: Series[T]) -> bool:
        """Returns True if this series is the other one, perhaps with more items at its end."""
        return self._items is other._items and self._length >= other._length

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Series):
            return NotImplemented
        is_shared = self._items is other._items and self._length == other._length
        return is_shared or self[:] == other[:]

    __hash__ = None  # type: ignore[assignment] # as a list: its items may have no hash

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        return islice(self._items, self._length)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        """Returns one item, or a list for a slice."""
        length = self._length
        if isinstance(index, slice):
            start, stop, step = index.indices(length)
            return self._items[start:stop] if step == 1 else self._items[:length][index]
        if not -length <= index < length:
            raise IndexError(f"no item {index} in a series of {length}")
        return self._items[index % length]

    def __repr__(self) -> str:
        return f"<Series of {self._length}>"


def _share(items: list[T], length: int) -> Series[T]:
    """Returns the series of the first items of a list, without copying the list."""
    series: Series[T] = Series.__new__(Series)
    series._items = items  # noqa: SLF001 - made here, so that its list is not copied
    series._length = length  # noqa: SLF001 - the same
    return series


class SavedLog:
    """The saved beginning of a log, read on demand."""

    def __init__(self, length: int, read: Callable[[], Sequence[Sequence[Any]]]) -> None:
        self.length = length
        self._read = read
        self._done: list[Done] | None = None

    def read_entries(self) -> list[Done]:
        """Returns the entries; raises ValueError if some cannot be read."""
        if self._done is None:
            read: list[Any] = [tuple(row) for row in self._read()[: self.length]]
            if len(read) != self.length:
                raise ValueError(f"a log of {len(read)} entries, not {self.length}")
            self._done = read
        return self._done


class ChangeLog(Sequence[Done]):
    """All changes by passes, in order. A log never changes: `with_entries` returns a longer one."""

    __slots__ = ("_length", "_new", "saved")

    def __init__(self, saved: SavedLog | None = None, new: Series[Done] | None = None) -> None:
        self.saved = saved
        """The saved beginning; None if nothing was saved."""
        self._new: Series[Done] = Series() if new is None else new
        self._length = len(self._new) + (0 if saved is None else saved.length)

    def with_entries(self, done: Sequence[Done]) -> ChangeLog:
        """Returns a log with more entries at its end."""
        return ChangeLog(self.saved, self._new.with_items(done))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ChangeLog):
            return NotImplemented
        if len(self) != len(other):
            return False
        return self._new == other._new if self.saved is other.saved else list(self) == list(other)

    __hash__ = None  # type: ignore[assignment] # as a list

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Done: ...
    @overload
    def __getitem__(self, index: slice) -> list[Done]: ...
    def __getitem__(self, index: int | slice) -> Done | list[Done]:
        """Returns one entry, or a list for a slice. Saved entries are read only if they are asked for."""
        if self.saved is None:
            return self._new[index]
        before = self.saved.length
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if start >= before and step == 1:
                return self._new[start - before : max(start, stop) - before]
        elif before <= index:
            return self._new[index - before]
        elif -len(self._new) <= index < 0:
            return self._new[index]
        return [*self.saved.read_entries(), *self._new][index]

    def __iter__(self) -> Iterator[Done]:
        if self.saved is not None:
            yield from self.saved.read_entries()
        yield from self._new


class Handles(Mapping[str, bytes]):
    """The hash of the whole text behind each handle that the model was shown, so that no two share one.

    Maps that grew out of one another share one dict, as a `Series` shares its list.
    """

    __slots__ = ("_earlier", "_known", "_length")

    def __init__(self, earlier: Mapping[str, bytes] | None = None) -> None:
        self._earlier: Mapping[str, bytes] = {} if earlier is None else earlier
        self._known: dict[str, tuple[int, bytes]] = {}
        self._length = 0

    def with_handles(self, more: Mapping[str, bytes]) -> Handles:
        """Returns a map with more handles."""
        new = {handle: full for handle, full in more.items() if handle not in self}
        if not new:
            return self
        known = self._known
        if len(known) != self._length:  # another map went on in another way
            known = {handle: entry for handle, entry in known.items() if entry[0] < self._length}
        for handle, full in new.items():
            known[handle] = (len(known), full)
        longer = Handles(self._earlier)
        longer._known, longer._length = known, len(known)
        return longer

    def __getitem__(self, handle: str) -> bytes:
        number, full = self._known.get(handle, (self._length, b""))
        return full if number < self._length else self._earlier[handle]

    def __iter__(self) -> Iterator[str]:
        yield from self._earlier
        yield from (handle for handle, entry in self._known.items() if entry[0] < self._length)

    def __len__(self) -> int:
        return len(self._earlier) + self._length
