"""The page of the gateway in a browser: the use of each window, changes and their reasons, costs, caps."""
