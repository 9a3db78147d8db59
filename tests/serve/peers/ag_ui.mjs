// Drives AG-UI's own HttpAgent against a server of ours.
// Usage: node ag_ui.mjs NODE_MODULES URL; what to do comes as JSON on standard input: a list of steps.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [modules, url] = process.argv.slice(2);
const { HttpAgent } = await import(pathToFileURL(`${modules}/@ag-ui/client/dist/index.mjs`));
const steps = JSON.parse(readFileSync(0, "utf-8"));
const agent = new HttpAgent({ url, threadId: steps.id ?? "thread-1" });
const events = [];
const errors = [];
for (const step of steps.steps) {
  if (step.send !== undefined) agent.addMessage({ id: `u-${agent.messages.length}`, role: "user", content: step.send });
  if (step.result !== undefined) {
    agent.addMessage({ id: `t-${agent.messages.length}`, role: "tool", toolCallId: step.call, content: step.result });
  }
  if (step.state !== undefined) agent.setState(step.state);
  const run = { tools: step.tools ?? [], ...(step.resume === undefined ? {} : { resume: step.resume }) };
  try {
    const going = agent.runAgent(run, { onEvent: ({ event }) => { events.push(event); } });
    if (step.abort) setTimeout(() => agent.abortRun(), step.abort);
    await going;
  } catch (error) {
    errors.push(String(error.message));
  }
}
console.log(JSON.stringify({ messages: agent.messages, state: agent.state, events, errors }));
