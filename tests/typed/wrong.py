"""Mistakes that a type checker must find, each in a line that ends with `wrong`."""

from __future__ import annotations

import ullage

ullage.FitPolicy(trim_strategy=("evict", "cutt"))  # wrong
ullage.fit_request({}, "openai.chats")  # wrong
ullage.Target(model="gpt-4o", api="anthropic")  # wrong
ullage.fit([{"role": "user", "content": "x"}], limit="1000")  # wrong
number: int = ullage.fit([{"role": "user", "content": "x"}], limit=9).messages  # wrong
