"""The page of the gateway: what fills each window, what was removed and why, costs and caps, in a browser."""
