"""The plugin's MCP servers."""
