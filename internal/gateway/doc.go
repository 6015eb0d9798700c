// Package gateway lets the calls of a job ask models without holding a provider's key.
//
// It is an HTTP server on a loopback port of its own that speaks the APIs of OpenAI
// and of Anthropic, so that the vendors' own SDKs work with it. A caller comes with a
// key that was issued for one call and is good while that call runs:
//
//	key, err := g.Issue(gateway.Binding{Tenant: "acme", Job: id, Plugin: "judge"})
//	defer g.End(key.Token)
//
// What is asked goes on to the provider of the model, and what it answers comes back,
// byte for byte: unknown fields, beta headers, errors, request ids. Changed is only
//
//   - the credential, which is the provider's and never seen by the caller;
//   - the model's name, an alias that stands for the provider's own;
//   - secrets of the tenant, for which their names stand (see [Rules]);
//   - a cap of the output, added where a budget applies and the request names none;
//   - stream_options.include_usage, added to an OpenAI stream; the chunk that comes for
//     it is kept from the caller;
//   - what would lead the caller or the credential elsewhere: redirects, cookies.
//
// Refused is what would let a provider ask other models than the one that was looked
// at: the keys models, fallbacks and route.
//
// Each call is reserved in a [spend.Ledger] before it is made and charged by the usage
// that the provider reports. Where it reports none, because the stream was cut or is
// no JSON, tokens are estimated from the text that came.
//
// What is reserved before a call is the most that its text can take. It is a guess for
// pictures and files, and leaves out what providers charge beside tokens, such as
// searches; those calls are still charged the tokens that the provider reports.
//
// A scripted model is asked in-process, on the routes of both vendors.
package gateway
