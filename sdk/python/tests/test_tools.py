"""Tools: their schema, their arguments, and what is wrong with them."""

from __future__ import annotations

import asyncio
import json

import pytest

from belay import tools
from belay._schema import NoSchema, docstring_args, read_signature


def load_tool(agent, text):
    agent.write("tools/t.py", text)
    loaded = agent.load()
    assert loaded.findings == []
    return loaded.tools[0]


BOOK = '''
    from __future__ import annotations
    from datetime import date
    from typing import TYPE_CHECKING, Literal
    from belay.tools import ToolResult, tool
    if TYPE_CHECKING:
        from belay.tools import ToolContext

    @tool(description="Books.", requires_confirmation=True, on_success="utter_booked", timeout=2.5)
    async def book(
        day: date,
        copy: int = 1,
        kind: Literal["new", "follow-up"] | None = None,
        context: ToolContext = None,
    ) -> ToolResult:
        """Books an appointment.

        Args:
            day: The day, as
                YYYY-MM-DD.
            copy (int): How many.
            context: Not for the model.

        Returns:
            day: This is no parameter.
        """
        return ToolResult(llm_response={"day": day.isoformat(), "copy": copy})
'''


def test_a_tool_with_all_it_may_have(agent):
    tool = load_tool(agent, BOOK)
    assert tool.parameters == {
        "type": "object",
        "properties": {
            "day": {
                "type": "string",
                "format": "date",
                "description": "The day, as YYYY-MM-DD.",
            },
            "copy": {"type": "integer", "default": 1, "description": "How many."},
            "kind": {
                "anyOf": [{"enum": ["new", "follow-up"], "type": "string"}, {"type": "null"}],
                "default": None,
            },
        },
        "required": ["day"],
        "additionalProperties": False,
    }
    assert (tool.name, tool.description, tool.file, tool.line) == (
        "book",
        "Books.",
        "tools/t.py",
        9,
    )
    assert (tool.wants_context, tool.requires_confirmation, tool.timeout_s) == (True, True, 2.5)
    assert (tool.on_success, tool.utter_for_confirmation, tool.utter_on_user_denial) == (
        "utter_booked",
        None,
        None,
    )
    json.dumps(tool.parameters)


def test_arguments_are_coerced(agent):
    tool = load_tool(agent, BOOK)
    given = tool.coerce({"day": "2026-01-02", "copy": "9007199254740993"})
    assert str(given["day"]) == "2026-01-02"
    assert given["copy"] == 9007199254740993
    assert given["kind"] is None
    assert "context" not in given


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "parameter 'day' is missing"),
        ({"day": "x", "copy": 1}, "parameter 'day': input should be a valid date"),
        ({"day": "2026-01-02", "copy": "many"}, "parameter 'copy': input should be a valid int"),
        ({"day": "2026-01-02", "days": 1}, "no parameter 'days'; the parameters are: 'day', "),
        ({"day": "2026-01-02", "context": {}}, "no parameter 'context'"),
        ([], "no object"),
    ],
)
def test_wrong_arguments_tell_the_model_what_to_mend(agent, arguments, says):
    tool = load_tool(agent, BOOK)
    with pytest.raises(ValueError, match=says):
        tool.coerce(arguments)


def test_a_tool_without_parameters(agent):
    tool = load_tool(
        agent,
        """
        from belay.tools import tool
        @tool("Says hello.")
        async def hello(): ...
        """,
    )
    assert tool.parameters["properties"] == {}
    assert tool.coerce({}) == {}
    assert not tool.wants_context


def test_names_that_pydantic_reserves():
    async def f(copy: int, model_config: str, schema: int = 5, *, _x: int, model_y: int = 0): ...

    signature = read_signature(f)
    assert list(signature.parameters["properties"]) == [
        "copy",
        "model_config",
        "schema",
        "_x",
        "model_y",
    ]
    given = {"copy": 1, "model_config": "x", "_x": 2}
    assert signature.coerce(given) == {**given, "schema": 5, "model_y": 0}
    with pytest.raises(ValueError, match="'copy' is missing"):
        signature.coerce({})


def test_a_property_named_title_stays():
    from pydantic import BaseModel

    class Note(BaseModel):
        title: str

    async def f(title: str, note=None): ...

    f.__annotations__["note"] = Note
    schema = read_signature(f).parameters
    assert "title" in schema["properties"]
    assert "title" in schema["$defs"]["Note"]["properties"]
    assert "title" not in schema


def test_the_authors_field_stands_above_the_docstring():
    from typing import Annotated

    from pydantic import Field

    async def f(a, b: int = Field(3, ge=1, description="own")):
        """F.

        Args:
            a: from the docstring
            b: from the docstring
        """

    f.__annotations__["a"] = Annotated[int, Field(le=9, description="own")]
    f.__annotations__["b"] = int
    properties = read_signature(f).parameters["properties"]
    assert properties["a"] == {"type": "integer", "maximum": 9, "description": "own"}
    assert properties["b"] == {
        "type": "integer",
        "minimum": 1,
        "default": 3,
        "description": "own",
    }


@pytest.mark.parametrize("source", ["*args", "**kwargs", "a, /", "a: object()", "a: Nowhere"])
def test_parameters_that_cannot_be_offered(source):
    namespace: dict = {}
    exec(f"from __future__ import annotations\nasync def f({source}): ...", namespace)
    with pytest.raises(NoSchema):
        read_signature(namespace["f"])


@pytest.mark.parametrize(
    ("docstring", "texts"),
    [
        ("", {}),
        ("Args: none", {}),
        ("X.\n\nArgs:\n  a: one: two\n  b (list[int], optional): three\n", None),
        (
            "X.\n\n    Args:\n        a: one: two\n\n        b: three\n    Raises:\n        c: x",
            None,
        ),
        ("X.\n\nParameters:\n    a: one:\n        two\n    b:\n        three", None),
    ],
)
def test_docstrings(docstring, texts):
    assert docstring_args(docstring) == ({"a": "one: two", "b": "three"} if texts is None else {})


def rules(agent, text):
    agent.write("tools/t.py", text)
    return [(f["line"], f["rule"]) for f in agent.load().findings]


def test_what_is_wrong_with_tools(agent):
    assert rules(
        agent,
        """\
        from belay.tools import tool
        @tool
        async def bare(): "Doc."
        @tool(description="x")
        def plain(): ...
        @tool(description="x", speed=1, requires_confirmation="yes", timeout=0)
        async def options(): ...
        @tool()
        async def undescribed(): ...
        @tool(description="x", name="no spaces")
        async def named(): ...
        @tool(description="x")
        async def rest(*args): ...
        @tool(description="x")
        async def options(): ...
        """,
    ) == [
        (2, "bare-decorator"),
        (5, "not-async"),
        (6, "decorator-argument"),
        (6, "decorator-argument"),
        (6, "decorator-argument"),
        (8, "tool-description"),
        (10, "tool-name"),
        (12, "tool-signature"),
        (14, "double-tool"),
    ]


def test_a_double_tool_names_both_places(agent):
    tool = 'from belay.tools import tool\n@tool(description="x")\nasync def f(): ...\n'
    agent.write("tools/a.py", tool)
    agent.write("tools/b.py", tool)
    (finding,) = agent.load().findings
    assert (finding["file"], finding["line"]) == ("tools/b.py", 2)
    assert "tools/a.py:2" in finding["message"]


def test_a_description_comes_from_the_docstring_when_none_is_given(agent):
    tool = load_tool(
        agent,
        '''
        from belay.tools import tool
        @tool()
        async def f():
            """Finds
            a day.

            More."""
        ''',
    )
    assert tool.description == "Finds a day."


def test_results_and_contexts_are_built_in_tests_with_few_fields():
    assert tools.ToolResult({"a": 1}) == tools.ToolResult(llm_response={"a": 1})
    context = tools.ToolContext(sender_id="me")
    assert (context.turn_id, context.call, context.channel.name) == ("", {}, "")
    assert (context.skill, context.events, context.memory.get("x")) == ("", [], None)


def test_what_a_tool_sends_is_kept_for_its_unit_test():
    context = tools.ToolContext()
    asyncio.run(context.send("one moment"))
    assert context.sent == ["one moment"]
    with pytest.raises(TypeError):
        asyncio.run(context.send(5))
    with pytest.raises(ValueError, match="characters"):
        asyncio.run(context.send("x" * 100_000))
    for _ in range(99):
        asyncio.run(context.send("again"))
    with pytest.raises(ValueError, match="up to 100 texts"):
        asyncio.run(context.send("once more"))


def test_is_cancelled_is_called_or_looked_at():
    context = tools.ToolContext()
    assert not context.is_cancelled and not context.is_cancelled()
    context.is_cancelled.cancel()
    assert context.is_cancelled and context.is_cancelled() is True
    assert repr(context.is_cancelled) == "True"


def test_there_is_no_turn_outside_of_one():
    with pytest.raises(LookupError, match="no current turn"):
        tools.current_turn_context()


def test_outside_of_loading_a_misuse_raises():
    async def f(): ...

    assert tools.tool(description="x")(f) is f
    for use in (
        lambda: tools.tool(f),
        lambda: tools.tool(description=5),
        lambda: tools.tool("x", "y"),
        lambda: tools.tool(description="x", timeout=True),
    ):
        with pytest.raises(TypeError):
            use()
