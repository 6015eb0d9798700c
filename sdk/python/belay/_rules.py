"""The rules that the check applies to an agent's Python files, and its findings."""

from __future__ import annotations

from typing import TypedDict

#: Every rule of the Python check with one line on what it finds.
RULES: dict[str, str] = {
    "syntax-error": "The file is no Python that this interpreter can compile.",
    "import-error": "The file could not be imported: it, or what it imports, raised.",
    "unreadable-file": "A file or folder could not be read, or is not a regular file.",
    "symlink-loop": "A folder's symbolic link leads back to a folder that holds it.",
    "hook-in-init": "A hook or tool stands in an __init__.py, which is passed over.",
    "foreign-hooks": "Hooks come from an installed package that registers nothing with Belay.",
    "foreign-tools": "Tools come from an installed package that registers nothing with Belay.",
    "bare-decorator": "A decorator stands without parentheses.",
    "unknown-point": "A hook decorator of that name does not exist.",
    "decorator-argument": "A decorator got an argument that it does not take, or a wrong one.",
    "timeout-ms": "timeout_ms is not a whole number from 1.",
    "double-modify": "More than one modify hook stands at a point.",
    "not-async": "A hook or tool is not an async function.",
    "signature": "A hook does not take exactly one positional parameter.",
    "payload-annotation": "The parameter's annotation is missing or not the point's payload type.",
    "return-annotation": "The return annotation is missing or not what the lane returns.",
    "unknown-field": "model_copy is given a field that the payload does not have.",
    "signal-not-allowed": "A signal is raised where the point does not allow it.",
    "signal-returned": "A signal is returned; it acts only when it is raised.",
    "tool-name": "A tool's name is not one that model providers accept.",
    "tool-description": "A tool has no description, so a model cannot tell when to call it.",
    "tool-signature": "A tool's parameters cannot be given by name, or have no JSON schema.",
    "double-tool": "Two tools of the project, or of one skill, have the same name.",
    "shadowed-tool": "A tool in a skill's tools.py has the name of one in its folder tools/.",
    "undeclared-memory": "A tool uses a memory value that nothing declares for it.",
}


class Finding(TypedDict):
    """One thing wrong with an agent's folder; line and column count from 1, 0 when unknown."""

    file: str
    line: int
    column: int
    rule: str
    severity: str
    message: str
    hint: str


def finding(
    rule: str,
    file: str,
    line: int,
    message: str,
    hint: str,
    *,
    column: int = 0,
    severity: str = "error",
) -> Finding:
    """Makes a finding of a known rule."""
    if rule not in RULES:
        raise KeyError(rule)
    return Finding(
        file=file,
        line=line,
        column=column,
        rule=rule,
        severity=severity,
        message=message,
        hint=hint,
    )
