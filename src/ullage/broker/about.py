"""What the embedded model is, for a face to show before it is there."""

EMBEDDED = "embedded"
"""The name of the model that comes with Ullage."""
ABOUT = """\
SmolLM2-135M is a demonstration: it chats in simple English, makes facts up, and cannot use tools.
For real work, `ullage model use` a larger GGUF file, a llama.cpp or Ollama server, or a provider."""
