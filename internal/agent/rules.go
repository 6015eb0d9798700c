package agent

import (
	"slices"
	"strings"

	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/yamlfile"
)

// ofYAML are the findings of every YAML file that an agent's files can have too.
var ofYAML = []string{"bad-encoding", "bad-value", "missing-key", "wrong-type", "yaml-documents", "yaml-syntax", "yaml-too-complex"}

// Rules describes every finding that [Read] can make, sorted by id.
func Rules() []finding.Rule {
	rules := slices.DeleteFunc(yamlfile.Rules(), func(r finding.Rule) bool { return !slices.Contains(ofYAML, r.ID) })
	rules = append(rules, []finding.Rule{
		{ID: "bad-condition", Summary: "A condition does not compile.", Help: "Conditions are expressions such as: session.project.verified and session.cart.total > 100. They cannot loop or call functions beyond len, lower, upper and trim."},
		{ID: "bad-fence", Summary: "A block of a skill is not begun or ended as it should be.", Help: "A block begins with a line :::ordered_block id=name and ends with a line :::, both at the left margin. What stands between is YAML."},
		{ID: "bad-front-matter", Summary: "A skill's file does not begin with front matter.", Help: "The first line is ---, then come keys such as name: and description:, then a line ---, then the skill's text."},
		{ID: "bad-guard", Summary: "An if: line guards nothing, or there is an else: line.", Help: "An if: line guards the paragraph under it, and only that. Write one if: line for each case."},
		{ID: "bad-name", Summary: "A name cannot be used.", Help: "Names are letters, digits and _, and do not begin with a digit; the message says where - may stand."},
		{ID: "bad-response-name", Summary: "A response's name does not begin with utter_.", Help: "Responses are named utter_ followed by letters, digits or _."},
		{ID: "block-cycle", Summary: "Blocks call each other in a circle, or steps lead in a circle that nothing ends.", Help: "Such a turn would not end. Let a step end the block, ask the user, or choose with if:."},
		{ID: "duplicate-key", Summary: "A key, or something that must be unique, stands twice.", Help: "Only one of the two can count, so neither is guessed. Keep one."},
		{ID: "empty-file", Summary: "agent.yml or integrations.yml has nothing in it.", Help: "Write its keys, or start from what belay init makes."},
		{ID: "empty-folder", Summary: "The agent's folder is empty.", Help: "Make an agent there with belay init."},
		{ID: "file-too-large", Summary: "A file is larger than 2 MiB.", Help: "Split it, or take out what is not needed."},
		{ID: "if-in-instructions", Summary: "An if: line stands where it is not evaluated.", Help: "In a step's instructions, and behind spaces, the model reads it as text. In a block, make a step of each case; in prose, put it at the left margin."},
		{ID: "key-in-file", Summary: "A key, token or password is written in a file.", Help: "Keys in files are copied, committed and logged. Put the key in an environment variable and write the variable's name under api_key_env."},
		{ID: "linked-folder", Summary: "A link to a folder is not followed.", Help: "Put the files there, or link them one by one."},
		{ID: "local-import", Summary: "import_tools names a tool of the skill itself.", Help: "A skill's own tools need no import, and win over shared ones of the same name."},
		{ID: "misnamed-file", Summary: "A file's name is close to one that Belay reads, but nothing reads it.", Help: "Rename it, or delete it if it is not meant for Belay."},
		{ID: "misplaced-key", Summary: "A key of agent: stands at the top of agent.yml.", Help: "id, language, persona and voice belong under agent:."},
		{ID: "missing-agent-yml", Summary: "The folder has no agent.yml.", Help: "agent.yml makes a folder an agent's. Write one, or make an agent with belay init."},
		{ID: "missing-description", Summary: "A skill has no description.", Help: "The model chooses skills by their descriptions."},
		{ID: "missing-model", Summary: "The agent names no model to ask.", Help: "Write llm: in integrations.yml, with provider, model and api_key_env, or with the name of a model group."},
		{ID: "missing-persona", Summary: "The agent has no persona.", Help: "Write agent.persona: a few sentences on who the agent is and how it speaks."},
		{ID: "missing-script", Summary: "A scripted model has no script, or names a file that is not there.", Help: "Write script: FILE with a path relative to the agent's folder."},
		{ID: "misspelt-response", Summary: "A response's name is close to a built-in one but not the same.", Help: "A misspelt name replaces nothing. Rename it if it is meant to replace the built-in text."},
		{ID: "no-built-in-texts", Summary: "Belay has no built-in texts in the agent's language.", Help: "They are English until responses.yml has them in the agent's language."},
		{ID: "no-folder", Summary: "The agent's folder is not there or cannot be read.", Help: "Check the path and its permissions."},
		{ID: "no-plain-variant", Summary: "Every variant of a response has a condition.", Help: "When no condition holds there is nothing to say. Add a variant without a condition."},
		{ID: "no-skill", Summary: "A folder of skills/ has no skill.md.", Help: "Nothing in it is read. Write skill.md, or move the folder."},
		{ID: "not-acted-on", Summary: "A key or file is read, but this version does nothing with it.", Help: "The agent runs without it. Nothing needs to change."},
		{ID: "other-type-name", Summary: "A type of a memory value has the name that others give it.", Help: "It is understood. The names here are text, bool, int, float, number, categorical, list, json and any."},
		{ID: "outside-folder", Summary: "A path or link leads out of the agent's folder, or nowhere.", Help: "An agent reads its own folder only. Copy the file into it."},
		{ID: "private-memory", Summary: "A private value of another skill is read or set.", Help: "What other skills may read stands under public: in the skill's memory.yml."},
		{ID: "project-memory", Summary: "A value of the project is to be set by the model.", Help: "The project's memory is written by tools and set_memory only. Collect a value of the skill, and copy it."},
		{ID: "session-in-prose", Summary: "session.a.b stands where it is text and no value.", Help: "In prose, write @memory.a.b for the value. set_memory takes plain values."},
		{ID: "skill-too-complex", Summary: "A skill has too many conditions or names.", Help: "Split the skill. The bounds keep a file from anyone from keeping the reader busy."},
		{ID: "step-kind", Summary: "A step does not say what it does, or says two things.", Help: "Each step has one of instructions, collect, action, execute_tool, set_memory, call, link and noop; - id: END stands alone."},
		{ID: "too-many-files", Summary: "The agent has more than 10,000 files.", Help: "Take out what does not belong to it."},
		{ID: "too-many-skills", Summary: "The agent has more than 500 skills.", Help: "Split the agent, or take out what is not used."},
		{ID: "tool-collision", Summary: "Two tools of a skill have the same name.", Help: "The model could not tell them apart. Rename or drop one."},
		{ID: "tool-not-imported", Summary: "A skill names a shared tool that it does not import.", Help: "Shared tools are offered to the skills that list them under import_tools."},
		{ID: "unexpanded-variable", Summary: "${NAME} stands where nothing is put in its place.", Help: "Write the value itself. Only a key may come from the environment, by api_key_env."},
		{ID: "unknown-block", Summary: "A name leads to no block.", Help: "Blocks belong to the skill in which they stand; from another skill, name the skill."},
		{ID: "unknown-key", Summary: "A key that the file does not have.", Help: "A mistyped key would be passed over in silence, so it is an error."},
		{ID: "unknown-memory", Summary: "A name leads to no memory value.", Help: "Values are declared in memory.yml, the project's or the skill's, and are named session.project.x and session.skill.x."},
		{ID: "unknown-mention", Summary: "A name that begins with @ is close to one that Belay knows, but not the same.", Help: "The names are @skill., @block., @tool. and @memory."},
		{ID: "unknown-model-group", Summary: "llm.model_group names a group that is not there.", Help: "Add it to model_groups, or correct the name."},
		{ID: "unknown-placeholder", Summary: "A response has a placeholder for a value that is not declared.", Help: "A placeholder without a value stays as it is written."},
		{ID: "unknown-response", Summary: "A response is named that is not there.", Help: "Write it into responses.yml."},
		{ID: "unknown-server", Summary: "An import names an MCP server that is not there.", Help: "Add it to mcp_servers in integrations.yml."},
		{ID: "unknown-skill", Summary: "A name leads to no skill, or to a disabled one.", Help: "A skill's name is that of its folder in skills/."},
		{ID: "unknown-step", Summary: "A step leads to one that the block does not have.", Help: "next: names steps of the same block, or END."},
		{ID: "unknown-tool", Summary: "A skill names a tool that is not there.", Help: "Tools are in the skill's tools.py, in its tools/, or imported."},
		{ID: "unreachable-branch", Summary: "A branch of a step is never tried.", Help: "Branches are tried in order. The one without a condition comes last."},
		{ID: "unreachable-skill", Summary: "A skill can never be reached.", Help: "Nothing would ever start it. Mend what the message says, or delete the skill."},
		{ID: "unreachable-step", Summary: "A step of a block can never be reached.", Help: "Name it in the next: of a step, or delete it."},
		{ID: "unreachable-variant", Summary: "A variant of a response is never said.", Help: "Of the variants without a condition only the first is said."},
		{ID: "unreadable-file", Summary: "A file cannot be read, or is no regular file.", Help: "Check that it is there, and its permissions."},
	}...)
	slices.SortFunc(rules, func(a, b finding.Rule) int { return strings.Compare(a.ID, b.ID) })
	return rules
}
