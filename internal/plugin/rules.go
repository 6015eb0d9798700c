package plugin

import (
	"slices"
	"strings"

	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/policy"
)

// Rules describes every finding of [Read] and [Lint], sorted by id.
func Rules() []finding.Rule {
	rules := append(policy.Rules(), // a plugin may bring a policy
		finding.Rule{ID: "bad-call", Summary: "A hook's call names no function.", Help: "Write <tool>.<function>, with a tool of this plugin."},
		finding.Rule{ID: "bad-decisions", Summary: "A hook's decisions are another list than [allow, escalate].", Help: "That list makes a hook that may only let a call pass or send it to a person. Leave it out for a hook that may answer anything."},
		finding.Rule{ID: "bad-function", Summary: "A server lists a function whose name cannot be used.", Help: "Name it with up to 128 letters, digits and _./-."},
		finding.Rule{ID: "bad-match", Summary: "A name in match can never match.", Help: "tools holds full names, <tool>.<function>, and agents holds agents' names. Both match exactly."},
		finding.Rule{ID: "bad-name", Summary: "A name or id has characters that it may not have.", Help: "The message says which ones it may have."},
		finding.Rule{ID: "bad-on-timeout", Summary: "A hook that may only allow and escalate has another on_timeout than escalate.", Help: "Such a hook never refuses and never lets pass what it could not judge. Write escalate, or leave it out."},
		finding.Rule{ID: "bad-timeout", Summary: "A hook's timeout is no time, or longer than 30 seconds.", Help: "Write for example 2s. A call waits while its hooks are asked."},
		finding.Rule{ID: "bad-url", Summary: "A tool's url is no address of an MCP server.", Help: "Write https://host/path."},
		finding.Rule{ID: "empty-plugin", Summary: "The plugin brings nothing.", Help: "Write tools and hooks."},
		finding.Rule{ID: "flow-tool", Summary: "A tool is a flow, which this version does not run.", Help: "Write it as an MCP server."},
		finding.Rule{ID: "hook-acts", Summary: "A hook's function declares that it writes or reaches the open world.", Help: "A hook is a call too: the tenant's policy decides about it, and by default a person is asked before the hook is."},
		finding.Rule{ID: "hook-signature", Summary: "A hook's function cannot take an event.", Help: "It gets one argument, event, which is an object."},
		finding.Rule{ID: "key-in-file", Summary: "A key, token or password is written in the manifest.", Help: "Keys in files are copied, committed and logged. Pass them in variables, and write the variables' names under env."},
		finding.Rule{ID: "match-tools", Summary: "The match of a hook names tools, but its event is about none.", Help: "Only pre_tool_call and post_tool_call are about a tool."},
		finding.Rule{ID: "mcp-unreachable", Summary: "A tool's server does not start, or cannot be asked what it offers.", Help: "The message says why. What depends on the server is not checked."},
		finding.Rule{ID: "missing-file", Summary: "A file or folder that the manifest names is not there.", Help: "Paths are relative to the plugin's folder."},
		finding.Rule{ID: "no-annotations", Summary: "A function does not declare what it does.", Help: "Then a person is asked before it is called, also when it is a hook. The hint names the annotation to add."},
		finding.Rule{ID: "no-folder", Summary: "The plugin's folder is not there or cannot be opened.", Help: "Check the path and its permissions."},
		finding.Rule{ID: "no-functions", Summary: "A server lists no functions.", Help: "Let it offer some, or delete the tool."},
		finding.Rule{ID: "no-manifest", Summary: "The folder has no manifest.", Help: "It is named belay-plugin.yaml; an oz0-plugin.yaml is read too."},
		finding.Rule{ID: "not-acted-on", Summary: "A section or file is there, but nothing is done with it.", Help: "The plugin runs without it. Nothing needs to change."},
		finding.Rule{ID: "outside-folder", Summary: "A path leads out of the plugin's folder.", Help: "A plugin is installed as a snapshot of its folder. Copy the file into it."},
		finding.Rule{ID: "plain-http", Summary: "A remote tool's address is not encrypted.", Help: "Write https://."},
		finding.Rule{ID: "policy-loosens", Summary: "A plugin's policy would allow something.", Help: "A plugin's policy only restricts. What is allowed stands in the tenant's own."},
		finding.Rule{ID: "remote-model", Summary: "A remote tool or a flow tool declares uses_model.", Help: "Its calls do not run here, so the key for the model would leave this machine."},
		finding.Rule{ID: "remote-scan", Summary: "A hook that a remote tool answers asks for scan.", Help: "The findings would leave this machine."},
		finding.Rule{ID: "scan-event", Summary: "A hook asks for scan on an event without a value to scan.", Help: "scan works on post_tool_call and job_end."},
		finding.Rule{ID: "unknown-agent", Summary: "A hook watches an agent whose name looks mistyped.", Help: "Names are exact. An agent of another plugin may have any name that is not near one of this plugin's."},
		finding.Rule{ID: "unknown-function", Summary: "A hook, what it watches, or an agent names a function that its tool does not have.", Help: "The hint names the nearest one that it has."},
		finding.Rule{ID: "unknown-tool", Summary: "A hook calls a tool that the plugin does not have, or a tool that it watches or that an agent has looks mistyped.", Help: "A hook is a function of one of the plugin's own tools."},
	)
	slices.SortFunc(rules, func(a, b finding.Rule) int { return strings.Compare(a.ID, b.ID) })
	return rules
}
