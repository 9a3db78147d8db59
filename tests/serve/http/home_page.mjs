// Runs the script of the page with a document that is only what the script uses of one: says something, clicks the
// buttons that are named, one after the other, and prints the lines of the log.
const [origin, said, ...clicks] = process.argv.slice(2);

class Element {
  constructor() { this.children = []; this.textContent = ""; this.className = ""; this.disabled = false; }
  append(...given) { for (const each of given) { if (each instanceof Element) { each.parent = this; this.children.push(each); } } }
  remove() { this.parent.children = this.parent.children.filter((each) => each !== this); }
  scrollIntoView() {}
}
const log = new Element(), form = new Element(), text = new Element();
const pending = () => log.children.filter((each) => each.className === "pending");
const buttons = () => pending().flatMap((each) => each.children);
const found = { "#log": log, "#form": form, "#text": text };
globalThis.document = {
  querySelector: (name) => found[name] ?? null,
  querySelectorAll: (name) => (name === ".pending" ? pending() : buttons()),
  createElement: () => new Element(),
};
globalThis.sessionStorage = {};
globalThis.prompt = () => "in cash";
const real = globalThis.fetch;
globalThis.fetch = (path, options) => real(new URL(path, origin), options);

const page = await (await real(origin)).text();
(0, eval)(/<script>([^]*)<\/script>/.exec(page)[1]);
const send = globalThis.send;
let sent;
globalThis.send = (...given) => (sent = send(...given));
text.value = said;
form.onsubmit({ preventDefault() {} });
await sent;
const lines = () => log.children.map((each) => [each.className, each.textContent, ...each.children.map((one) => one.textContent)]);
const shown = [lines()];
for (const name of clicks) {
  buttons().find((each) => each.textContent === name && !each.disabled).onclick();
  await sent;
  shown.push(lines());
}
console.log(JSON.stringify(shown));
process.exit(0);
