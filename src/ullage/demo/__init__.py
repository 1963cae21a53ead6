"""A scripted session of an agent, replayed without a model to show how a window is fitted."""
