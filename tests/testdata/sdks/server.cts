// Asks models through the official TypeScript SDKs of OpenAI and Anthropic, with the key that came with the call.
const { McpServer } = require("@modelcontextprotocol/server");
const { StdioServerTransport } = require("@modelcontextprotocol/server/stdio");
const { Anthropic } = require("@anthropic-ai/sdk");
const { OpenAI } = require("openai");
const z = require("zod");

type Key = { token: string; anthropic_base_url: string; openai_base_url: string };
type Question = { vendor: string; model: string; prompt: string; stream: boolean };

const parameters = { type: "object", properties: { a: { type: "integer" } } };

async function askAnthropic(key: Key, q: Question) {
  const client = new Anthropic({ apiKey: key.token, baseURL: key.anthropic_base_url, maxRetries: 0 });
  const listed = [];
  for await (const m of client.models.list()) listed.push(m.id);
  const request = { model: q.model, max_tokens: 64, messages: [{ role: "user", content: q.prompt }], tools: [{ name: "add", description: "Add.", input_schema: parameters }] };
  const { max_tokens, ...uncapped } = request;
  const counted = (await client.messages.countTokens(uncapped)).input_tokens;
  let pieces = 0;
  let message;
  if (q.stream) {
    const s = client.messages.stream(request);
    s.on("text", () => pieces++);
    message = await s.finalMessage();
  } else {
    message = await client.messages.create(request);
  }
  return {
    text: message.content.filter((b: any) => b.type === "text").map((b: any) => b.text).join(""),
    calls: message.content.filter((b: any) => b.type === "tool_use").map((b: any) => ({ name: b.name, arguments: b.input })),
    stop: message.stop_reason, in: message.usage.input_tokens, out: message.usage.output_tokens, pieces, listed, counted,
  };
}

async function askOpenAI(key: Key, q: Question) {
  const client = new OpenAI({ apiKey: key.token, baseURL: key.openai_base_url, maxRetries: 0 });
  const listed = [];
  for await (const m of client.models.list()) listed.push(m.id);
  const request = { model: q.model, messages: [{ role: "user", content: q.prompt }], tools: [{ type: "function", function: { name: "add", description: "Add.", parameters } }] };
  if (!q.stream) {
    const done = await client.chat.completions.create(request);
    const choice = done.choices[0];
    const calls = (choice.message.tool_calls ?? []).map((c: any) => ({ name: c.function.name, arguments: c.function.arguments }));
    return { text: choice.message.content ?? "", calls, stop: choice.finish_reason, in: done.usage.prompt_tokens, out: done.usage.completion_tokens, pieces: 0, listed };
  }
  let text = "", pieces = 0, stop = null;
  const calls: any[] = [];
  for await (const chunk of await client.chat.completions.create({ ...request, stream: true })) {
    const delta = chunk.choices[0].delta; // a chunk without choices was not asked for
    for (const c of delta.tool_calls ?? []) {
      const one = (calls[c.index] ??= { name: "", arguments: "" });
      one.name += c.function.name ?? "";
      one.arguments += c.function.arguments ?? "";
    }
    if (delta.content) { text += delta.content; pieces++; }
    stop = chunk.choices[0].finish_reason ?? stop;
  }
  return { text, calls, stop, pieces, listed };
}

const server = new McpServer({ name: "ts", version: "1.0.0" });
server.registerTool(
  "ask",
  {
    description: "One message: what came back, as the SDK has it.",
    inputSchema: z.object({ vendor: z.string(), model: z.string(), prompt: z.string(), stream: z.boolean() }),
    annotations: { readOnlyHint: true, openWorldHint: false },
  },
  async (q: Question, ctx: any) => {
    const key = ctx.mcpReq._meta["belay/model"] as Key;
    let answer;
    try {
      answer = await (q.vendor === "anthropic" ? askAnthropic : askOpenAI)(key, q);
    } catch (err: any) {
      if (err.status === undefined) throw err;
      answer = { error: err.constructor.name, status: err.status, message: err.message };
    }
    return { content: [{ type: "text", text: JSON.stringify(answer) }] };
  },
);
server.connect(new StdioServerTransport());
