"""The name and description of the embedded model, which can be shown before its file is loaded."""

EMBEDDED = "embedded"
"""The name of the model that comes with Ullage."""
WEIGHTS = ".gguf"
"""The suffix of model files."""
ABOUT = """\
SmolLM2-135M is a demonstration: it chats in simple English, makes facts up, and cannot use tools.
For real work, `ullage model use` a larger GGUF file, a llama.cpp or Ollama server, or a provider."""


def runs_here(name: str) -> bool:
    """Returns True if a model with this name runs in this process: the embedded model, or any GGUF file."""
    return name == EMBEDDED or name.lower().endswith(WEIGHTS)
