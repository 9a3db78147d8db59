// Drives the AI SDK's own chat (its transport and its state, as useChat has them) against a server of ours.
// Usage: node ai_sdk.mjs NODE_MODULES PACKAGE URL; what to do comes as JSON on standard input: a list of steps.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [modules, name, url] = process.argv.slice(2);
const { AbstractChat, DefaultChatTransport, readUIMessageStream, lastAssistantMessageIsCompleteWithApprovalResponses,
  lastAssistantMessageIsCompleteWithToolCalls } =
  await import(pathToFileURL(`${modules}/${name}/dist/${name === "ai7" ? "index.js" : "index.mjs"}`));

class State {
  status = "ready";
  error = undefined;
  messages = [];
  pushMessage = (message) => { this.messages = [...this.messages, message]; };
  popMessage = () => { this.messages = this.messages.slice(0, -1); };
  replaceMessage = (index, message) => { this.messages = this.messages.with(index, structuredClone(message)); };
  snapshot = (value) => structuredClone(value);
}

class Chat extends AbstractChat {
  constructor(init) { super({ ...init, state: new State() }); }
}

const steps = JSON.parse(readFileSync(0, "utf-8"));
const transport = new DefaultChatTransport({ api: url });
const errors = [];
const chat = new Chat({ id: steps.id ?? "chat-1", transport, onError: (error) => errors.push(String(error.message)) });
const said = [];
for (const step of steps.steps) {
  const messageId = chat.messages[step.at]?.id; // of an earlier message
  if (step.send !== undefined) await chat.sendMessage({ text: step.send, messageId });
  if (step.regenerate) await chat.regenerate({ messageId });
  if (step.approve !== undefined) {
    await chat.addToolApprovalResponse({ id: step.id, approved: step.approve, reason: step.reason });
    if (step.hold) continue; // the user writes on
    if (lastAssistantMessageIsCompleteWithApprovalResponses({ messages: chat.messages })) await chat.sendMessage();
  }
  if (step.output !== undefined) {
    const add = chat.addToolOutput ?? chat.addToolResult; // the name before version 6
    await add({ tool: step.tool, toolCallId: step.call, output: step.output });
    if (lastAssistantMessageIsCompleteWithToolCalls({ messages: chat.messages })) await chat.sendMessage();
  }
  if (step.stop) {
    const going = chat.sendMessage({ text: step.stop });
    await new Promise((resolve) => setTimeout(resolve, step.after));
    await chat.stop();
    await going;
  }
  if (step.resume) {
    const going = new DefaultChatTransport({ api: url }).sendMessages({
      chatId: chat.id, trigger: "submit-message", abortSignal: AbortSignal.timeout(step.after),
      messages: [{ id: "u", role: "user", parts: [{ type: "text", text: step.resume }] }],
    }).then(async (stream) => { for await (const _ of stream); }).catch(() => {});
    await going;
    const stream = await transport.reconnectToStream({ chatId: chat.id });
    let last = null;
    if (stream !== null) for await (const message of readUIMessageStream({ stream })) last = message;
    said.push(last);
  }
  if (step.reconnect) said.push(await transport.reconnectToStream({ chatId: chat.id }));
}
console.log(JSON.stringify({ messages: chat.messages, status: chat.status, errors, said }));
