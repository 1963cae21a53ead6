"""The policy of fitting: every option with its default, and the passes that a trim runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from ullage.errors import ConfigurationError
from ullage.intake import check_share, check_text, kind_of, shown, whole_number

PassName: TypeAlias = Literal["cap", "age", "placeholder", "evict", "recent", "cut"]
"""The name of a built-in pass."""
STRATEGY: tuple[PassName, ...] = get_args(PassName)
"""The built-in passes in their order; `passes.PASSES` says what each does."""
ChangeKind: TypeAlias = Literal["cap", "age", "errors", "placeholder", "cut", "evict"]
"""A change that a built-in pass makes to a message. The kind of any other change is the name of its pass."""
Level: TypeAlias = Literal["low_water", "limit"]
"""A size of the request in tokens: the low-water mark, or the limit itself."""
Propose: TypeAlias = Callable[[Any], Iterable[Any]]
"""A function from a `Draft` to `Edit`s. A draft contains the policy, so its type cannot be imported here."""

NAMED = re.compile(r"[\w-]+", re.ASCII)
"""The names that a caller's own pass may have."""
TAKEN = frozenset({*STRATEGY, *get_args(ChangeKind), "digest"})
"""The names that it may not have, because changes of that kind mean something else."""

ERROR_MARKS = ("error", "exception", "failed", "fatal", "cannot", "unable to")
"""Words in lower case. A tool output that contains one of them is an error."""


class Pass(NamedTuple):
    """A way to make a request smaller: built in, or a caller's own."""

    name: str
    propose: Propose
    """Returns edits, the most expendable first. They are made one by one until the request is at `until`."""
    above: Level = "low_water"
    """The pass runs if the request is larger than this."""
    until: Level = "low_water"
    """The pass stops when the request is no larger than this."""
    turns: bool = False
    """True if the pass lowers the number of messages, and so runs for `max_turns` too."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FitPolicy:
    """The rules of a trim: what may be removed, in which order, and how far."""

    max_age: int = 5
    """A tool output is old if more than this many steps came after it."""
    max_tokens_per_output: int = 2_000
    """Old tool outputs are cut to this many tokens."""
    preserve_errors: bool = True
    """Keep errors until their exchange is evicted; a long one is cut to its error lines."""
    error_marks: tuple[str, ...] = ERROR_MARKS
    """Words in lower case. A tool output that contains one of them is an error."""
    preserve_small_outputs: bool = True
    """Leave small outputs alone: a placeholder would save next to nothing."""
    small_output_threshold: int = 100
    """An output of fewer tokens is small."""
    preserve_recent_turns: int = 2
    """Number of newest exchanges that are trimmed only if nothing else is left to trim."""
    keep_first_user: bool = True
    """Keep the first user message, the task: in place, or at the head of the digest."""
    cut_user: bool = False
    """True for agents that give the output of commands as user messages, such as SWE-agent. A user message
    behind an assistant message is then an output of that step: it can be shortened, and the newest one is cut
    in the middle if it is too long. The first user message is the task, and is never shortened so."""
    digest_share: float = 0.3
    """Largest share of the room for the digest; with 0 there is no digest, only the task."""
    recall_share: float = 0.3
    """Share of the room that is kept free for removed passages that bear on the newest question; 0 recalls
    nothing. It is kept free once something was removed; the more of a conversation is tool steps, the less.
    Recalled passages also use the room above the low-water mark."""
    low_water: float = 0.63
    """Share of the room that a trim leaves filled. A lower share keeps the prefix unchanged for longer.
    The room is the limit less system prompt, tools and framing; 1.0 fills the window every time."""
    max_turns: int | None = None
    """The most messages, without system messages; None for no such limit."""
    pins: frozenset[int] = frozenset()
    """Indices of messages that stay as they are."""
    priorities: Mapping[int, int] = field(default_factory=dict)
    """Message index → priority; the default is 0. Exchanges of a lower priority are evicted first."""
    placeholder: str = "[content truncated - {age} steps ago, {tokens} tokens]"
    """Text that replaces a removed tool output. `{tool}` is the name of the tool, and
    `{argument}` the argument that tells its calls apart, such as `path=src/main.py`."""
    recall: bool = False
    """Write the handle into placeholders and cuts, for a store that can return the content."""
    trim_strategy: tuple[PassName | Pass | Propose, ...] = STRATEGY
    """The passes, in order: names of built-in passes, and passes of your own. A function from a `Draft` to
    `Edit`s is a pass under its own name; a `Pass` also says when it runs."""

    def __post_init__(self) -> None:
        for name, least in _NUMBERS:
            if name != "max_turns" or self.max_turns is not None:
                whole_number(getattr(self, name), name, least)
        for name in ("preserve_errors", "preserve_small_outputs", "keep_first_user", "cut_user", "recall"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigurationError(f"{name} must be True or False, not {shown(getattr(self, name))}")
        check_share(self.digest_share, "digest_share", most=0.9)
        check_share(self.recall_share, "recall_share", most=0.9)
        if check_share(self.low_water, "low_water") == 0:
            raise ConfigurationError("low_water must be more than 0, because a trim has to leave something")
        _check_collections(self)
        _check_strategy(self.trim_strategy)
        _check_placeholder(self.placeholder)

    def __repr__(self) -> str:
        """Only the options that differ from the default."""
        others = [name for name in self.__slots__ if getattr(self, name) != getattr(DEFAULT, name)]
        return f"FitPolicy({', '.join(f'{name}={getattr(self, name)!r}' for name in others)})"


def check_fit_policy(policy: object) -> FitPolicy:
    """Returns this policy, or the default for None; raises ConfigurationError for anything else."""
    if policy is None:
        return DEFAULT
    if isinstance(policy, FitPolicy):
        return policy
    raise ConfigurationError(f"policy must be a FitPolicy, not {kind_of(policy)}")


_NUMBERS: tuple[tuple[str, int], ...] = (
    ("max_age", 0),
    ("max_tokens_per_output", 1),
    ("small_output_threshold", 0),
    ("preserve_recent_turns", 0),
    ("max_turns", 1),
)
"""Options that are whole numbers, each with its smallest value."""


def _check_collections(policy: FitPolicy) -> None:
    marks = policy.error_marks
    if not isinstance(marks, list | tuple) or not all(isinstance(each, str) for each in marks):
        raise ConfigurationError(f"error_marks must be a tuple of strings, not {kind_of(marks)}")
    if not isinstance(policy.pins, Set) or not isinstance(policy.priorities, Mapping):
        raise ConfigurationError(
            "pins must be a set of message indices, and priorities a mapping from indices"
        )
    for index in policy.pins | policy.priorities.keys():
        whole_number(index, "an index of pins or priorities")
    for priority in policy.priorities.values():
        if isinstance(priority, bool) or not isinstance(priority, int):
            raise ConfigurationError(f"a priority must be a whole number, not {shown(priority)}")


def own_pass(given: Pass | Propose) -> Pass:
    """Returns a caller's own pass; a function becomes a pass with its name and the default levels."""
    return given if isinstance(given, Pass) else Pass(getattr(given, "__name__", ""), given)


def _check_strategy(strategy: object) -> None:
    if not isinstance(strategy, list | tuple) or isinstance(strategy, Pass):
        raise ConfigurationError(f"trim_strategy must be a tuple of passes, not {kind_of(strategy)}")
    names: set[str] = set()
    for each in strategy:
        if isinstance(each, str) and each not in STRATEGY:
            raise ConfigurationError(
                f"trim_strategy: no pass is called {each!r}; the passes are {', '.join(STRATEGY)}. "
                "A pass of your own is a function or a Pass"
            )
        if not isinstance(each, str):
            _check_own(own_pass(each), names)


def _check_own(given: Pass, names: set[str]) -> None:
    """Raises ConfigurationError if a caller's own pass cannot run, or has a name that is in use."""
    name = given.name
    if not callable(given.propose):
        raise ConfigurationError(
            f"a pass must be a name, a function or a Pass, not {kind_of(given.propose)}; "
            f"the names are {', '.join(STRATEGY)}"
        )
    if not isinstance(name, str) or not NAMED.fullmatch(name):
        raise ConfigurationError(
            f"a pass cannot be called {name!r}; use a Pass whose name has only letters, digits, _ and -"
        )
    if name in TAKEN or name in names:
        raise ConfigurationError(f"there is already a pass or a change called {name!r}; use another name")
    for level in (given.above, given.until):
        if level not in get_args(Level):
            raise ConfigurationError(
                f"above and until of a pass must be {' or '.join(get_args(Level))}, not {shown(level)}"
            )
    names.add(name)


def _check_placeholder(template: str) -> None:
    try:
        check_text(template, "placeholder").format(age=1, tokens=1, tool="", argument="")
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        if isinstance(error, ConfigurationError):
            raise
        raise ConfigurationError(
            f"placeholder {template!r} is not a valid template; it may have {{age}}, {{tokens}}, {{tool}} "
            f"and {{argument}}: {error}"
        ) from error


DEFAULT = FitPolicy()
"""The policy if none is given."""
