"""A project's files as a short text for the system prompt, found with bounded work.

The tree shows each level completely before the next deeper one. If a level does not fit, each of its folders
shows the same number of entries and the number of the rest. The tree leaves out the entries that git ignores,
and folders that contain only such entries. The patterns come from `.git/info/exclude` and every `.gitignore`
from the repository's root downwards. The user's global excludes file and git's index are not read: a tracked
file that matches a pattern is left out too. Other names that begin with a dot are shown. Folders come before
files, both sorted by code point. Links are shown and not followed.

A file name is foreign text. A name that looks like anything but a name, or that has invisible characters, is
quoted and escaped, so that it cannot form a line of its own.
"""

from __future__ import annotations

from ullage.project.folders import ALWAYS_LEFT_OUT, TreeOptions
from ullage.project.names import show
from ullage.project.tree_text import Tree, tree

__all__ = ["ALWAYS_LEFT_OUT", "Tree", "TreeOptions", "show", "tree"]
