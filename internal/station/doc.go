// Package station is the wiring of jobs: one data folder with its tenants' plugins,
// tool policy, jobs and approvals, the MCP servers that answer, and the models that
// agents ask. It stands beside package app, the wiring of conversations.
//
// A [Station] owns its data folder; the CLI and the HTTP API talk to it.
package station
