"""The conversational shell: runs commands, asks the model, and shows the answers."""
