// Asks a gateway with the official clients: `node sdks.mjs NODE_MODULES`.
//
// Each line of standard input is a question: {client, url, model, stream}. The answer is a line of standard output:
// {arguments, text}, what the model's call of the tool held and what it said when it had the result; or {error}.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const need = createRequire(`${process.argv[2]}/sdks.js`);
const ASKED = "Is it raining in Husum?";
const RESULT = "rain until six";
const ABOUT = "Tell the weather.";
const SCHEMA = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const FUNCTION = { type: "function", function: { name: "weather", description: ABOUT, parameters: SCHEMA } };
const USER = { role: "user", content: ASKED };

const CLIENTS = {
  async openai_chat({ url, model, stream }) {
    const client = new (need("openai").OpenAI)({ baseURL: `${url}/v1`, apiKey: "k", maxRetries: 0 });
    const messages = [USER];
    const ask = async () => {
      const given = { model, messages, tools: [FUNCTION] };
      const got = stream
        ? await client.chat.completions.stream(given).finalChatCompletion()
        : await client.chat.completions.create(given);
      return got.choices[0].message;
    };
    const first = await ask();
    const [call] = first.tool_calls;
    messages.push(first, { role: "tool", tool_call_id: call.id, content: RESULT });
    return { arguments: JSON.parse(call.function.arguments), text: (await ask()).content };
  },

  async openai_responses({ url, model, stream }) {
    const client = new (need("openai").OpenAI)({ baseURL: `${url}/v1`, apiKey: "k", maxRetries: 0 });
    const tools = [{ type: "function", name: "weather", description: ABOUT, parameters: SCHEMA, strict: false }];
    const input = [USER];
    const ask = async () => {
      const given = { model, input, tools };
      return stream ? await client.responses.stream(given).finalResponse() : await client.responses.create(given);
    };
    const first = await ask();
    const call = first.output.find((each) => each.type === "function_call");
    const sent = first.output.map(({ parsed_arguments, ...rest }) => rest);
    input.push(...sent, { type: "function_call_output", call_id: call.call_id, output: RESULT });
    return { arguments: JSON.parse(call.arguments), text: (await ask()).output_text };
  },

  async anthropic_messages({ url, model, stream }) {
    const client = new (need("@anthropic-ai/sdk").Anthropic)({ baseURL: url, apiKey: "k", maxRetries: 0 });
    const tools = [{ name: "weather", description: ABOUT, input_schema: SCHEMA }];
    const messages = [USER];
    const ask = async () => {
      const given = { model, messages, tools, max_tokens: 99 };
      return stream ? await client.messages.stream(given).finalMessage() : await client.messages.create(given);
    };
    const first = await ask();
    const call = first.content.find((each) => each.type === "tool_use");
    messages.push({ role: "assistant", content: first.content });
    messages.push({ role: "user", content: [{ type: "tool_result", tool_use_id: call.id, content: RESULT }] });
    return { arguments: call.input, text: (await ask()).content.map((each) => each.text).join("") };
  },

  async google_generate({ url, model, stream }) {
    const client = new (need("@google/genai").GoogleGenAI)({ apiKey: "k", httpOptions: { baseUrl: url } });
    const tools = [{ functionDeclarations: [{ name: "weather", description: ABOUT, parametersJsonSchema: SCHEMA }] }];
    const contents = [{ role: "user", parts: [{ text: ASKED }] }];
    const ask = async () => {
      const given = { model, contents, config: { tools } };
      if (!stream) return (await client.models.generateContent(given)).candidates[0].content.parts;
      const parts = [];
      for await (const each of await client.models.generateContentStream(given)) {
        parts.push(...(each.candidates?.[0].content?.parts ?? []));
      }
      return parts;
    };
    const first = await ask();
    const { functionCall: call } = first.find((each) => each.functionCall);
    const functionResponse = { id: call.id, name: call.name, response: { result: RESULT } };
    contents.push({ role: "model", parts: first }, { role: "user", parts: [{ functionResponse }] });
    return { arguments: call.args, text: (await ask()).map((each) => each.text ?? "").join("") };
  },

  async bedrock_converse({ url, model, stream }) {
    const aws = need("@aws-sdk/client-bedrock-runtime");
    const { NodeHttpHandler } = need("@smithy/node-http-handler");
    const client = new aws.BedrockRuntimeClient({
      endpoint: url,
      region: "eu-central-1",
      credentials: { accessKeyId: "k", secretAccessKey: "s" },
      maxAttempts: 1,
      requestHandler: new NodeHttpHandler(), // else it speaks HTTP/2, which the gateway does not
    });
    const toolSpec = { name: "weather", description: ABOUT, inputSchema: { json: SCHEMA } };
    const messages = [{ role: "user", content: [{ text: ASKED }] }];
    const ask = async () => {
      const given = { modelId: model, messages, toolConfig: { tools: [{ toolSpec }] } };
      if (!stream) return (await client.send(new aws.ConverseCommand(given))).output.message.content;
      const blocks = [];
      for await (const event of (await client.send(new aws.ConverseStreamCommand(given))).stream) {
        const { contentBlockStart: start, contentBlockDelta: delta } = event;
        if (start?.start?.toolUse) blocks[start.contentBlockIndex] = { toolUse: { ...start.start.toolUse, input: "" } };
        if (!delta) continue;
        blocks[delta.contentBlockIndex] ??= { text: "" };
        const block = blocks[delta.contentBlockIndex];
        if (delta.delta.text !== undefined) block.text += delta.delta.text;
        else block.toolUse.input += delta.delta.toolUse.input;
      }
      for (const each of blocks) if (each.toolUse) each.toolUse.input = JSON.parse(each.toolUse.input);
      return blocks;
    };
    const first = await ask();
    const { toolUse: call } = first.find((each) => each.toolUse);
    const toolResult = { toolUseId: call.toolUseId, content: [{ text: RESULT }] };
    messages.push({ role: "assistant", content: first }, { role: "user", content: [{ toolResult }] });
    const text = (await ask()).map((each) => each.text ?? "").join("");
    client.destroy();
    return { arguments: call.input, text };
  },

  async cohere_chat({ url, model, stream }) {
    const client = new (need("cohere-ai").CohereClientV2)({ token: "k", environment: url, maxRetries: 0 });
    const messages = [USER];
    const ask = async () => {
      const given = { model, messages, tools: [FUNCTION] };
      if (!stream) {
        const { message } = await client.chat(given);
        return { text: (message.content ?? []).map((each) => each.text ?? "").join(""), calls: message.toolCalls ?? [] };
      }
      let text = "";
      const calls = [];
      for await (const event of await client.chatStream(given)) {
        if (event.type === "content-delta") text += event.delta.message.content.text ?? "";
        if (event.type === "tool-call-start") calls.push(structuredClone(event.delta.message.toolCalls));
        if (event.type === "tool-call-delta") {
          calls.at(-1).function.arguments += event.delta.message.toolCalls.function.arguments;
        }
      }
      return { text, calls };
    };
    const { calls } = await ask();
    messages.push({ role: "assistant", toolCalls: calls });
    messages.push({ role: "tool", toolCallId: calls[0].id, content: RESULT });
    return { arguments: JSON.parse(calls[0].function.arguments), text: (await ask()).text };
  },

  async ollama_chat({ url, model, stream }) {
    const client = new (need("ollama").Ollama)({ host: url });
    const messages = [USER];
    const ask = async () => {
      const given = { model, messages, tools: [FUNCTION], stream };
      if (!stream) return (await client.chat(given)).message;
      const message = { role: "assistant", content: "", tool_calls: [] };
      for await (const each of await client.chat(given)) {
        message.content += each.message.content ?? "";
        message.tool_calls.push(...(each.message.tool_calls ?? []));
      }
      return message;
    };
    const first = await ask();
    const [call] = first.tool_calls;
    messages.push(first, { role: "tool", tool_name: call.function.name, content: RESULT });
    return { arguments: call.function.arguments, text: (await ask()).content };
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const question = JSON.parse(line);
  let answer;
  try {
    answer = await CLIENTS[question.client](question);
  } catch (error) {
    answer = { error: String(error.stack ?? error) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
