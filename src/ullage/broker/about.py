"""What the embedded model is, for a face to show before it is there."""

EMBEDDED = "embedded"
"""The name of the model that comes with Ullage."""
WEIGHTS = ".gguf"
"""How the name of a file with a model in it ends."""
ABOUT = """\
SmolLM2-135M is a demonstration: it chats in simple English, makes facts up, and cannot use tools.
For real work, `ullage model use` a larger GGUF file, a llama.cpp or Ollama server, or a provider."""


def runs_here(name: str) -> bool:
    """Whether a model of this name runs in this process: the embedded one does, and any GGUF file."""
    return name == EMBEDDED or name.lower().endswith(WEIGHTS)
