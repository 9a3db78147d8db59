// Whether exports are what the types of opencode's SDK say, by the TypeScript compiler.
//
// Usage: node opencode.mjs <folder of node_modules>. Standard input: a JSON list of exports of version 1.
// Standard output: a JSON list with what the compiler says of each; empty where it takes it.

import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { readFileSync } from "node:fs";

const folder = resolve(process.argv[2]);
const ts = createRequire(join(folder, "from.js"))("typescript");
const exports = JSON.parse(readFileSync(0, "utf8"));

const names = exports.map((_, number) => join(folder, `export-${number}.ts`));
const texts = new Map(
  exports.map((each, number) => [
    names[number],
    `import type { Session, Message, Part } from "@opencode-ai/sdk/v2";
export const found: { info: Session; messages: { info: Message; parts: Part[] }[] } = ${JSON.stringify(each)};`,
  ]),
);
const options = { strict: true, noEmit: true, skipLibCheck: true, module: 199, moduleResolution: 99, types: [], lib: ["lib.esnext.d.ts", "lib.dom.d.ts"] };
const host = ts.createCompilerHost(options);
const { readFile, fileExists, getSourceFile } = host;
host.fileExists = (name) => texts.has(name) || fileExists(name);
host.readFile = (name) => texts.get(name) ?? readFile(name);
host.getSourceFile = (name, target, ...rest) =>
  texts.has(name) ? ts.createSourceFile(name, texts.get(name), target) : getSourceFile(name, target, ...rest);

const program = ts.createProgram(names, options, host);
const said = names.map((name) =>
  [...program.getSyntacticDiagnostics(program.getSourceFile(name)), ...program.getSemanticDiagnostics(program.getSourceFile(name))]
    .map((each) => ts.flattenDiagnosticMessageText(each.messageText, "\n"))
    .join("\n")
    .slice(0, 3000),
);
process.stdout.write(JSON.stringify(said));
