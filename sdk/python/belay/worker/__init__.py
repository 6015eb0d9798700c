"""The process that runs an agent's hooks and tools for the ``belay`` program.

``belay`` starts ``__main__.py`` of this package in the agent's interpreter. Nothing
here is meant to be imported by agents; the protocol stands in the package comment
of ``internal/pyhost``.
"""
