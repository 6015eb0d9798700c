# Runs a module as python -m does. A module that makes an MCP server and does not run it is served on stdin and stdout, since
# there is nothing else that it can be for.
import runpy
import sys

module = sys.argv[1]
del sys.argv[0]
ran = []
try:
    from mcp.server import MCPServer as Server
except Exception:
    try:
        from mcp.server.fastmcp import FastMCP as Server
    except Exception:
        Server = None


def noting(method):
    def noted(self, *args, **kwargs):
        ran.append(self)
        return method(self, *args, **kwargs)

    return noted


if Server is not None:
    for name in ("run", "run_stdio_async", "run_sse_async", "run_streamable_http_async"):
        if hasattr(Server, name):
            setattr(Server, name, noting(getattr(Server, name)))
made = runpy.run_module(module, run_name="__main__", alter_sys=True)
if Server is not None and not ran:
    servers = {id(value): value for value in made.values() if isinstance(value, Server)}
    if len(servers) == 1:
        print(f"{module} makes a server and does not run it, so it is run here", file=sys.stderr, flush=True)
        servers.popitem()[1].run()
