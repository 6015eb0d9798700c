"""Whatever an agent's files hold, the loader reports and never raises."""

from __future__ import annotations

import os
import random

import pytest

# Nothing here loops, opens, or ends the interpreter: what compiles is also run.
WORDS = """
    async def class return raise if else : : ( ) ( ) [ ] { } , . = @ * ** -> | + - / lambda
    try except finally with as match case import from yield await None True 0 1 "" '' \\ \n \n
    \n\t \n\t\t f p x self __init__ ... belay hooks tools lib rasa.mantle.hooks belay.hooks on_turn_started()
    @on_tool_call() @modify_tool_call(timeout_ms=5) @modify_outgoing_text @tool(description="x")
    on_turn_started modify_turn_started modify_outgoing_message RetryModel HookRejection
    RetryModel("x") ToolCallPayload OutgoingTextPayload "ToolCallPayload" import\tbelay.hooks
    from\tbelay.hooks\timport\t* from\t.\timport\ta type global nonlocal del \0 \ufeff é \u2028
""".replace("\\n", "\n").split(" ")  # fmt: skip
SOURCE = '''\
from __future__ import annotations
from rasa.mantle.hooks import RetryModel as R, ToolCallPayload, modify_tool_call, on_tool_call
from belay.tools import tool
import lib.x as x
def check(p):
    if p.tool_name == "a":
        raise R(feedback="x")
@modify_tool_call(timeout_ms=500)
async def steer(p: ToolCallPayload) -> ToolCallPayload:
    """Text."""
    try:
        check(p)
    except ValueError as e:
        raise R("x") from e
    return p.model_copy(update={"arguments": {**p.arguments, "a": 1}})
@on_tool_call(final=True)
async def look(p: "ToolCallPayload") -> None:
    match p.tool_name:
        case "a": return R("x")
@tool(description="x", timeout=2.5)
async def act(a: int, b: "list[str]" = [], *, context=None):
    """Acts.

    Args:
        a: first
    """
'''


def soup(rng: random.Random) -> bytes:
    return " ".join(rng.choices(WORDS, k=rng.randrange(60))).encode("utf-8", "surrogatepass")


def noise(rng: random.Random) -> bytes:
    return rng.randbytes(rng.randrange(200))


def mutated(rng: random.Random) -> bytes:
    lines = SOURCE.splitlines(keepends=True)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(lines))
        match rng.randrange(4):
            case 0:
                del lines[at]
                lines.append("\n")
            case 1:
                lines[at] = lines[at].replace(rng.choice(lines[at] or " "), rng.choice(WORDS))
            case 2:
                lines.insert(at, rng.choice(lines))
            case 3:
                line = lines[at]
                cut = rng.randrange(len(line) + 1)
                lines[at] = line[:cut] + line[cut + rng.randrange(5) :]
    return "".join(lines).encode("utf-8", "surrogatepass")


@pytest.mark.parametrize("make", [soup, noise, mutated], ids=lambda make: make.__name__)
def test_garbage(agent, make):
    seed = int(os.environ.get("BELAY_TEST_SEED", random.SystemRandom().randrange(2**32)))
    rng = random.Random(seed)
    for round_ in range(int(os.environ.get("BELAY_TEST_ROUNDS", "60"))):
        sources = [make(rng) for _ in range(3)]
        for file, source in zip(("hooks.py", "hooks/a.py", "lib/x.py"), sources, strict=True):
            agent.write(file, source)
        try:
            loaded = agent.load()
        except BaseException as error:
            raise AssertionError(
                f"BELAY_TEST_SEED={seed} round {round_}: {error!r} for {sources!r}"
            ) from error
        for found in loaded.findings:
            assert found["line"] >= 0 and found["column"] >= 0
            assert "\n" not in found["message"]
