"""The gateway: counts, fits and bills the requests of any client on their way to a model."""
