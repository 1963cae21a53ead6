"""The constants of recall, chosen on all talks but one and judged on that one.

    python -m bench constants

Each constant is tried at half and at twice its value. The others choose the best value, and the talk that is
left out judges it: a gain near zero says that the default was not fitted to single talks. The figure is the
share of questions for which an evidence turn is still there at a tenth of the length.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any, NamedTuple

import ullage
from bench.shared import data, scorer
from ullage.fitting import recall, relevance

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

FRACTION = 0.1
EVERY = 3
"""Every third question is asked."""


class Constant(NamedTuple):
    """A constant of a module."""

    module: ModuleType
    name: str


CONSTANTS = (
    Constant(recall, "COMMON"),
    Constant(recall, "RELATIVE"),
    Constant(recall, "HINT"),
    Constant(relevance, "BESIDE"),
    Constant(relevance, "LENGTH"),
    Constant(relevance, "SATURATION"),
)
FACTORS = (0.5, 1.0, 2.0)

Talk = tuple[str, list[dict[str, Any]], list[dict[str, Any]]]
"""The name of a talk, its turns and its questions, as the scorer reads them."""


def _talks() -> tuple[list[Talk], Any]:
    spec = importlib.util.spec_from_file_location("memory_scorer", scorer("memory.py"))
    assert spec is not None  # noqa: S101 - the scorer is a Python file
    assert spec.loader is not None  # noqa: S101 - the same
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return list(module.load(str(data("locomo.json.gz")))), module


def kept(talk: Talk, cost: Any) -> float:
    """The share of a talk's questions for which an evidence turn is still there."""
    _, turns, asked = talk
    window = ullage.Window(model="gpt-4o", limit=int(FRACTION * cost(turns)))
    for turn in turns:
        window.append(turn)
    found = [_is_kept(window, question) for question in asked[::EVERY]]
    return sum(found) / len(found)


def _is_kept(window: ullage.Window, question: dict[str, Any]) -> bool:
    window.append({"role": "user", "content": question["question"]})
    text = "\n".join(str(message["content"]) for message in window.fitted().messages)
    window.retract()
    return any(turn in text for turn in question["turns"])


def _judged(talks: list[Talk], cost: Any, constant: Constant) -> Iterator[tuple[float, list[float]]]:
    """Yields each value of a constant with the figures of the talks."""
    default = getattr(constant.module, constant.name)
    for factor in FACTORS:
        setattr(constant.module, constant.name, default * factor)
        yield default * factor, [kept(talk, cost) for talk in talks]
    setattr(constant.module, constant.name, default)


def main() -> dict[str, Any]:
    """Prints for each constant the value that four talks choose, and its gain on the fifth."""
    talks, module = _talks()
    print(f"{'constant':<12}{'default':>8}   chosen on the others → gain on the talk left out, in points")
    figures: dict[str, Any] = {}
    for constant in CONSTANTS:
        default = getattr(constant.module, constant.name)
        rows = list(_judged(talks, module.cost, constant))
        own = next(scores for value, scores in rows if value == default)
        cells, gains = [], []
        for out in range(len(talks)):
            others = [number for number in range(len(talks)) if number != out]
            # The default wins a draw.
            value, scores = max(
                rows, key=lambda row, others=others: (sum(row[1][n] for n in others), row[0] == default)
            )
            gains.append(100 * (scores[out] - own[out]))
            cells.append(f"{value:g} {gains[-1]:+.1f}")
        print(f"{constant.name:<12}{default:>8}   {'   '.join(cells)}   mean {sum(gains) / len(gains):+.1f}")
        figures[constant.name] = round(sum(gains) / len(gains), 2)
    return figures


if __name__ == "__main__":
    main()
