"""A project's files as a short text for the system prompt, found with bounded work.

Shallow levels come first: every level is shown before anything deeper, and where a level does not fit, each
of its folders shows the same number of entries and tells how many more it has. What git ignores is left out,
by every `.gitignore` from the repository's root downwards and `.git/info/exclude` (a user's own excludes file
and the index are not read: a tracked file that a pattern matches is left out too), and so is a folder with
nothing else in it. Other names that begin with a dot are shown. Folders come before files, both by code
point; links are named and not followed.

A file name is somebody else's text. One that could be taken for anything but a name, or that has characters
which do not show, is quoted and escaped, so that it never makes a line of its own.
"""

from __future__ import annotations

from ullage.project.drawing import Tree, tree
from ullage.project.folders import ALWAYS_LEFT_OUT, TreeOptions
from ullage.project.names import show

__all__ = ["ALWAYS_LEFT_OUT", "Tree", "TreeOptions", "show", "tree"]
