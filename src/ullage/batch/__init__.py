"""Counts or fits files of requests, on all cores or on a Ray cluster: results in order, runs that resume."""
