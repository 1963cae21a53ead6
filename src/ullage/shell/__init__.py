"""The conversational shell: what a line of input means, what it may do, and what is shown for it."""
