"""What is measured, and how: `python -m bench` prints every table, `python -m bench NAME` one of them."""
