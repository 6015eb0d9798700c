// Package plugintest tests plugins with cases written in YAML: one event with what the
// hooks should say of it, or a whole job with a scripted model, canned results of tools
// and people's answers. What is tested is the real thing: the plugin's own servers, the
// matcher, the fold of the hooks and the flow of jobs; only the model, other plugins'
// tools and the people are the case's.
//
//	manifest, _ := plugin.Read("acme-policy")
//	file, findings := plugintest.Read("acme-policy/tests/push.yaml")
//	findings = append(findings, plugintest.Check(file, manifest)...)
//	report, err := plugintest.Run(ctx, plugintest.Config{Manifest: manifest, Logger: logger}, []*plugintest.File{file})
//	report.WriteSummary(os.Stdout)
//	if !report.OK() { … }
//
// Each hook is a decision point with two branches; [Coverage] says which of them the
// cases have gone through. A hook that no case reaches was not tested by what passed.
package plugintest
