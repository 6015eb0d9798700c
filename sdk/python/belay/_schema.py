"""From a tool's signature to the JSON schema that a model reads, and back to arguments."""

from __future__ import annotations

import inspect
import re
import typing
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.fields import FieldInfo

CONTEXT = "context"
_CONFIG = ConfigDict(extra="forbid", protected_namespaces=())


class NoSchema(Exception):
    """The tool's parameters cannot be offered to a model; says why."""


@dataclass(frozen=True)
class Signature:
    """What a model may give a tool."""

    parameters: dict[str, Any]  # JSON schema
    wants_context: bool
    coerce: Callable[[Mapping[str, Any]], dict[str, Any]]


def read_signature(fn: Callable[..., Any]) -> Signature:
    """Reads a tool's parameters; NoSchema when they cannot be given by name or described."""
    try:
        signature = inspect.signature(fn)
        hints = _hints(fn)
    except BaseException as error:  # annotations are code; they may do anything
        raise NoSchema(f"its annotations cannot be resolved ({_brief(error)})") from error
    described = docstring_args(fn.__doc__ or "")
    fields: dict[str, Any] = {}
    names: dict[str, str] = {}  # the model's field -> the parameter
    for name, parameter in signature.parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise NoSchema(f"parameter {name!r} cannot be given by name")
        if name == CONTEXT:
            continue
        reserved = name.startswith("_") or hasattr(BaseModel, name)  # such as "copy"
        key = f"p{len(fields)}" if reserved else name
        names[key] = name
        fields[key] = _field(parameter, hints.get(name, Any), described.get(name), reserved)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a default without JSON form is left out, no more
            model = create_model("Arguments", __config__=_CONFIG, **fields)
            schema = model.model_json_schema()
    except BaseException as error:  # annotations are code; they may do anything
        raise NoSchema(f"its annotations have no JSON schema ({_brief(error)})") from error
    parameters = _without_titles(schema)
    parameters.setdefault("properties", {})
    parameters.pop("description", None)

    def coerce(arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments as the tool takes them; ValueError that tells the model what to mend."""
        if not isinstance(arguments, Mapping):
            raise ValueError("the arguments are no object")
        try:
            given = model.model_validate(dict(arguments))
        except ValidationError as error:
            raise ValueError(_for_model(error, list(names.values()))) from None
        return {name: getattr(given, key) for key, name in names.items()}

    return Signature(parameters, CONTEXT in signature.parameters, coerce)


def docstring_args(docstring: str) -> dict[str, str]:
    """The parameter texts of a docstring's ``Args:`` section (Google style)."""
    texts: dict[str, str] = {}
    inside, indent, current = False, 0, ""
    for line in inspect.cleandoc(docstring).splitlines():
        stripped = line.strip()
        depth = len(line) - len(line.lstrip())
        if re.fullmatch(r"(Args|Arguments|Parameters):", stripped):
            inside, indent, current = True, -1, ""
            continue
        if not inside or not stripped:
            continue
        if depth == 0:
            inside = False
            continue
        entry = re.match(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)", stripped)
        if entry and depth <= (indent if indent >= 0 else depth):
            indent, current = depth, entry[1]
            texts[current] = entry[2]
        elif current:
            texts[current] = f"{texts[current]} {stripped}".strip()
    return texts


def _hints(fn: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of what a model gives; those of the rest need not be importable."""
    inner = inspect.unwrap(fn)
    annotations = {
        name: value
        for name, value in inspect.get_annotations(inner).items()
        if name not in (CONTEXT, "return")
    }
    holder = SimpleNamespace(__annotations__=annotations)
    namespace = getattr(inner, "__globals__", {})
    return typing.get_type_hints(holder, globalns=namespace, include_extras=True)


def _field(
    parameter: inspect.Parameter, annotation: Any, description: str | None, reserved: bool
) -> Any:
    """A field for create_model. What the author's own Field says stands above the docstring."""
    own = getattr(annotation, "__metadata__", ())
    kind = annotation.__origin__ if own else annotation
    metadata = list(own)
    if description:
        metadata.insert(0, Field(description=description))
    default = parameter.default
    if not isinstance(default, FieldInfo):
        options: dict[str, Any] = {} if default is parameter.empty else {"default": default}
        if reserved:
            options["alias"] = parameter.name
        default = Field(**options)
    return Annotated[(kind, *metadata)] if metadata else kind, default


def _without_titles(node: Any) -> Any:
    """The schema without the titles that pydantic makes up; they only cost tokens."""
    if isinstance(node, list):
        return [_without_titles(item) for item in node]
    if not isinstance(node, dict):
        return node
    out = {}
    for key, value in node.items():
        if key in ("properties", "$defs") and isinstance(value, dict):
            out[key] = {name: _without_titles(item) for name, item in value.items()}
        elif key in ("default", "examples", "const", "enum"):
            out[key] = value
        elif key != "title":
            out[key] = _without_titles(value)
    return out


def _for_model(error: ValidationError, names: list[str]) -> str:
    lines = []
    for item in error.errors(include_url=False):
        place = ".".join(str(part) for part in item["loc"])
        if item["type"] == "missing":
            lines.append(f"parameter {place!r} is missing")
        elif item["type"] == "extra_forbidden":
            known = ", ".join(repr(name) for name in names) or "none"
            lines.append(f"there is no parameter {place!r}; the parameters are: {known}")
        else:
            message = item["msg"][:1].lower() + item["msg"][1:]
            lines.append(f"parameter {place!r}: {message}")
    return "; ".join(lines)


def _brief(error: BaseException) -> str:
    first = str(error).splitlines()
    return f"{type(error).__name__}: {first[0]}" if first else type(error).__name__
