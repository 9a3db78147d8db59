// What the AI SDK says to lists of UI messages.
//
// Usage: node vercel_ui.mjs <folder of node_modules> <package>. Standard input: a JSON list of UI message lists.
// Standard output: a JSON list with, for each, {"valid", "error", "prompt"}: whether the SDK validates it, and the prompt
// that a model is then given (of the SDK's own making: validated, converted, and passed through generateText).

import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [, , folder, name] = process.argv;
const require = createRequire(join(resolve(folder), "from.js"));
const sdk = await import(pathToFileURL(require.resolve(name)));
globalThis.AI_SDK_LOG_WARNINGS = false;

const specification = { ai5: "v2", ai6: "v3", ai7: "v4" }[name];

function model(seen) {
  const usage =
    name === "ai5"
      ? { inputTokens: 1, outputTokens: 1, totalTokens: 2 }
      : { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
  return {
    specificationVersion: specification,
    provider: "none",
    modelId: "none",
    supportedUrls: { "*/*": [/.*/] },
    doGenerate: async ({ prompt }) => {
      seen.push(prompt);
      const finishReason = name === "ai5" ? "stop" : { unified: "stop", raw: "stop" };
      return { content: [{ type: "text", text: "ok" }], finishReason, usage, warnings: [] };
    },
  };
}

async function tried(messages) {
  const checked = await sdk.safeValidateUIMessages({ messages });
  if (!checked.success) return { valid: false, error: String(checked.error).slice(0, 2000) };
  try {
    const converted = await sdk.convertToModelMessages(checked.data, { ignoreIncompleteToolCalls: true });
    const seen = [];
    const given = converted.some((each) => each.role !== "system") ? converted : [...converted, { role: "user", content: "?" }];
    await sdk.generateText({ model: model(seen), messages: given, allowSystemInMessages: true, maxRetries: 0 });
    return { valid: true, error: null, prompt: seen[0] };
  } catch (error) {
    return { valid: true, error: `${error}\n${error?.cause ?? ""}`.slice(0, 2000) };
  }
}

const lists = JSON.parse(readFileSync(0, "utf8"));
const results = [];
for (const messages of lists) results.push(await tried(messages));
process.stdout.write(JSON.stringify(results, (_, value) => (value instanceof URL ? value.href : value)));
