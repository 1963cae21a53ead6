"""Glue for other programs: keeps the requests of their agents and clients within the window.

Each module is named after its host and imports it, so `import ullage` needs none of them. The glue acts on
each call: it never changes what the host has stored.
"""
