package agent

import "github.com/belay-run/belay/internal/finding"

// Rules describes every finding that [Read] can make, sorted by id.
func Rules() []finding.Rule {
	return []finding.Rule{
		{ID: "bad-condition", Summary: "A condition does not compile.", Help: "Conditions are expressions such as: session.project.verified and session.cart.total > 100. They cannot loop or call functions beyond len, lower, upper and trim."},
		{ID: "bad-encoding", Summary: "A file is not UTF-8 text, or has control characters.", Help: "Save the file as UTF-8. A byte order mark and Windows line ends are fine."},
		{ID: "bad-response-name", Summary: "A response's name does not begin with utter_.", Help: "Responses are named utter_ followed by letters, digits or _."},
		{ID: "bad-value", Summary: "A value is outside what its key takes.", Help: "The message says what the key takes."},
		{ID: "duplicate-key", Summary: "A key, or something that must be unique, stands twice.", Help: "Only one of the two can count, so neither is guessed. Keep one."},
		{ID: "empty-file", Summary: "agent.yml or integrations.yml has nothing in it.", Help: "Write its keys, or start from what belay init makes."},
		{ID: "empty-folder", Summary: "The agent's folder is empty.", Help: "Make an agent there with belay init."},
		{ID: "file-too-large", Summary: "A file is larger than 2 MiB.", Help: "Split it, or take out what is not needed."},
		{ID: "key-in-file", Summary: "A key, token or password is written in a file.", Help: "Keys in files are copied, committed and logged. Put the key in an environment variable and write the variable's name under api_key_env."},
		{ID: "linked-folder", Summary: "A link to a folder is not followed.", Help: "Put the files there, or link them one by one."},
		{ID: "misnamed-file", Summary: "A file's name is close to one that Belay reads, but nothing reads it.", Help: "Rename it, or delete it if it is not meant for Belay."},
		{ID: "misplaced-key", Summary: "A key of agent: stands at the top of agent.yml.", Help: "id, language, name, description, persona and voice belong under agent:."},
		{ID: "missing-agent-yml", Summary: "The folder has no agent.yml.", Help: "agent.yml makes a folder an agent's. Write one, or make an agent with belay init."},
		{ID: "missing-key", Summary: "A key that is needed is not there.", Help: "The message says which one."},
		{ID: "missing-model", Summary: "The agent names no model to ask.", Help: "Write llm: in integrations.yml, with provider, model and api_key_env, or with the name of a model group."},
		{ID: "missing-persona", Summary: "The agent has no persona.", Help: "Write agent.persona: a few sentences on who the agent is and how it speaks."},
		{ID: "missing-script", Summary: "A scripted model has no script, or names a file that is not there.", Help: "Write script: FILE with a path relative to the agent's folder."},
		{ID: "misspelt-response", Summary: "A response's name is close to a built-in one but not the same.", Help: "A misspelt name replaces nothing. Rename it if it is meant to replace the built-in text."},
		{ID: "no-built-in-texts", Summary: "Belay has no built-in texts in the agent's language.", Help: "They are English until responses.yml has them in the agent's language."},
		{ID: "no-folder", Summary: "The agent's folder is not there or cannot be read.", Help: "Check the path and its permissions."},
		{ID: "no-plain-variant", Summary: "Every variant of a response has a condition.", Help: "When no condition holds there is nothing to say. Add a variant without a condition."},
		{ID: "not-acted-on", Summary: "A key or file is read, but this version does nothing with it.", Help: "The agent runs without it. Nothing needs to change."},
		{ID: "outside-folder", Summary: "A path or link leads out of the agent's folder, or nowhere.", Help: "An agent reads its own folder only. Copy the file into it."},
		{ID: "too-many-files", Summary: "The agent has more than 10,000 files.", Help: "Take out what does not belong to it."},
		{ID: "unexpanded-variable", Summary: "${NAME} stands where nothing is put in its place.", Help: "Write the value itself. Only a key may come from the environment, by api_key_env."},
		{ID: "unknown-key", Summary: "A key that the file does not have.", Help: "A mistyped key would be passed over in silence, so it is an error."},
		{ID: "unknown-model-group", Summary: "llm.model_group names a group that is not there.", Help: "Add it to model_groups, or correct the name."},
		{ID: "unreadable-file", Summary: "A file cannot be read, or is no regular file.", Help: "Check that it is there, and its permissions."},
		{ID: "unsupported-memory", Summary: "The agent has memory, which this version cannot keep.", Help: "An agent is never run without what it relies on. Use a later version."},
		{ID: "unsupported-skills", Summary: "The agent has skills, which this version cannot run.", Help: "An agent is never run without what it relies on. Use a later version."},
		{ID: "wrong-type", Summary: "A value is of the wrong type, such as a list where text is needed.", Help: "The message says what is needed. Text that looks like a number, or has ': ' in it, needs quotes."},
		{ID: "yaml-documents", Summary: "A YAML file holds more than one document.", Help: "Keep one and delete the lines \"---\"."},
		{ID: "yaml-syntax", Summary: "A file is no YAML that can be read.", Help: "Check indentation, quotes and brackets, in the line before too."},
		{ID: "yaml-too-complex", Summary: "A YAML file has too many, too deeply nested or too often repeated entries.", Help: "Split or flatten it. The bounds keep a file from anyone from keeping the reader busy."},
	}
}
